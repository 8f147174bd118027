/** The data plane with TLS, on real processes: a relay between workers and servers reads every byte that passes, and all of them are TLS 1.3 records. */
import { connect as connectSocket, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import path from 'node:path';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connect } from '@paceline/exchange';
import { keepCertificates, tlsVariables } from '@paceline/runtime/certificates';
import { DataPlane } from '@paceline/testkit';
import { reference } from './references.js';

/** Workers dial the relay at the one address, and the server listens on the same port of the other. */
const [RELAY, SERVER] = ['127.0.0.2', '127.0.0.1'];
const RECORD_HEADER_BYTES = 5;
const MOST_RECORD_BYTES = 2 ** 14 + 256;
const APPLICATION_DATA = 23;

/** What went one way through a connection, record by record (RFC 8446, section 5). */
class Records {
  /** Bytes of payloads, by the type of their record. */
  readonly bytes = new Map<number, number>();
  /** The first thing that is no TLS record. */
  fault: string | undefined;
  private rest = Buffer.alloc(0);

  take(chunk: Buffer): void {
    this.rest = Buffer.concat([this.rest, chunk]);
    while (this.fault === undefined && this.rest.length >= RECORD_HEADER_BYTES) {
      const [type, version, length] = [this.rest[0]!, this.rest.readUInt16BE(1), this.rest.readUInt16BE(3)];
      if (type < 20 || type > APPLICATION_DATA || version < 0x0301 || version > 0x0303 || length > MOST_RECORD_BYTES)
        this.fault = `${this.rest.subarray(0, 16).toString('hex')} is no TLS record`;
      if (this.rest.length < RECORD_HEADER_BYTES + length) return;
      this.bytes.set(type, (this.bytes.get(type) ?? 0) + length);
      this.rest = this.rest.subarray(RECORD_HEADER_BYTES + length);
    }
  }
}

const passed: { readonly up: Records; readonly down: Records }[] = [];
const sockets = new Set<Socket>();
let relay: Server;
let folder: string;
let plane: DataPlane;

beforeAll(async () => {
  relay = createServer((near) => {
    const far = connectSocket((relay.address() as AddressInfo).port, SERVER);
    const records = { up: new Records(), down: new Records() };
    passed.push(records);
    for (const [from, to, read] of [
      [near, far, records.up],
      [far, near, records.down],
    ] as const) {
      sockets.add(from);
      from.on('data', (chunk: Buffer) => (read.take(chunk), to.write(chunk)));
      from.on('error', () => to.destroy());
      from.on('close', () => to.end());
    }
  });
  await new Promise<void>((resolve) => void relay.listen(0, RELAY, resolve));
  folder = await mkdtemp(path.join(tmpdir(), 'paceline-tls-'));
  await keepCertificates({ folder, nowMs: Date.now() });
  const variables = (role: 'server' | 'worker') => tlsVariables(path.join(folder, role));
  const { port } = relay.address() as AddressInfo;
  const addresses = { PACELINE_DATA_HOST: RELAY, PACELINE_DATA_BIND: SERVER, PACELINE_DATA_PORT: String(port) };
  plane = await DataPlane.start({
    servers: 1,
    workers: 2,
    transport: 'tcp',
    workerEnv: variables('worker'),
    serverEnv: { ...variables('server'), ...addresses },
  });
});
afterAll(async () => {
  await plane?.stop();
  for (const socket of sockets) socket.destroy();
  relay?.close();
  if (folder) await rm(folder, { recursive: true, force: true });
});

test('a run has the bits of one without TLS, and nothing but TLS records has passed between its processes', async () => {
  const input = { model: 'mlp', globalBatch: 60, replicas: 4, length: { rounds: 8 }, seed: 7 } as const;
  const run = await plane.train({ ...input, strategy: { kind: 'parameter-server', mode: 'sync', servers: 1, startWorkers: 2 } });
  expect((await plane.finished(run)).weightsSha256).toBe(await reference(input));
  expect(passed.length, 'a connection of each worker').toBeGreaterThanOrEqual(2);
  expect(passed.flatMap(({ up, down }) => [up.fault, down.fault]).filter((fault) => fault !== undefined)).toEqual([]);
  const encrypted = (of: 'up' | 'down') => passed.reduce((sum, records) => sum + (records[of].bytes.get(APPLICATION_DATA) ?? 0), 0);
  const { toServersBytes, toWorkersBytes } = run.state!.traffic!;
  expect(encrypted('up')).toBeGreaterThan(0.9 * toServersBytes);
  expect(encrypted('down')).toBeGreaterThan(0.9 * toWorkersBytes);
  expect(toServersBytes, 'with the gradients of the run').toBeGreaterThan(8 * 900_000);
  // Who comes without TLS is told so.
  const plain = await connect(run.servers[0]!, { deadlineMs: 10_000, transport: 'tcp' });
  const end = await new Promise<string | undefined>((resolve) =>
    plain.setReceiver({
      payloadFor: ({ length }) => new Uint8Array(length),
      data: () => undefined,
      message: () => undefined,
      closed: ({ error }) => resolve(error?.code),
    }),
  );
  expect(end).toBe('TLS_REQUIRED');
});
