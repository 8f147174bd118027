import { acquireRegion } from '@paceline/exchange';
import { ParameterStore } from '@paceline/hosting';
import { Arena, ARENA_MAXIMUM_BYTES } from '@paceline/kernels';
import { createLayout } from '@paceline/learning';
import { appliedByServers, parseRunSpec } from '@paceline/spec';
import { expect, test } from 'vitest';
import type { ToCompute } from './compute-protocol.js';
import { ExecutionCells, executionCells } from './execution-cells.js';
import { executionMemory, Executions } from './executions.js';
import { GradientMemory, gradientVectorsOf, type PlacedNode } from './gradient-memory.js';

const UNITS = 1000;
const variable = { path: 'dense/kernel', shape: [UNITS], section: 'trainable', initializer: { className: 'Zeros', config: {} } } as const;
const model = { variables: [variable], inputs: [], outputs: [], parameterCount: UNITS, stateCount: 0 };
const layout = createLayout(model);
const THREADS = 2;
const parsed = parseRunSpec({ replicas: 3, globalBatch: 6, optimizer: { name: 'adam' }, strategy: { kind: 'tpu', threads: THREADS } });
if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
const { spec } = parsed;

/** The shard of a run, as the worker's process has it. */
function shardOf() {
  const store = new ParameterStore({
    layout,
    owned: layout.chunks.map(({ index }) => index),
    model,
    seed: 1,
    gradientsInFlight: 1,
    examplesIn: () => 6,
    optimizer: appliedByServers(spec).optimizer,
    createArena: (options) => Arena.create(options),
  });
  for (const _ of store.begin()); // a few values
  /** What the shard does with the node of a round. */
  const apply = (round: number): void => {
    for (const [i, chunk] of store.chunks.entries()) {
      const values = acquireRegion(chunk.arena, chunk.length);
      store.update(chunk, round, store.initial[i]!, values, values);
    }
  };
  return { store, apply };
}

/** A seat whose threads are played: with each round that they end, every element of the first slot is one more. */
function seatOf(store: () => ParameterStore | undefined) {
  const memory = new GradientMemory(layout, gradientVectorsOf(spec, THREADS), ARENA_MAXIMUM_BYTES);
  const execution = executionMemory(spec, layout, memory, THREADS);
  const posted: [thread: number, round: number, lent: number][] = [];
  const nodes: [round: number, node: PlacedNode][] = [];
  const executions = new Executions({
    threads: THREADS,
    replicas: 3,
    memory,
    execution,
    layout,
    shard: () => store()?.byWorker,
    post: (thread, message: ToCompute) => {
      if (message.kind === 'step') posted.push([thread, message.round, message.lent![0]![0]!]);
    },
    node: (round, node) => {
      nodes.push([round, node]);
      memory.free(node.vector);
    },
  });
  const slot = (): Float32Array => memory.onlyArena.f32(execution.slots[0]!, UNITS);
  const train = (round: number, isFinite = true): void => {
    slot().set(slot().map((value) => value + 1));
    for (let thread = 0; thread < THREADS; thread++) executions.executed(round, isFinite);
  };
  return { executions, posted, nodes, slot, train, memory };
}

test('threads begin with the slots of the shard, which takes theirs before the next round', () => {
  const { store, apply } = shardOf();
  const { executions, posted, nodes, slot, train, memory } = seatOf(() => store);
  const idleBytes = memory.bytesInUse;
  for (let round = 4; round < 7; round++) {
    executions.step(round);
    train(round);
    apply(round);
  }
  expect(nodes.map(([round, { lo, hi }]) => [round, lo, hi])).toEqual([4, 5, 6].map((round) => [round, 0, 3]));
  expect(posted.map(([thread, round]) => [thread, round])).toEqual([4, 5, 6].flatMap((round) => [0, 1].map((thread) => [thread, round])));
  expect(memory.bytesInUse).toBe(idleBytes);
  expect(slot()[UNITS - 1]).toBe(3);
  const seen: number[] = [];
  store.byWorker.readSlots(7, (index, from, values) => seen.push(index, from, values[0]!));
  expect(seen).toEqual([0, 0, 3, 1, 0, 0]);
});

test('a seat that is lost when all of its round has come, but is not committed: the next one begins the round with the slots of before, and goes on with those of after', () => {
  const { store, apply } = shardOf();
  const first = seatOf(() => store);
  first.executions.step(0);
  first.train(0);
  apply(0);
  first.executions.step(1);
  first.train(1);
  apply(1);
  first.executions.stop();
  first.slot().fill(NaN); // its memory is not held
  const second = seatOf(() => store);
  second.executions.step(1);
  expect(second.slot()[0]).toBe(1);
  // Round 1 is committed meanwhile, and a checkpoint is taken.
  const snapshot = store.takeSnapshot(2, store.initial);
  second.executions.step(2);
  expect(second.posted.map(([, round]) => round)).toEqual([1, 1]);
  second.train(1);
  expect(second.nodes.map(([round]) => round)).toEqual([1]);
  expect(second.posted.map(([, round]) => round)).toEqual([1, 1, 2, 2]);
  expect(second.slot()[0]).toBe(2);
  second.train(2);
  apply(2);
  const seen: number[] = [];
  store.byWorker.readSlots(3, (_, __, values) => seen.push(values[0]!));
  expect(seen).toEqual([3, 0]);
  const [, slots] = [...snapshot.tensors()];
  expect(new Float32Array((slots!.read() as Uint8Array).slice().buffer)[0]).toBe(2);
});

test('a seat that ends before anything of its round is applied, and what its threads say afterwards', () => {
  const { store, apply } = shardOf();
  const first = seatOf(() => store);
  first.executions.step(0);
  first.train(0);
  first.executions.stop();
  first.slot().fill(NaN);
  apply(0); // its node was on its way
  const second = seatOf(() => store);
  second.executions.step(1);
  expect(second.slot()[0]).toBe(1);
  second.executions.stop();
  second.train(1);
  expect([second.nodes, first.nodes.length]).toEqual([[], 1]);
  expect(() => apply(1), 'nobody has ended round 1').toThrow(/round 1 .*not in this process/);
});

test('the same seat begins a round once more, and a checkpoint has the slots that it had left first', () => {
  const { store, apply } = shardOf();
  const { executions, slot, train } = seatOf(() => store);
  executions.step(0);
  train(0);
  apply(0);
  executions.step(0);
  expect(slot()[0]).toBe(0);
  slot().fill(99); // the threads are at work
  const [, slots] = [...store.takeSnapshot(1, store.initial).tensors()];
  expect(new Float32Array((slots!.read() as Uint8Array).slice().buffer)[0]).toBe(1);
});

test('after a round that was left out, whoever has judged it, threads begin with the slots of before', () => {
  const { store, apply } = shardOf();
  const { executions, slot, train } = seatOf(() => store);
  executions.step(0);
  train(0);
  apply(0);
  executions.step(1);
  train(1, false); // its node is left out
  executions.step(2);
  expect(slot()[0]).toBe(1);
  train(2); // and so is this one, though the threads have found nothing
  executions.step(3);
  expect(slot()[0]).toBe(1);
});

test('a worker whose shard is gone does not begin', () => {
  const { executions, posted } = seatOf(() => undefined);
  expect(() => executions.step(0)).toThrow(expect.objectContaining({ code: 'SHARD_GONE' }) as Error);
  expect(posted).toEqual([]);
});

test('a thread that waits for others which do not move says so, and one whose others are there goes on', () => {
  const memory = executionCells(3, THREADS, 0);
  const cells = (thread: number) =>
    new ExecutionCells(memory, { replicas: 3, threads: THREADS, thread, deadlineMs: 60, progress: () => 9 });
  const [early, late] = [cells(0), cells(1)];
  expect(() => early.meet()).toThrow(
    expect.objectContaining({
      code: 'EXECUTION_STALLED',
      message: expect.stringMatching(/60 ms .*stepDeadlineMs/) as string,
    }) as Error,
  );
  late.meet(); // the other one has arrived
  // Replicas 0 and 1 belong to different threads, so no node has both.
  early.place({ lo: 0, hi: 1, vector: [64] });
  late.place({ lo: 1, hi: 2, vector: [128] });
  late.place({ lo: 2, hi: 3, vector: [192] });
  expect(early.placed()).toEqual([
    { lo: 0, hi: 1, vector: [64] },
    { lo: 1, hi: 2, vector: [128] },
    { lo: 2, hi: 3, vector: [192] },
  ]);
  early.foundNotFinite();
  expect(late.isFinite).toBe(false);
  late.clearNotFinite();
  expect(early.isFinite).toBe(true);
});
