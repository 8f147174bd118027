/** Listening and connecting: what is taken, what is refused, and how it is said. */
import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Connection, FrameReceiver } from '../connection.js';
import { connect } from './connect.js';
import { listen, type SocketListener } from './listen.js';
import { adoptAccepted } from './socket-stream.js';

const DEADLINE_MS = 60_000;
const IGNORE: FrameReceiver = {
  payloadFor: () => new Uint8Array(),
  data: () => undefined,
  message: () => undefined,
  closed: () => undefined,
};

let folder: string;
const opened: { close(): unknown }[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'paceline-addresses-'));
});
afterEach(async () => {
  for (const each of opened.splice(0).reverse()) await each.close();
  rmSync(folder, { recursive: true });
});

async function listenAt(address: Parameters<typeof listen>[0]): Promise<SocketListener> {
  const listener = await listen(address, (connection) => connection.setReceiver(IGNORE));
  opened.push(listener);
  return listener;
}
function track(connection: Connection): Connection {
  opened.push(connection);
  return connection;
}

/** Leaves a socket file that nobody answers on, as a killed process does. */
async function leaveStaleSocket(path: string): Promise<void> {
  const worker = new Worker(`const net = require('node:net'); net.createServer().listen(${JSON.stringify(path)}, () => process.exit());`, {
    eval: true,
  });
  await new Promise((resolve) => worker.once('exit', resolve));
  // A thread that ends closes its server, which removes the path; a killed process does not.
  if (existsSync(path)) return;
  const { spawnSync } = await import('node:child_process');
  spawnSync(process.execPath, [
    '-e',
    `require('node:net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`,
  ]);
}

describe('listen', () => {
  it('takes a Unix path and a free port at once, the path with mode 0600', async () => {
    const unixPath = join(folder, 's');
    const listener = await listenAt({ unixPath, port: 0 });
    expect(listener.port).toBeGreaterThan(0);
    expect(listener.address).toBe(`${unixPath}, 127.0.0.1:${listener.port}`);
    expect(statSync(unixPath).mode & 0o777).toBe(0o600);
    await listener.close();
    expect(existsSync(unixPath)).toBe(false);
  });

  it('removes the socket file of a dead process', async () => {
    const unixPath = join(folder, 's');
    await leaveStaleSocket(unixPath);
    expect(existsSync(unixPath)).toBe(true);
    await listenAt({ unixPath });
    const connection = track(await connect({ host: '', port: 0, unixPath }, { deadlineMs: DEADLINE_MS, transport: 'unix' }));
    expect(connection.kind).toBe('unix');
  });

  it('removes neither the socket of a live process nor a file', async () => {
    const unixPath = join(folder, 's');
    await listenAt({ unixPath });
    await expect(listenAt({ unixPath })).rejects.toMatchObject({ name: 'ListenError', code: 'PATH_IN_USE' });
    const file = join(folder, 'file');
    writeFileSync(file, 'mine');
    await expect(listenAt({ unixPath: file })).rejects.toMatchObject({ code: 'PATH_IN_USE' });
    expect(existsSync(file) && existsSync(unixPath)).toBe(true);
  });

  it('says which port is taken, and leaves nothing behind', async () => {
    const { port } = await listenAt({ port: 0 });
    const unixPath = join(folder, 's');
    const error = await listenAt({ port: port!, unixPath }).catch((cause: unknown) => cause as Error);
    expect(error).toMatchObject({ name: 'ListenError', code: 'PORT_IN_USE', address: `127.0.0.1:${port}` });
    expect((error as Error).message).toContain(`127.0.0.1:${port}`);
    expect(existsSync(unixPath)).toBe(false);
  });

  it.each([
    ['no address', {}],
    ['a port out of range', { port: 70_000 }],
    ['a host that is not here', { host: '192.0.2.1', port: 0 }],
    ['a path that is too long', { unixPath: `/tmp/${'x'.repeat(120)}` }],
    ['a folder that is not there', { unixPath: '/nowhere/at/all' }],
  ])('refuses %s', async (_what, address) => {
    await expect(listenAt(address)).rejects.toMatchObject({ name: 'ListenError', code: 'BAD_ADDRESS' });
  });
});

describe('connect', () => {
  it('takes the Unix socket where it exists, TCP where it does not or nobody answers', async () => {
    const unixPath = join(folder, 's');
    const { port } = await listenAt({ unixPath, port: 0 });
    const options = { deadlineMs: DEADLINE_MS };
    expect(track(await connect({ host: '127.0.0.1', port: port!, unixPath }, options)).kind).toBe('unix');
    expect(track(await connect({ host: '127.0.0.1', port: port!, unixPath }, { ...options, transport: 'tcp' })).kind).toBe('tcp');
    expect(track(await connect({ host: '127.0.0.1', port: port!, unixPath: join(folder, 'other') }, options)).kind).toBe('tcp');
    expect(track(await connect({ host: '127.0.0.1', port: port!, unixPath: null }, options)).kind).toBe('tcp');
    const stale = join(folder, 'stale');
    await leaveStaleSocket(stale);
    expect(track(await connect({ host: '127.0.0.1', port: port!, unixPath: stale }, options)).kind).toBe('tcp');
  });

  it('says that nobody listens', async () => {
    const { port, close } = await listenAt({ port: 0 });
    await close();
    await expect(connect({ host: '127.0.0.1', port: port!, unixPath: null }, { deadlineMs: DEADLINE_MS })).rejects.toMatchObject({
      name: 'ConnectError',
      code: 'UNREACHABLE',
      address: `127.0.0.1:${port}`,
    });
    await expect(connect({ host: '', port: 0, unixPath: null }, { deadlineMs: DEADLINE_MS, transport: 'unix' })).rejects.toMatchObject({
      code: 'BAD_ADDRESS',
    });
    await expect(
      connect({ host: '', port: 0, unixPath: join(folder, 'none') }, { deadlineMs: DEADLINE_MS, transport: 'unix' }),
    ).rejects.toMatchObject({ code: 'UNREACHABLE' });
    await expect(connect({ host: '127.0.0.1', port: 65_536, unixPath: null }, { deadlineMs: DEADLINE_MS })).rejects.toMatchObject({
      code: 'BAD_ADDRESS',
    });
  });

  it('gives up at its deadline when a host does not answer', async () => {
    // A thread that listens with a backlog of one and never accepts: the kernel then leaves further attempts unanswered.
    const source = `const { parentPort } = require('node:worker_threads');
      const server = require('node:net').createServer().listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => {
        parentPort.postMessage(server.address().port);
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0); // until it is terminated
      });`;
    const worker = new Worker(source, { eval: true });
    opened.push({ close: () => worker.terminate() });
    const port = await new Promise<number>((resolve) => worker.once('message', resolve));
    for (let i = 0; i < 2; i++) {
      const filler = new Socket();
      filler.on('error', () => undefined);
      opened.push({ close: () => filler.destroy() });
      await new Promise<void>((resolve) => filler.connect(port, '127.0.0.1', resolve));
    }
    await expect(connect({ host: '127.0.0.1', port, unixPath: null }, { deadlineMs: 200 })).rejects.toMatchObject({
      name: 'ConnectError',
      code: 'CONNECT_DEADLINE',
    });
  });
});

describe('the private handle of an accepted socket', () => {
  it('moves to a socket that reads in place, with this version of Node', async () => {
    const region = new Uint8Array(new SharedArrayBuffer(100));
    let filled = 0;
    const done = new Promise<void>((resolve, reject) => {
      const server = createServer({ pauseOnConnect: true }, (accepted) => {
        const consumer = {
          destination: () => region.subarray(filled),
          filled: (count: number) => {
            filled += count;
          },
          fed: () => reject(new Error('bytes came by another way')),
          streamEnded: () => undefined,
          streamClosed: () => undefined,
        };
        const adopted = adoptAccepted(accepted, consumer);
        if (!adopted) return reject(new Error('this version of Node has another _handle: accepted sockets fall back to data events'));
        adopted.on('end', () => {
          adopted.destroy();
          // Closes although the first socket never closed by itself.
          server.close(() => resolve());
        });
        adopted.resume();
      });
      server.listen(0, '127.0.0.1', () => {
        const client = new Socket().connect((server.address() as { port: number }).port, '127.0.0.1');
        client.end('read in place');
      });
    });
    await done;
    expect(Buffer.from(region.subarray(0, filled)).toString()).toBe('read in place');
  });

  it('is left alone when it is not as expected', () => {
    const socket = new Socket();
    expect(adoptAccepted(socket, {} as never)).toBeUndefined();
    expect(socket.destroyed).toBe(false);
    socket.destroy();
  });
});
