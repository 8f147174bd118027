/** Where members listen, and how they find each other on one host. */
import { chmodSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { processClock } from '@paceline/exchange';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { ClusterSpec } from './cluster-spec.js';
import { ClusterError } from './errors.js';
import { joinGroup } from './join.js';
import { groupId } from './proof.js';
import { privateFolder, socketTransport } from './socket-transport.js';

vi.mock('node:os', async (original) => {
  const os = await original<typeof import('node:os')>();
  return { ...os, userInfo: vi.fn(os.userInfo) };
});

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'transport-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

it('a member listens where it is told to, and is reached at its address in the cluster', async () => {
  const ports = [await freePort(), await freePort()];
  // Others reach member 0 at 127.0.0.2; it listens on all interfaces.
  const { members } = new ClusterSpec({ worker: [`127.0.0.2:${ports[0]}`, `127.0.0.1:${ports[1]}`] });
  const group = groupId('these tests');
  const enter = (self: number, listenHost?: string) =>
    joinGroup({
      self,
      names: ['worker 0', 'worker 1'],
      group,
      secret: 'a secret of the tests',
      transport: socketTransport({ members, self, group, kind: 'tcp', listenHost }),
      clock: processClock,
      deadlineMs: 20_000,
    });
  const [a, b] = await Promise.all([enter(0, '0.0.0.0'), enter(1)]);
  expect(b!.links[0]!.connection.remote).toBe(`127.0.0.2:${ports[0]}`);
  for (const { links, close } of [a!, b!]) {
    for (const link of links) link?.connection.close();
    await close();
  }
});

it('Unix sockets lie in a folder of the user, and in no other', () => {
  const made = privateFolder('unix', folder)!;
  expect(made).toBe(join(folder, `paceline-${process.getuid!()}`));
  expect(statSync(made).mode & 0o777).toBe(0o700);
  expect(privateFolder('auto', folder)).toBe(made);
  chmodSync(made, 0o755); // others could look into it
  expect(privateFolder('auto', folder)).toBeUndefined();
  expect(() => privateFolder('unix', folder)).toThrow(ClusterError);
  rmSync(made, { recursive: true });
  const elsewhere = join(folder, 'elsewhere');
  mkdirSync(elsewhere, { mode: 0o700 });
  symlinkSync(elsewhere, made); // somebody else was first
  expect(privateFolder('auto', folder)).toBeUndefined();
  expect(() => privateFolder('unix', folder)).toThrow('remove it, or use transport tcp');
});

it('a user without a name has a folder, and a path that is too long leaves TCP', async () => {
  const made = privateFolder('unix', folder);
  vi.mocked(userInfo).mockImplementation(() => {
    throw new Error('uv_os_get_passwd returned ENOENT');
  });
  expect(privateFolder('auto', folder)).toBe(made);
  const ports = [await freePort(), await freePort()];
  const { members } = new ClusterSpec({ worker: ports.map((port) => `127.0.0.1:${port}`) });
  const long = join(folder, 'long'.repeat(30));
  mkdirSync(long, { mode: 0o700 });
  const transport = (self: number, kind: 'auto' | 'unix') => socketTransport({ members, self, group: 'g', kind, folder: long });
  await expect(transport(0, 'unix').listen(() => undefined)).rejects.toThrow('choose a shorter folder');
  const listener = await transport(0, 'auto').listen((connection) => connection.close());
  const connection = await transport(1, 'auto').connect(0);
  expect(connection.kind).toBe('tcp');
  connection.close();
  await listener.close();
});
