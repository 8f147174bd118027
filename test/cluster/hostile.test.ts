/** Clients that have no business on the data plane: closed with a typed error, counted, and the run does not notice. */
import { randomBytes, randomUUID } from 'node:crypto';
import { connect as dial, createServer, type AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connect } from '@paceline/exchange';
import {
  Codec,
  FrameType,
  HEADER_BYTES,
  decodeHeader,
  decodeMessage,
  encodeHeader,
  type FrameHeader,
  type MessageOf,
} from '@paceline/protocol';
import { createLayout, layoutHash } from '@paceline/learning';
import { DataPlane, patient, type RunView } from '@paceline/testkit';

let plane: DataPlane;
let run: RunView;
beforeAll(async () => {
  plane = await DataPlane.start({ servers: 1, workers: 1, transport: 'tcp' });
  run = await plane.train({ model: 'mlp', globalBatch: 128, replicas: 16, length: { rounds: 2_000 } });
  await plane.until(run, 'the first rounds', 30_000, () => (run.state?.round ?? 0) > 3);
});
afterAll(() => plane?.stop());

interface Visit {
  token?: string;
  runId?: string;
  attempt?: number;
  role?: 'worker' | 'server';
  seat?: number;
  layout?: string;
  fingerprint?: string;
  /** Another way to the server. */
  port?: number;
  /** Sent after WELCOME. */
  then?: Partial<FrameHeader> & { bytes: number };
}

/** Says hello and returns the code with which the server refused, or 'welcome'. */
async function visit(options: Visit): Promise<string> {
  const server = { ...run.servers[0]!, ...(options.port === undefined ? {} : { port: options.port }) };
  const connection = await connect(server, { deadlineMs: patient(2_000), transport: 'tcp' });
  const hello: MessageOf<'hello'> = {
    type: 'hello',
    token: options.token ?? (await plane.token(run.id, 'worker')),
    run: options.runId ?? run.id,
    role: options.role ?? 'worker',
    id: `visitor-${randomUUID()}`,
    host: 'h',
    seat: options.seat ?? 3,
    incarnation: 0,
    fingerprint: options.fingerprint ?? 'none',
    layout: options.layout ?? layoutHash(createLayout(run.model)),
  };
  return new Promise<string>((resolve) => {
    const timer = setTimeout(() => resolve('nothing'), patient(5_000));
    const done = (code: string): void => {
      clearTimeout(timer);
      resolve(code);
    };
    let parameters = 0;
    connection.setReceiver({
      payloadFor: (header) => new Uint8Array(header.length),
      data: () => void parameters++,
      message: (message) => {
        if (message.type === 'refused') done(message.code);
        if (message.type !== 'welcome') return;
        if (!options.then) return done('welcome');
        const { bytes, ...header } = options.then;
        connection.sendData(
          {
            type: FrameType.gradient,
            codec: Codec.none,
            attempt: 1,
            term: 1,
            view: 1,
            round: message.round,
            nodeLo: 0,
            nodeHi: 1,
            chunk: 0,
            ...header,
          },
          new Uint8Array(bytes),
        );
      },
      closed: ({ error, description }) => done(error?.code ?? description),
    });
    connection.sendMessage(hello, { attempt: options.attempt ?? 1, term: 0, view: 0, round: 0 });
  });
}

async function expectTrainingGoesOn(): Promise<void> {
  const before = run.state!.round;
  await plane.until(run, 'more rounds', 10_000, () => run.state!.round > before);
}

test('tokens: none, of another secret, expired, of another run, of another role, of an older or unknown attempt', async () => {
  expect(await visit({ token: '' })).toBe('TOKEN_MISSING');
  expect(await visit({ token: 'eyJhbGciOiJub25lIn0.e30.' })).toBe('TOKEN_INVALID');
  expect(await visit({ token: await plane.token(run.id, 'worker', 1, 'another secret that is also quite long enough') })).toBe(
    'TOKEN_INVALID',
  );
  expect(await visit({ token: await plane.token(run.id, 'worker', 1, plane.secret, '-1s') })).toBe('TOKEN_INVALID');
  expect(await visit({ token: await plane.token(randomUUID(), 'worker') })).toBe('TOKEN_WRONG_RUN');
  expect(await visit({ token: await plane.token(run.id, 'server') })).toBe('TOKEN_WRONG_RUN');
  const other = randomUUID();
  expect(await visit({ token: await plane.token(other, 'worker'), runId: other })).toBe('RUN_UNKNOWN');
  expect(await visit({ attempt: 0 })).toBe('STALE_FENCE');
  expect(await visit({ attempt: 2 })).toBe('RUN_UNKNOWN');
  await expectTrainingGoesOn();
});

test('a good token with the wrong engine, layout or seat is told why', async () => {
  expect(await visit({})).toBe('FINGERPRINT_MISMATCH');
  expect(await visit({ layout: 'another' })).toBe('LAYOUT_MISMATCH');
  expect(await visit({ seat: run.state!.seats[0]!.seat })).toBe('SEAT_TAKEN');
  await expectTrainingGoesOn();
});

test('frames that no member sends: old fence, unknown chunk, wrong length, bad node, far round, bad codec', async () => {
  const fingerprint = (
    run.entries.find((e) => e.kind === 'event' && e.type === 'training.started') as unknown as { data: { fingerprint: string } }
  ).data.fingerprint;
  const chunk = createLayout(run.model).chunks[0]!.length * 4;
  let seat = 4;
  const send = (then: Visit['then']) => visit({ fingerprint, seat: seat++, ...(then ? { then } : {}) });
  expect(await send({ bytes: chunk, attempt: 0 })).toBe('STALE_FENCE');
  expect(await send({ bytes: chunk, chunk: 9_999 })).toBe('UNKNOWN_CHUNK');
  expect(await send({ bytes: chunk - 4 })).toBe('WRONG_LENGTH');
  expect(await send({ bytes: chunk, nodeLo: 1, nodeHi: 3 })).toBe('BAD_NODE');
  expect(await send({ bytes: chunk, round: 4_000_000 })).toBe('BAD_ROUND');
  expect(await send({ bytes: chunk, codec: 9 })).toBe('BAD_CODEC');
  await expectTrainingGoesOn();
});

test('a HELLO that was recorded on its way, whole and with a good token, is worth nothing on another connection', async () => {
  const { port } = run.servers[0]!;
  const recorded: Buffer[] = [];
  const proxy = createServer((near) => {
    const far = dial(port, '127.0.0.1');
    for (const socket of [near, far]) socket.on('error', () => socket.destroy());
    near.on('data', (bytes) => void recorded.push(Buffer.from(bytes)));
    near.pipe(far).pipe(near);
  });
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  expect(await visit({ port: (proxy.address() as AddressInfo).port, seat: 12 })).toBe('FINGERPRINT_MISMATCH');
  proxy.close();
  const heard = await new Promise<Buffer>((resolve, reject) => {
    const parts: Buffer[] = [];
    const socket = dial(port, '127.0.0.1', () => socket.write(Buffer.concat(recorded)));
    socket.setTimeout(patient(8_000), () => socket.destroy(new Error('the server said nothing')));
    socket.on('data', (bytes) => void parts.push(bytes));
    socket.on('end', () => (socket.destroy(), resolve(Buffer.concat(parts))));
    socket.on('error', reject);
  });
  const said = [];
  for (let at = 0; at < heard.length;) {
    const { length } = decodeHeader(heard, at);
    said.push(decodeMessage(heard.subarray(at + HEADER_BYTES, at + HEADER_BYTES + length)));
    at += HEADER_BYTES + length;
  }
  expect(said).toMatchObject([{ type: 'challenge' }, { type: 'refused', code: 'HELLO_REPLAYED' }]);
  await expectTrainingGoesOn();
});

test('random bytes, a 4 GB length, a header of another version, silence: closed, and the server goes on', async () => {
  const { port } = run.servers[0]!;
  const closedAfter = (bytes: Uint8Array) =>
    new Promise<boolean>((resolve) => {
      const socket = dial(port, '127.0.0.1', () => socket.write(bytes));
      socket.on('error', () => resolve(true));
      socket.on('close', () => resolve(true));
      socket.resume();
      setTimeout(() => {
        socket.destroy();
        resolve(false);
      }, patient(8_000)).unref();
    });
  const header = (change: (bytes: Uint8Array) => void): Uint8Array => {
    const bytes = new Uint8Array(HEADER_BYTES);
    encodeHeader(
      {
        type: FrameType.control,
        codec: 0,
        flags: 0,
        attempt: 1,
        term: 0,
        view: 0,
        round: 0,
        nodeLo: 0,
        nodeHi: 0,
        chunk: 0,
        length: 4_294_967_295,
        payloadChecksum: 0,
      },
      bytes,
    );
    change(bytes);
    return bytes;
  };
  const closed = await Promise.all([
    closedAfter(randomBytes(4096)),
    closedAfter(header(() => undefined)),
    closedAfter(header((bytes) => (bytes[4] = 99))),
    closedAfter(new Uint8Array(3)),
  ]);
  expect(closed).toEqual([true, true, true, true]);
  await expectTrainingGoesOn();
});

test('refusals are counted where people see them', () => {
  expect(run.state!.refusedConnections).toBeGreaterThanOrEqual(12);
});
