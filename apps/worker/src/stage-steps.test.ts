/** Stages that are played, in threads of their own: the nodes of a step, in the bits of the tree, whoever is late, and all memory given back. */
import { Worker } from 'node:worker_threads';
import { createLayout, maximalNodes, split } from '@paceline/learning';
import type { ModelDescription } from '@paceline/spec';
import { afterEach, expect, it } from 'vitest';
import type { FromCompute } from './compute-protocol.js';
import { GradientMemory, GradientReader, rangesOf, type Vector } from './gradient-memory.js';
import { boundaryBytes, flowMemory } from './stage-flow.js';
import { StageNodes } from './stage-nodes.js';

const zeros = { className: 'Zeros', config: {} };
const PATHS = ['a', 'b', 'c', 'd'];
/** Two chunks of gradients and one of state; the variables of a stage do not lie side by side. */
const LAYOUT = createLayout({
  variables: [
    ...PATHS.map((path, i) => ({ path, shape: [10 + i, 450], section: 'trainable', initializer: zeros })),
    { path: 'e', shape: [40], section: 'state', initializer: zeros },
  ] as unknown as ModelDescription['variables'],
  parameterCount: 46 * 450,
  stateCount: 40,
});
const OWNERS: Readonly<Record<number, readonly (readonly string[])[]>> = {
  2: [
    ['a', 'e'],
    ['b', 'c', 'd'],
  ],
  4: [['a'], ['b', 'e'], ['c'], ['d']],
};
/** Each chunk in an arena of its own. */
const ONE_CHUNK = (1 << 20) + 3 * (16_384 * 4 + 64);

const threads: Worker[] = [];
afterEach(async () => {
  await Promise.all(threads.splice(0).map((thread) => thread.terminate()));
});

interface Played {
  readonly stages: number;
  readonly replicas: number;
  readonly arenaBytes?: number;
  readonly deadlineMs?: number;
  /** Examples of each replica. */
  readonly counts?: readonly number[];
}

function pipeline({ stages, replicas, arenaBytes, deadlineMs = 20_000, counts = Array.from({ length: replicas }, () => 3) }: Played) {
  const owners = OWNERS[stages]!;
  const memory = new GradientMemory(LAYOUT, 8, arenaBytes);
  const reader = new GradientReader(memory.memories, memory.parts);
  const plan = { widths: Array.from({ length: stages - 1 }, (_, i) => i + 2), rows: 3, evaluationRows: 3, deadlineMs };
  const flow = flowMemory(plan);
  const cells = new Int32Array(new SharedArrayBuffer(12));
  const started = owners.map((paths, stage) => {
    const workerData = {
      stage,
      stages,
      replicas,
      layout: LAYOUT,
      own: rangesOf(LAYOUT, paths),
      counts,
      cells,
      plan,
      memory: flow,
      lent: { memories: memory.memories, parts: memory.parts },
      delaysMs: [0, 0, stage],
    };
    const thread = new Worker(new URL('./stage-player.fixture.mjs', import.meta.url), { workerData, execArgv: [] });
    threads.push(thread);
    return thread;
  });
  const told: { name: string; values: Float32Array }[] = [];
  const contributions: [replica: number, examples: number, sums: readonly number[]][] = [];
  const failures: string[] = [];
  const nodes = new StageNodes({
    stages,
    replicas,
    memory,
    post: (stage, message) => started[stage]!.postMessage(message),
    contribution: ({ replica, examples, sums }) => contributions.push([replica, examples, sums]),
    node: (round, { lo, hi, vector }) => {
      told.push({ name: `${round} [${lo}, ${hi})`, values: valuesOf(reader, vector) });
      memory.free(vector);
    },
    evaluated: () => undefined,
    failed: (message) => failures.push(message),
  });
  const over = started.map((thread, stage) => {
    let wake: (mostKept: number) => void = () => undefined;
    let fail: (error: unknown) => void = () => undefined;
    thread.on('error', (error) => fail(error));
    thread.on('message', (message: FromCompute & { readonly mostKept?: number }) => {
      if (message.kind === 'failed') failures.push(message.code);
      nodes.takes(message, stage);
      if (message.kind === 'stepped' || message.kind === 'failed') wake(message.mostKept ?? -1);
    });
    return () =>
      new Promise<number>((resolve, reject) => {
        [wake, fail] = [resolve, reject];
      });
  });
  /** A step of all stages. @returns the most passes that each has kept at once */
  const step = async (round: number, own: readonly number[]): Promise<number[]> => {
    const ends = over.map((end) => end());
    nodes.step(round, own);
    return Promise.all(ends);
  };
  return { step, told, contributions, failures, memory, cells, nodes, started };
}

function valuesOf(reader: GradientReader, vector: Vector): Float32Array {
  const values = new Float32Array(LAYOUT.totalLength);
  for (const chunk of LAYOUT.chunks) {
    const { bytes } = reader.chunk(vector, undefined, chunk);
    values.set(new Float32Array(Uint8Array.from(bytes).buffer), chunk.offset);
  }
  return values;
}

/** What the stages of the fixture write for a replica; with the tensor and the gradient that come to each. */
function leaf(stages: number, replica: number, count: number): Float32Array {
  const values = new Float32Array(LAYOUT.totalLength);
  if (count === 0) return values;
  for (const [stage, paths] of OWNERS[stages]!.entries()) {
    const [came, back] = [replica + stage, replica + stages - stage];
    for (const { offset, length } of rangesOf(LAYOUT, paths))
      for (let i = offset; i < offset + length; i++) values[i] = Math.sin((i + 1) * (replica + 1)) * 10 ** (replica % 7) + came + back;
  }
  return values;
}

function sumOf(stages: number, lo: number, hi: number, counts: readonly number[]): Float32Array {
  if (hi - lo === 1) return leaf(stages, lo, counts[lo]!);
  const [left, right] = [sumOf(stages, lo, split(lo, hi), counts), sumOf(stages, split(lo, hi), hi, counts)];
  return left.map((value, i) => Math.fround(value + right[i]!));
}

it.each([
  { stages: 2, replicas: 5, own: [0, 1, 2, 3, 4] },
  { stages: 4, replicas: 8, own: [1, 2, 3, 4, 5, 6] },
  { stages: 4, replicas: 3, own: [0, 1, 2], arenaBytes: ONE_CHUNK },
  { stages: 4, replicas: 2, own: [1] },
  { stages: 2, replicas: 4, own: [0, 1, 2, 3], counts: [3, 0, 2, 0] },
])('$stages stages, replicas $own of $replicas', async ({ own, ...played }) => {
  const { stages, replicas, counts = Array.from({ length: replicas }, () => 3) } = played as Played;
  const { step, told, contributions, failures, memory } = pipeline(played);
  for (const round of [4, 5]) {
    const kept = await step(round, own);
    // One forward, one backward: a stage keeps no more passes than there are stages behind it, and the one in progress.
    for (const [stage, most] of kept.entries()) expect(most).toBeLessThanOrEqual(Math.min(own.length, stages - stage));
    const nodes = maximalNodes(replicas, new Set(own));
    expect(told.map(({ name }) => name)).toEqual(nodes.map(({ lo, hi }) => `${round} [${lo}, ${hi})`));
    for (const [i, { lo, hi }] of nodes.entries()) expect(told[i]!.values).toEqual(sumOf(stages, lo, hi, counts));
    const sums = (replica: number, count: number): number[] => (count === 0 ? [0, 0] : [replica + (stages - 1) / 2, count]);
    expect(contributions).toEqual(own.map((replica) => [replica, counts[replica], sums(replica, counts[replica]!)]));
    told.splice(0);
    contributions.splice(0);
  }
  expect([failures, memory.bytesInUse]).toEqual([[], 0]);
});

it('a round that is committed elsewhere: all stages leave out the same micro-batches, and the next round is whole', async () => {
  const { step, told, failures, memory, cells } = pipeline({ stages: 4, replicas: 8 });
  const all = [0, 1, 2, 3, 4, 5, 6, 7];
  for (let round = 1; round < 12; round++) {
    const moved = Atomics.load(cells, 1);
    const stepped = step(round, all);
    // Committed once some of its micro-batches have gone on, a few more in each round.
    while (Atomics.load(cells, 1) < moved + 4 * round) await new Promise((resolve) => setImmediate(resolve));
    Atomics.store(cells, 0, round + 1);
    await stepped;
    expect(memory.bytesInUse).toBe(0);
  }
  told.splice(0);
  await step(20, all);
  expect(told.map(({ name }) => name)).toEqual(['20 [0, 8)']);
  expect(told[0]!.values).toEqual(
    sumOf(
      4,
      0,
      8,
      Array.from({ length: 8 }, () => 3),
    ),
  );
  expect(failures).toEqual([]);
});

it('a stage that does not come is named after the deadline', async () => {
  const { started, nodes, failures } = pipeline({ stages: 2, replicas: 2, deadlineMs: 300 });
  await started[1]!.terminate();
  const failed = new Promise((resolve) => started[0]!.on('message', resolve));
  nodes.step(0, [0, 1]);
  expect(await failed).toMatchObject({
    message: expect.stringMatching(/^it has waited 300 ms for the gradient of micro-batch 0 from stage 1: /),
  });
  expect(failures).toEqual(['STAGE_STALLED']);
});

it('as long as something moves, a stage waits for another one, however long that takes', async () => {
  const { started, nodes, failures, cells } = pipeline({ stages: 2, replicas: 2, deadlineMs: 300 });
  await started[1]!.terminate();
  const failed = new Promise((resolve) => started[0]!.on('message', resolve));
  nodes.step(0, [0, 1]);
  const startMs = performance.now();
  for (let moves = 0; moves < 20; moves++) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    Atomics.add(cells, 1, 1);
  }
  expect(failures).toEqual([]);
  await failed;
  expect(performance.now() - startMs).toBeGreaterThan(1_300);
  expect(failures).toEqual(['STAGE_STALLED']);
});

it('a boundary has room for two parts of an evaluation, or for one where the tensor is wide', () => {
  const bytes = (width: number): number => boundaryBytes({ widths: [width], rows: 4, evaluationRows: 500 })[0]!;
  expect(bytes(10)).toBe(2 * 500 * 10 * 4);
  expect(bytes(512 * 768)).toBe(500 * 512 * 768 * 4);
  expect(boundaryBytes({ widths: [10, 10], rows: 400, evaluationRows: 500 })).toEqual([2 * 3 * 400 * 10 * 4, 2 * 2 * 400 * 10 * 4]);
});

it('stages that have written into different vectors are a failure, and nothing is told', () => {
  const { nodes, failures, told } = pipeline({ stages: 2, replicas: 2 });
  const node = { kind: 'node', round: 3, lo: 0, hi: 2, contribution: undefined } as const;
  nodes.takes({ ...node, vector: [64] }, 0);
  nodes.takes({ ...node, vector: [128] }, 1);
  expect(failures).toEqual([
    'the stages of the model have sent different results: node [0, 2) of round 3 at 64; node [0, 2) of round 3 at 128',
  ]);
  expect(told).toEqual([]);
});
