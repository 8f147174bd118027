import { expect, test } from 'vitest';
import { Arena } from '@paceline/kernels';
import { FrameType, type FrameHeader, type Message } from '@paceline/protocol';
import type { Connection } from '../connection.js';
import { acquireRegion } from '../attempt/regions.js';
import { AsyncShard } from './async-shard.js';
import type { AppliedItem } from './async-shard-table.js';

const members = [{ id: 'w', seat: 0, incarnation: 0, replicas: [0] }];
const header = (view: number): FrameHeader => ({
  type: FrameType.gradient,
  codec: 0,
  flags: 0,
  attempt: 1,
  term: 1,
  view,
  round: 0,
  nodeLo: 0,
  nodeHi: 1,
  chunk: 0,
  length: 16,
  payloadChecksum: 0,
});

/** A shard of one chunk: what it tells, forwards and sends, and what waits for its standby. */
function shardOf() {
  const arena = Arena.create({ initialBytes: 1 << 20, maximumBytes: 1 << 20 });
  const initial = acquireRegion(arena, 4);
  initial.floats.fill(0);
  const told: Message[] = [];
  const forwarded: AppliedItem[] = [];
  const waiting: (() => void)[] = [];
  const sent: number[] = [];
  const connection = {
    sendMessage: () => undefined,
    sendData: (_: unknown, bytes: Uint8Array, done: () => void) => {
      sent.push(new Float32Array(bytes.slice().buffer)[0]!);
      done();
    },
    close: () => undefined,
  } as unknown as Connection;
  const shard = new AsyncShard({
    index: 0,
    attempt: 1,
    keepsFetched: false,
    chunks: [{ index: 0, length: 4, arena }],
    initial: [initial],
    plan: { replicas: 2, totalRounds: 4, replicaExamples: () => 1 },
    store: {
      update: (_chunk, _update, paramIn, paramOut, gradient) =>
        paramOut.floats.forEach((_, i) => (paramOut.floats[i] = paramIn.floats[i]! + gradient.floats[i]!)),
    },
    coordinator: { tell: (message) => void told.push(message) },
  });
  shard.replication = { applied: (applied) => void forwarded.push(applied), whenReplicated: (act) => void waiting.push(act) };
  shard.onView(1, members);
  const link = shard.attach('w', connection);
  const push = (view = 1): void => {
    const bytes = shard.payloadFor(link, header(view));
    bytes.set(new Uint8Array(new Float32Array(4).fill(1).buffer));
    shard.data(link, header(view));
  };
  const replicate = (): void => {
    for (const act of waiting.splice(0)) act();
  };
  return { shard, link, told, forwarded, sent, push, replicate };
}

test('what is fetched and what is applied is told when the standby has it, as it was when it was asked for', () => {
  const { shard, link, told, forwarded, sent, push, replicate } = shardOf();
  shard.onFetch(link, { n: 1, round: 0, replica: 0, term: Infinity });
  replicate();
  push();
  expect(forwarded).toMatchObject([{ item: { round: 0, replica: 0 }, staleness: 0, isDropped: false }]);
  shard.onFetch(link, { n: 1, round: 0, replica: 1, term: Infinity });
  expect(told.filter(({ type }) => type === 'applied')).toEqual([]);
  expect(sent).toEqual([0]);
  replicate();
  expect(told.filter(({ type }) => type === 'applied')).toHaveLength(1);
  expect(sent).toEqual([0, 1]);
});

test('after a VIEW with `since` no gradient counts that was fetched in an older term', () => {
  const { shard, link, told, push, replicate } = shardOf();
  shard.onFetch(link, { n: 1, round: 0, replica: 0, term: 1 });
  shard.onView(2, members, 2);
  push(2);
  expect(shard.marks.count).toBe(0);
  replicate();
  expect(told.at(-1)).toMatchObject({ type: 'standing', view: 2, term: 1, marks: { watermark: 0, since: 2 } });
  shard.onFetch(link, { n: 1, round: 0, replica: 0, term: 2 });
  push(2);
  expect(shard.marks.count).toBe(1);
});

test('a DROP of a work item that is applied is remembered, and told with what is done', () => {
  const { shard, link, told, forwarded, push, replicate } = shardOf();
  shard.onFetch(link, { n: 1, round: 0, replica: 0, term: Infinity });
  push();
  shard.onDrop(0, 0);
  shard.onDrop(0, 0);
  expect(forwarded.map(({ isDropped }) => isDropped)).toEqual([false, true]);
  shard.tellAgain();
  replicate();
  expect(told.filter((message) => message.type === 'applied').map(({ isDropped = false }) => isDropped)).toEqual([false, true, true]);
  expect(told.at(-1)).toMatchObject({ type: 'standing', marks: { watermark: 1, dropped: [0], droppedBefore: { examples: 0, end: 0 } } });
});

test('a standby that misses an update refuses the next one', () => {
  const { shard } = shardOf();
  const update = { type: 'update', round: 0, replica: 0, staleness: 0, isDropped: true } as const;
  expect(shard.followOrder({ ...update, sequence: 1 })).toEqual([{ type: 'updated', sequence: 1 }]);
  expect(() => shard.followOrder({ ...update, sequence: 3, replica: 1 })).toThrow(/BAD_ROUND|update 3 has come, this standby is at 1/u);
});
