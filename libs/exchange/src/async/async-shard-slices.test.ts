/** Updates of a shard of modes async and ssp in slices: others have turns in between, and nothing tells the result from that of one go. */
import { expect, test } from 'vitest';
import { Arena } from '@paceline/kernels';
import { FrameType, type FrameHeader, type Message } from '@paceline/protocol';
import type { Connection } from '../connection.js';
import { acquireRegion } from '../attempt/regions.js';
import type { Slices } from '../attempt/shard-work.js';
import { AsyncShard } from './async-shard.js';

const CHUNKS = 3;
const LENGTH = 4;
const members = [
  { id: 'a', seat: 0, incarnation: 0, replicas: [0] },
  { id: 'b', seat: 1, incarnation: 0, replicas: [1] },
];
const header = (replica: number, chunk: number): FrameHeader => ({
  type: FrameType.gradient,
  codec: 0,
  flags: 0,
  attempt: 1,
  term: 1,
  view: 1,
  round: 0,
  nodeLo: replica,
  nodeHi: replica + 1,
  chunk,
  length: LENGTH * 4,
  payloadChecksum: 0,
});

/** @param inSlices each step waits until `turn` is called; otherwise an update is done in one go */
function shardOf(inSlices: boolean) {
  const arena = Arena.create({ initialBytes: 1 << 20, maximumBytes: 1 << 20 });
  const initial = Array.from({ length: CHUNKS }, () => {
    const region = acquireRegion(arena, LENGTH);
    region.floats.fill(1);
    return region;
  });
  const pending: (() => boolean)[] = [];
  const slices: Slices = (next) => void (next() && pending.push(next));
  /** Everything that leaves the shard, in its order. */
  const out: unknown[] = [];
  const checkpoints: number[][] = [];
  const shard = new AsyncShard({
    index: 0,
    attempt: 1,
    keepsFetched: true,
    chunks: initial.map((_, index) => ({ index, length: LENGTH, arena })),
    initial,
    plan: { replicas: 2, totalRounds: 4, replicaExamples: () => 1 },
    // Not commutative: another order gives other bits.
    store: {
      update: (_chunk, { step, staleness, fetched }, paramIn, paramOut, gradient) =>
        paramOut.floats.forEach((_, i) => {
          const then = fetched?.floats[i] ?? 0;
          paramOut.floats[i] = paramIn.floats[i]! * 0.7 + gradient.floats[i]! * step + staleness * 0.3 + then * 0.1;
        }),
    },
    coordinator: { tell: (message) => void out.push(message) },
    host: {
      checkpointWanted: (_generation, regions) => {
        checkpoints.push(regions.map((region) => region.floats[0]!));
        for (const region of regions) region.release();
      },
      frameDropped: () => undefined,
    },
    ...(inSlices ? { slices } : {}),
  });
  shard.replication = { applied: ({ item, staleness }) => void out.push({ item, staleness }), whenReplicated: (act) => act() };
  shard.onView(1, members);
  const link = (id: string) => {
    const connection = {
      sendMessage: () => undefined,
      sendData: ({ chunk, nodeLo }: { chunk: number; nodeLo: number }, bytes: Uint8Array, done: () => void) => {
        out.push([id, nodeLo, chunk, ...new Float32Array(bytes.slice().buffer)]);
        done();
      },
      close: () => undefined,
    } as unknown as Connection;
    return shard.attach(id, connection);
  };
  const links = [link('a'), link('b')] as const;
  const push = (replica: 0 | 1, value: number): void => {
    for (let chunk = 0; chunk < CHUNKS; chunk++) {
      const bytes = shard.payloadFor(links[replica], header(replica, chunk));
      bytes.set(new Uint8Array(new Float32Array(LENGTH).fill(value + chunk).buffer));
      shard.data(links[replica], header(replica, chunk));
    }
  };
  /** Others have had their turn. False when nothing is under way. */
  const turn = (): boolean => {
    const next = pending.shift();
    if (next?.()) pending.push(next);
    return next !== undefined;
  };
  const applied = () => out.filter((item) => (item as Message).type === 'applied').length;
  return { shard, links, out, checkpoints, push, turn, applied, usedBytes: () => arena.bytesInUse };
}

/** Two workers, gradients and fetches of one while the update of the other is under way. */
function script({ shard, links, push }: ReturnType<typeof shardOf>): void {
  shard.onFetch(links[0], { n: 1, round: 0, replica: 0, term: Infinity });
  shard.onFetch(links[1], { n: 1, round: 0, replica: 1, term: Infinity });
  push(0, 2);
  shard.onFetch(links[0], { n: 1, round: 1, replica: 0, term: Infinity });
  push(1, 3);
  shard.onFetch(links[1], { n: 1, round: 1, replica: 1, term: Infinity });
}

test('what comes while an update is under way waits in line, and everything leaves as if each had been done in one go', () => {
  const [whole, sliced] = [shardOf(false), shardOf(true)];
  script(whole);
  script(sliced);
  // Only the first chunk of the first update is done, and nothing of what came behind it.
  expect([whole.applied(), sliced.applied(), sliced.shard.updating]).toEqual([2, 0, { round: 0, replica: 0 }]);
  let turns = 0;
  while (sliced.turn()) turns++;
  expect(turns, 'two for each update of three chunks').toBe(2 * (CHUNKS - 1));
  expect(sliced.out).toEqual(whole.out);
  expect([sliced.shard.marks.count, sliced.shard.updating]).toEqual([2, undefined]);
});

test('what reads or changes the whole shard finds all that came before it done', () => {
  const asks: ((shard: AsyncShard, links: ReturnType<typeof shardOf>['links']) => void)[] = [
    (shard) => shard.onView(2, members, 2),
    (shard) => shard.onView(2, [members[0]!]),
    (shard) => shard.onDrop(0, 1),
    (shard) => shard.tellAgain(),
    (shard, links) => shard.onPull(links[0], 1, 2),
    (shard, links) => shard.detach(links[0]),
    (shard) => shard.promote(3),
  ];
  for (const ask of asks) {
    const [whole, sliced] = [shardOf(false), shardOf(true)];
    for (const each of [whole, sliced]) {
      script(each);
      ask(each.shard, each.links);
    }
    expect(sliced.out, String(ask)).toEqual(whole.out);
    expect(sliced.shard.updating).toBeUndefined();
    // A turn that was still to come finds nothing to do.
    while (sliced.turn());
    expect(sliced.out).toEqual(whole.out);
  }
});

test('a checkpoint takes whole updates', () => {
  const [whole, sliced] = [shardOf(false), shardOf(true)];
  for (const { shard, links, push } of [whole, sliced]) {
    shard.onFetch(links[0], { n: 1, round: 0, replica: 0, term: Infinity });
    shard.onFetch(links[1], { n: 1, round: 0, replica: 1, term: Infinity });
    push(0, 2);
    push(1, 3);
    shard.onCommit({ round: 0, checkpoint: true });
  }
  expect(sliced.checkpoints).toEqual(whole.checkpoints);
});

test('a worker that sends more than it may is refused, also while it waits in line', () => {
  const { shard, links, push } = shardOf(true);
  for (let round = 0; round < 4; round++) shard.onFetch(links[0], { n: 1, round, replica: 0, term: Infinity });
  push(0, 1);
  for (let i = 0; i < 4; i++) shard.onFetch(links[0], { n: 1, round: 3, replica: 0, term: Infinity });
  expect(() => shard.onFetch(links[0], { n: 1, round: 3, replica: 0, term: Infinity })).toThrow('more fetches than work items');
});

test('the end lets go of an update that is under way and of what waits behind it', () => {
  const sliced = shardOf(true);
  script(sliced);
  sliced.shard.end();
  while (sliced.turn());
  expect([sliced.applied(), sliced.usedBytes()]).toEqual([0, 0]);
});

test('a standby acknowledges an update when all of it is applied, in the order of the updates', () => {
  const sliced = shardOf(true);
  const { shard } = sliced;
  const acknowledged: unknown[] = [];
  const follow = (sequence: number, replica: number): void => {
    shard.followOrder({ type: 'update', sequence, round: 0, replica, staleness: 0, isDropped: false });
    for (let chunk = 0; chunk < CHUNKS; chunk++) {
      expect(shard.wantsReplica(header(replica, chunk))).toBe(true);
      const region = acquireRegion(shard.chunkAt(chunk)!.arena, shard.chunkAt(chunk)!.length);
      region.floats.fill(sequence);
      shard.applyReplica(header(replica, chunk), region, (message) => acknowledged.push(message));
    }
  };
  follow(1, 0);
  follow(2, 1);
  expect(acknowledged).toEqual([]);
  for (let i = 0; i < CHUNKS - 1; i++) sliced.turn();
  expect(acknowledged).toEqual([{ type: 'updated', sequence: 1 }]);
  // One that leaves a work item out is acknowledged at once, after those before it.
  const left = shard.followOrder({ type: 'update', sequence: 3, round: 1, replica: 0, staleness: 0, isDropped: true });
  expect([acknowledged, left]).toEqual([
    [
      { type: 'updated', sequence: 1 },
      { type: 'updated', sequence: 2 },
    ],
    [{ type: 'updated', sequence: 3 }],
  ]);
});
