/** A round is measured, and a decided one applied, in slices: others have turns in between, and nothing tells the result from that of one go. */
import { expect, test } from 'vitest';
import { Arena } from '@paceline/kernels';
import { FrameType, type FrameHeader, type Message, type MessageOf } from '@paceline/protocol';
import type { Connection } from '../connection.js';
import { acquireRegion, type Region } from '../attempt/regions.js';
import { Shard } from './shard.js';
import { ShardWork, type Slices } from '../attempt/shard-work.js';

const CHUNKS = 4;
const LENGTH = 4;
const members = [{ id: 'a', seat: 0, incarnation: 0, replicas: [0] }];
const decision: MessageOf<'decision'> = { type: 'decision', round: 0, skip: false, examples: 8, scale: 0.5, variables: [] };
const commit: MessageOf<'commit'> = { type: 'commit', round: 0, view: 1, term: 1, members };
const header = (chunk: number, round = 0): FrameHeader => ({
  type: FrameType.gradient,
  codec: 0,
  flags: 0,
  attempt: 1,
  term: 1,
  view: 1,
  round,
  nodeLo: 0,
  nodeHi: 1,
  chunk,
  length: LENGTH * 4,
  payloadChecksum: 0,
});

/** A shard that has the gradients of a round of one replica, and waits for the decision. */
function decidingShard(inSlices: boolean, isMeasured = true) {
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
  const shard = new Shard({
    index: 0,
    attempt: 1,
    replicas: 1,
    chunks: initial.map((_, index) => ({ index, length: LENGTH, arena })),
    initial,
    createReduction: () => {
      let root: Region | undefined;
      return {
        covers: () => false,
        insert: (_node, region) => ((root = region), 'complete'),
        takeRoot: () => root!,
        missingLeaves: () => [],
        isEmpty: false,
        dispose: () => undefined,
      };
    },
    isValidNode: () => true,
    twoPhase: { hasBackups: false },
    store: {
      measure: () => ({ isFinite: true, squares: [] }),
      update: (_chunk, _round, paramIn, paramOut, gradient, decided) =>
        paramOut.floats.forEach((_, i) => (paramOut.floats[i] = paramIn.floats[i]! - gradient.floats[i]! * decided!.scale)),
    },
    coordinator: { tell: (message) => void out.push(message) },
    ...(inSlices ? { slices } : {}),
  });
  shard.replication = { reduced: (round, chunk) => void out.push({ reduced: [round, chunk] }), holdsBack: false };
  shard.onView(1, members);
  const connection = {
    queuedBytes: 0,
    sendMessage: () => undefined,
    sendData: ({ round, chunk }: { round: number; chunk: number }, bytes: Uint8Array, done: () => void) => {
      out.push([round, chunk, ...new Float32Array(bytes.slice().buffer)]);
      done();
    },
    close: () => undefined,
  } as unknown as Connection;
  const link = shard.attach('a', connection);
  const push = (chunk: number, round = 0): void => {
    shard.payloadFor(link, header(chunk, round)).set(new Uint8Array(new Float32Array(LENGTH).fill(chunk + 1).buffer));
    shard.data(link, header(chunk, round));
  };
  for (let chunk = 0; chunk < CHUNKS; chunk++) push(chunk);
  /** Others have had their turn. False when nothing is under way. */
  const turn = (): boolean => {
    const next = pending.shift();
    if (next?.()) pending.push(next);
    return next !== undefined;
  };
  while (isMeasured && turn());
  return { shard, link, out, push, turn, bytesInUse: () => arena.bytesInUse };
}

test('others have a turn after each chunk that is measured, and the coordinator hears of all of them at once', () => {
  const [whole, sliced] = [decidingShard(false), decidingShard(true, false)];
  expect([whole, sliced].map(({ shard }) => shard.table.state)).toEqual(['DECIDING', 'DECIDING']);
  const scalars = (out: readonly unknown[]) => out.filter((each) => (each as Message).type === 'scalars');
  expect([scalars(whole.out).length, scalars(sliced.out).length]).toEqual([1, 0]);
  let turns = 0;
  while (sliced.turn()) turns++;
  expect(turns).toBe(CHUNKS - 1);
  expect(sliced.out).toEqual(whole.out);
});

test('whatever the coordinator says next finds the round measured, and the end lets go of one that is half measured', () => {
  const says: Message[] = [{ type: 'view', view: 2, term: 1, round: 0, members }, { type: 'tell-again' }, decision];
  for (const say of says) {
    const [whole, sliced] = [decidingShard(false), decidingShard(true, false)];
    for (const { shard, link } of [whole, sliced]) shard.fromCoordinator(link, say);
    while (sliced.turn());
    expect(sliced.out, say.type).toEqual(whole.out);
  }
  const again = decidingShard(true, false);
  again.shard.tellAgain();
  again.shard.fromCoordinator(again.link, decision);
  while (again.turn());
  const told = again.out.map((each) => (each as Message).type).filter((type) => type === 'scalars' || type === 'reduced');
  expect(told, 'what is said again is said before the round is applied').toEqual(['scalars', 'scalars', 'reduced']);
  const ended = decidingShard(true, false);
  ended.shard.end();
  const said = ended.out.length;
  while (ended.turn());
  expect([ended.out.length, ended.bytesInUse()]).toEqual([said, 0]);
});

test('others have a turn after each chunk, gradients that come meanwhile are too late or wait for their round, and the end is the same', () => {
  const [whole, sliced] = [decidingShard(false), decidingShard(true)];
  for (const { shard, link, push } of [whole, sliced]) {
    shard.fromCoordinator(link, decision);
    push(0);
    push(1, 1);
  }
  expect([whole, sliced].map(({ shard }) => shard.table.state)).toEqual(['REDUCED', 'DECIDING']);
  let turns = 0;
  while (sliced.turn()) turns++;
  expect(turns).toBe(CHUNKS - 1);
  expect(sliced.out).toEqual(whole.out);
  for (const { shard, link } of [whole, sliced]) shard.fromCoordinator(link, commit);
  expect(sliced.out).toEqual(whole.out);
  expect([sliced.shard.round, sliced.shard.table.state, sliced.bytesInUse()]).toEqual([1, whole.shard.table.state, whole.bytesInUse()]);
});

test('whatever the coordinator says next finds the round applied', () => {
  const says: (Message | ((shard: Shard) => void))[] = [
    commit,
    { type: 'view', view: 2, term: 1, round: 0, members },
    { type: 'tell-again' },
    { ...decision, scale: 7 },
    { type: 'include', round: 0, replicas: [0] },
    (shard) => shard.tellAgain(),
    (shard) => expect(shard.standing()).toMatchObject({ isReduced: true, decision: { scale: 0.5 } }),
  ];
  for (const say of says) {
    const [whole, sliced] = [decidingShard(false), decidingShard(true)];
    for (const { shard, link } of [whole, sliced]) {
      shard.fromCoordinator(link, decision);
      if (typeof say === 'function') say(shard);
      else shard.fromCoordinator(link, say);
    }
    expect(sliced.out, JSON.stringify(say)).toEqual(whole.out);
    while (sliced.turn());
    expect(sliced.out).toEqual(whole.out);
  }
});

test('the best generation is there to be pulled until there is a better one, and is let go at the end', () => {
  const { shard, link, out, push, bytesInUse } = decidingShard(false);
  const round = (k: number, best: boolean): void => {
    for (let chunk = 0; k > 0 && chunk < CHUNKS; chunk++) push(chunk, k);
    shard.fromCoordinator(link, { ...decision, round: k });
    shard.fromCoordinator(link, best ? { ...commit, round: k, best } : { ...commit, round: k });
  };
  const pulled = (generation: number): unknown[] => {
    out.length = 0;
    shard.onPull(link, generation, 2);
    return out.slice();
  };
  round(0, true);
  const first = pulled(1);
  expect(first).toHaveLength(1);
  round(1, false);
  round(2, false);
  const held = bytesInUse();
  expect([pulled(1), pulled(2)]).toEqual([first, []]);
  round(3, true);
  expect([pulled(1), pulled(4).length]).toEqual([[], 1]);
  expect(bytesInUse()).toBeLessThan(held);
  shard.end();
  expect(bytesInUse()).toBe(0);
});

test('the end lets go of a round that is half applied', () => {
  const sliced = decidingShard(true);
  sliced.shard.fromCoordinator(sliced.link, decision);
  sliced.turn();
  sliced.shard.end();
  const said = sliced.out.length;
  while (sliced.turn());
  expect([sliced.out.length, sliced.bytesInUse()]).toEqual([said, 0]);
});

test('a step that asks for the rest goes on as it was, and a step that cancels is the last', () => {
  const work: ShardWork = new ShardWork();
  const done: string[] = [];
  function* steps(): Generator<void> {
    work.finish();
    done.push('first');
    yield;
    done.push('second');
    work.cancel();
    yield;
    done.push('third');
  }
  work.begin(steps(), () => done.push('done'));
  expect([done, work.isUnderWay]).toEqual([['first', 'second'], false]);
  expect(() => work.begin(steps(), () => work.begin(steps(), () => undefined))).not.toThrow();
});
