/** Members of a run whose encoded gradients no encoder writes: closed with BAD_PAYLOAD, their replicas are computed by others, and the run goes on. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connect } from '@paceline/exchange';
import { quantizedBytes, signBytes } from '@paceline/kernels';
import { createLayout, layoutHash } from '@paceline/learning';
import { FrameType, type MessageOf } from '@paceline/protocol';
import type { CodecSpec } from '@paceline/spec';
import { DataPlane, patient, type RunView } from '@paceline/testkit';

let plane: DataPlane;
beforeAll(async () => void (plane = await DataPlane.start({ servers: 1, workers: 1, transport: 'tcp' })));
afterAll(() => plane?.stop());

/** Joins the run, and sends the first chunk of its replica in its own way. @returns the code that the server refused it with */
async function spoil(run: RunView, seat: number, codec: number, payload: Uint8Array): Promise<string> {
  const connection = await connect(run.servers[0]!, { deadlineMs: 2_000, transport: 'tcp' });
  const started = run.entries.find((entry) => entry.kind === 'event' && entry.type === 'training.started') as unknown as {
    data: { fingerprint: string };
  };
  const id = `visitor-${randomUUID()}`;
  const hello: MessageOf<'hello'> = {
    type: 'hello',
    token: await plane.token(run.id, 'worker'),
    run: run.id,
    role: 'worker',
    id,
    host: 'h',
    seat,
    incarnation: 0,
    fingerprint: started.data.fingerprint,
    layout: layoutHash(createLayout(run.model)),
  };
  return new Promise<string>((resolve) => {
    const timer = setTimeout(() => resolve('nothing'), patient(20_000));
    const done = (code: string): void => {
      clearTimeout(timer);
      resolve(code);
    };
    connection.setReceiver({
      payloadFor: (header) => new Uint8Array(header.length),
      data: () => undefined,
      message: (message) => {
        if (message.type === 'refused') done(message.code);
        if (message.type !== 'view' && message.type !== 'commit') return;
        const replica = message.members?.find((member) => member.id === id)?.replicas[0];
        if (replica === undefined) return;
        const round = message.type === 'view' ? message.round : message.round + 1;
        const { view, term } = message;
        const place = { attempt: 1, term, view, round, nodeLo: replica, nodeHi: replica + 1, chunk: 0 };
        connection.sendData({ type: FrameType.gradient, codec, ...place }, payload);
      },
      closed: ({ error, description }) => done(error?.code ?? description),
    });
    connection.sendMessage(hello, { attempt: 1, term: 0, view: 0, round: 0 });
  });
}

/** Zeros, and some words. */
function bytesOf(length: number, ...words: readonly (readonly [at: number, bits: number])[]): Uint8Array {
  const bytes = new Uint8Array(length);
  for (const [at, bits] of words) new DataView(bytes.buffer).setUint32(at, bits, true);
  return bytes;
}

/** `held` elements, of which `count` are claimed; the first distance is given, the others are 0. */
function withDistance(held: number, count: number, first: readonly number[]): Uint8Array {
  const bytes = bytesOf(4 + 4 * held + first.length + held - 1, [0, count]);
  bytes.set(first, 4 + 4 * held);
  return bytes;
}

const [NAN, HUGE, MINUS_ONE] = [0x7fc00000, 0x7e967699, 0xbf800000];
const DENSITY = 0.01;
const countOf = (n: number): number => Math.round(n * DENSITY);
type Case = readonly [what: string, payload: (n: number) => Uint8Array];

/** A codec with its number, and what is wrong with the bytes of a chunk of n elements. Places are sent as distances: none can be unsorted or there twice but by one that wraps. */
const SPOILT: readonly (readonly [CodecSpec['kind'], number, readonly Case[]])[] = [
  [
    'top-k',
    7,
    [
      ['an element out of range', (n) => withDistance(countOf(n), countOf(n), [0xff, 0xff, 0xff, 0x7f])],
      ['a distance that wraps to an element before', (n) => withDistance(countOf(n), countOf(n), [0xff, 0xff, 0xff, 0xff, 0x0f])],
      ['a distance of too many digits', (n) => withDistance(countOf(n), countOf(n), [0x80, 0x00])],
      ['all elements in the bytes of a few', (n) => withDistance(countOf(n), n, [0])],
      ['2^32 − 1 elements', (n) => withDistance(countOf(n), 0xffffffff, [0])],
    ],
  ],
  [
    'int8',
    3,
    [
      ['a step that is NaN, with numbers', (n) => bytesOf(quantizedBytes(n, 8), [0, NAN], [4 * Math.ceil(n / 512), 1])],
      ['a step of 1e38, of which a number would be infinite', (n) => bytesOf(quantizedBytes(n, 8), [0, HUGE])],
      ['a step that is negative', (n) => bytesOf(quantizedBytes(n, 8), [0, MINUS_ONE])],
    ],
  ],
  [
    'fp16',
    1,
    [
      ['a factor that is NaN', (n) => bytesOf(4 + 2 * n, [0, NAN])],
      ['a factor of 1e38', (n) => bytesOf(4 + 2 * n, [0, HUGE])],
    ],
  ],
  ['sign', 6, [['a magnitude that is negative', (n) => bytesOf(signBytes(n), [0, MINUS_ONE])]]],
];

/** The others are refused by the same lines, and each codec's unit tests have what it writes: `npm run soak` has all. */
const IN_SUITE: readonly string[] = ['top-k', 'int8'];
const spoilt = SPOILT.filter(([kind]) => process.env['PACELINE_SOAK'] === '1' || IN_SUITE.includes(kind));

test.each(spoilt)('%s: what no encoder writes is BAD_PAYLOAD', { timeout: 300_000 }, async (kind, codec, cases) => {
  const density = kind === 'top-k' ? { density: DENSITY } : {};
  const run = await plane.train({ model: 'mlp', globalBatch: 32, replicas: 8, length: { rounds: 100_000 }, codec: { kind, ...density } });
  await plane.until(run, 'the first rounds', 60_000, () => (run.state?.round ?? 0) > 3);
  const n = createLayout(run.model).chunks[0]!.length;
  let seat = 100;
  for (const [what, payload] of cases) expect([what, await spoil(run, seat++, codec, payload(n))]).toEqual([what, 'BAD_PAYLOAD']);
  const before = run.state!.round;
  await plane.until(run, 'more rounds', 60_000, () => run.state!.round > before);
  await plane.control(run, 'action', 'cancel');
  await plane.event(run, 'run.cancelled', 60_000);
});
