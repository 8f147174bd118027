/** `paceline up --tls` over TCP: a run trains, and the port of the parameter server speaks TLS 1.3, with a certificate of its own, and nothing else. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { connect as connectSocket } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { tlsVariables } from '@paceline/runtime/certificates';
import { patient } from '@paceline/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createHome, until, type Home } from '../cli/command-line.js';

let home: Home;
let serverPid: number;
beforeAll(async () => {
  home = createHome();
  const up = home.start(['up', '--json', '--tls', '--port', '0', '--workers', '1'], { PACELINE_TRANSPORT: 'tcp' });
  const ready = await until('up to be ready', () => up.stdout() || (up.child.exitCode === null ? undefined : up.stderr()), 120_000);
  const { processes } = JSON.parse(ready) as { processes: { name: string; pid: number }[] };
  serverPid = processes.find(({ name }) => name === 'ps-1')!.pid;
});
afterAll(() => home?.dispose());

/** Ports at which sockets of a process listen, or at which they are connected (proc_net(5)). */
function portsOf(pid: number, state: 'listening' | 'connected'): number[] {
  const inodes = new Set(
    readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
      try {
        return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1] ?? [];
      } catch {
        return []; // it was closed while we looked
      }
    }),
  );
  const wanted = state === 'listening' ? '0A' : '01';
  return readFileSync(`/proc/${pid}/net/tcp`, 'latin1')
    .split('\n')
    .slice(1)
    .map((line) => line.trim().split(/\s+/))
    .flatMap(([, local, , code, , , , , , inode]) =>
      code === wanted && inode !== undefined && inodes.has(inode) ? [parseInt(local!.split(':')[1]!, 16)] : [],
    );
}

/** The protocol that the server speaks with a worker, and the name in its certificate. */
function spokenWith(port: number): Promise<{ protocol: string | null; name: string | undefined }> {
  const file = (variable: keyof ReturnType<typeof tlsVariables>) => readFileSync(tlsVariables(join(home.folder, 'tls/worker'))[variable]!);
  const [ca, cert, key] = [file('PACELINE_TLS_CA'), file('PACELINE_TLS_CERT'), file('PACELINE_TLS_KEY')];
  return new Promise((resolve, reject) => {
    const socket = connectTls({ host: '127.0.0.1', port, ca, cert, key, minVersion: 'TLSv1.2', checkServerIdentity: () => undefined });
    socket.once('error', reject);
    socket.once('secureConnect', () => {
      resolve({ protocol: socket.getProtocol(), name: socket.getPeerCertificate().subjectaltname });
      socket.destroy();
    });
  });
}

/** What a server says to who comes without TLS. */
function toldInPlain(port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    let heard = '';
    const socket = connectSocket(port, '127.0.0.1');
    socket.setTimeout(patient(20_000), () => socket.destroy(new Error(`nothing but ${heard} was heard`)));
    socket.on('data', (chunk) => (heard += chunk.toString('latin1'))).once('error', reject);
    socket.once('close', () => resolve(heard));
  });
}

test('a run trains over the port, a worker is spoken to in TLS 1.3, and others are told so', async () => {
  const { runId } = await home.json<{ runId: string }>('train', '--model', 'mlp', '--rounds', '1000000', '--replicas', '2', '--detach');
  const round = async () => (await home.json<{ progress: { round: number } }>('run', runId)).progress.round;
  await expect.poll(round, { timeout: 120_000, interval: 1_000 }).toBeGreaterThan(3);
  const [port] = portsOf(serverPid, 'listening');
  expect(portsOf(serverPid, 'connected'), 'the worker of the run').toContain(port);
  expect(await spokenWith(port!)).toEqual({ protocol: 'TLSv1.3', name: expect.stringMatching(/^URI:paceline:\/\/[^/]+\/server$/) });
  expect(await toldInPlain(port!)).toContain('TLS_REQUIRED');
  const before = await round();
  await expect.poll(round, { timeout: 60_000, interval: 1_000 }).toBeGreaterThan(before);
});
