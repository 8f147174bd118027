import { ARENA_MAXIMUM_BYTES } from '@paceline/kernels';
import type { AppliedSlots } from '@paceline/hosting';
import { createLayout } from '@paceline/learning';
import { parseRunSpec } from '@paceline/spec';
import { expect, test } from 'vitest';
import type { ToCompute } from './compute-protocol.js';
import { ExecutionCells, executionCells } from './execution-cells.js';
import { executionMemory, Executions } from './executions.js';
import { GradientMemory, type PlacedNode, gradientVectorsOf } from './gradient-memory.js';

const UNITS = 1000;
const variable = { path: 'dense/kernel', shape: [UNITS], section: 'trainable', initializer: { className: 'Zeros', config: {} } } as const;
const layout = createLayout({ variables: [variable], parameterCount: UNITS, stateCount: 0 });
const THREADS = 2;

function seat() {
  const parsed = parseRunSpec({ replicas: 3, globalBatch: 6, optimizer: { name: 'adam' }, strategy: { kind: 'tpu', threads: THREADS } });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  const memory = new GradientMemory(layout, gradientVectorsOf(parsed.spec, THREADS), ARENA_MAXIMUM_BYTES);
  const execution = executionMemory(parsed.spec, layout, memory, THREADS);
  const posted: [thread: number, message: ToCompute][] = [];
  const nodes: [round: number, node: PlacedNode][] = [];
  const slotsOfShard = [Float32Array.from({ length: UNITS }, (_, i) => i), new Float32Array(UNITS).fill(5)];
  const shard = {
    reads: 0,
    takes: 0,
    takeSlots() {
      this.takes++;
    },
    applied: undefined as AppliedSlots | undefined,
    readSlots(each: (slot: number, from: number, values: Float32Array) => void) {
      this.reads++;
      for (const [slot, values] of slotsOfShard.entries()) each(slot, 0, values);
    },
  };
  const held = { store: shard as typeof shard | undefined };
  const executions = new Executions({
    threads: THREADS,
    replicas: 3,
    memory,
    execution,
    layout,
    store: () => held.store,
    post: (thread, message) => void posted.push([thread, message]),
    node: (round, node) => void nodes.push([round, node]),
  });
  const slot = (index: number): Float32Array => memory.onlyArena.f32(execution.slots[index]!, UNITS);
  return { executions, posted, nodes, shard, held, slot, slotsOfShard, memory };
}

test('threads begin with the slots of the shard, which takes theirs after each round; after one that was not finite they begin with those again', () => {
  const { executions, posted, nodes, shard, slot, slotsOfShard, memory } = seat();
  executions.step(4);
  const [first] = posted[0]![1].kind === 'step' ? posted[0]![1].lent! : [];
  expect(posted).toEqual([0, 1].map((thread) => [thread, { kind: 'step', round: 4, replicas: [], free: [], lent: [first] }]));
  expect([...slot(0)]).toEqual([...slotsOfShard[0]!]);

  slot(0).fill(7); // the threads train
  executions.executed(4, true);
  expect(nodes).toEqual([[4, { lo: 0, hi: 3, vector: first }]]);
  const taken = new Float32Array(3);
  shard.applied!.copySlot(0, UNITS - 3, taken);
  expect([...taken]).toEqual([7, 7, 7]);
  memory.free(first!);

  executions.step(5);
  expect([shard.reads, shard.takes], 'taken before they move on').toEqual([1, 1]);
  slot(0).fill(NaN);
  executions.executed(5, false);
  executions.step(6);
  expect(shard.reads).toBe(2);
  expect([...slot(0)]).toEqual([...slotsOfShard[0]!]);
  executions.step(6);
  expect(shard.reads, 'a round once more').toBe(3);
});

test('a worker whose shard is gone does not begin', () => {
  const { executions, held, posted } = seat();
  held.store = undefined;
  expect(() => executions.step(0)).toThrow(/shard of the run is not in this process/);
  expect(posted).toEqual([]);
});

test('a thread that waits for others which do not move says so, and one whose others are there goes on', () => {
  const memory = executionCells(3, THREADS, 0);
  const cells = (thread: number) =>
    new ExecutionCells(memory, { replicas: 3, threads: THREADS, thread, deadlineMs: 60, progress: () => 9 });
  const [early, late] = [cells(0), cells(1)];
  expect(() => early.meet()).toThrow(
    expect.objectContaining({ code: 'EXECUTION_STALLED', message: expect.stringMatching(/60 ms .*stepDeadlineMs/) as string }) as Error,
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
