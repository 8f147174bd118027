import { expect, test } from 'vitest';
import { gradientVectors, localModelIssue, serverBytes, waitingCopies, workerBytes } from './worker-memory.js';

const sync = (replicas: number, backupReplicas = 0) => ({
  replicas,
  strategy: { kind: 'parameter-server' as const, mode: 'sync' as const, backupReplicas, servers: 1 },
});
const GIB = 2 ** 30;

test.each([
  [1, 1],
  [2, 2],
  [3, 2],
  [4, 3],
  [5, 3],
  [7, 3],
  [8, 4],
  [64, 7],
  [1024, 11],
])('a worker that has all of %i replicas holds %i gradients at once', (replicas, vectors) => {
  expect(gradientVectors(sync(replicas))).toBe(vectors);
});

test('a worker has two generations, the copies of its engine, and the gradients', () => {
  expect(workerBytes(sync(1), 2 ** 28)).toBe(5 * GIB);
  expect(workerBytes(sync(8), 2 ** 28)).toBe(8 * GIB);
  expect(workerBytes(sync(16, 1), 2 ** 28)).toBe(20 * GIB);
  expect(workerBytes({ replicas: 64, strategy: { mode: 'async', backupReplicas: 0 } }, 2 ** 28)).toBe(6 * GIB);
});

test('copies of what a codec keeps of replicas count, for a checkpoint and for other workers', () => {
  const kept = (kind: 'dgc' | 'power-sgd', elements: number, servers = 1) => {
    const spec = { replicas: 4, strategy: { kind: 'parameter-server', mode: 'sync', servers } as const };
    const bytes = workerBytes({ ...spec, codec: { kind, rank: 1, errorFeedback: false } }, elements);
    const held = 4 * elements * (4 + gradientVectors({ ...spec, codec: { kind, rank: 1, errorFeedback: false } }));
    return bytes - held;
  };
  expect(kept('power-sgd', 2 ** 20)).toBe(2 * 4 * 4 * 2 ** 20);
  expect(kept('dgc', 2 ** 20)).toBe(2 * 2 * 4 * 4 * 2 ** 20);
  expect(kept('dgc', 2 ** 24), 'as much as a large model has').toBe(2 * 2 * 4 * 4 * 2 ** 24);
  expect(kept('dgc', 2 ** 24, 2)).toBe(2 * 2 * 4 * 4 * 2 ** 24);
});

test('each compute thread has an engine, and nodes of its part of the replicas', () => {
  const hybrid = (replicas: number, threads?: number) => ({
    replicas,
    strategy: { kind: 'hybrid', mode: 'sync', servers: 1, threads } as const,
  });
  expect(gradientVectors(hybrid(16, 1))).toBe(gradientVectors(sync(16)));
  expect(workerBytes(hybrid(8, 2), 2 ** 28)).toBe((2 + 2 * 2 + 8) * GIB);
  expect(workerBytes(hybrid(32, 2), 2 ** 28)).toBe((2 + 2 * 2 + 2 * 9) * GIB);
  expect(workerBytes(hybrid(4, 4), 2 ** 28)).toBe((2 + 4 * 2 + 4) * GIB);
  // What is not said may be one for each replica.
  expect(workerBytes(hybrid(4), 2 ** 28)).toBe(workerBytes(hybrid(4, 4), 2 ** 28));
});

test('a server has two generations, the slots, and what the run keeps beside them', () => {
  expect(serverBytes(sync(1), 2, 2 ** 28)).toBe(4 * GIB);
  expect(
    serverBytes({ replicas: 8, strategy: { kind: 'parameter-server', mode: 'async', backupReplicas: 0, servers: 2 } }, 2, 2 ** 28),
  ).toBe(2.5 * GIB);
  expect(serverBytes(sync(8, 2), 0, 2 ** 28)).toBe(10 * GIB);
  expect(serverBytes({ ...sync(1), earlyStopping: { restoreBest: true } }, 0, 2 ** 28)).toBe(3 * GIB);
  // A field of another kind says nothing.
  const mirrored = { kind: 'multi-worker-mirrored', mode: 'sync', workers: 4, servers: 2 } as const;
  expect(serverBytes({ replicas: 1, strategy: mirrored }, 0, 2 ** 28)).toBe(GIB / 2);
  const served = { ...sync(1).strategy, workers: 4 };
  expect(serverBytes({ replicas: 1, strategy: served }, 0, 2 ** 28)).toBe(2 * GIB);
});

test('a server has room for the gradients that wait for each other', () => {
  expect(serverBytes(sync(8), 2, 2 ** 28)).toBe(4 * GIB + 8 * 2 ** 24); // 16 MiB of each replica
  expect(serverBytes(sync(64), 2, 2 ** 28)).toBe(4 * GIB + 2 ** 28); // the window of all replicas
  expect(serverBytes(sync(8), 2, 2 ** 20)).toBe((4 + 8) * 2 ** 22); // a shard that fits into it
  expect(serverBytes(sync(1024), 0, 2 ** 28)).toBe(2 * GIB + 1024 * 2 ** 20); // a chunk of each replica
  const compensated = { ...sync(1).strategy, mode: 'ssp', delayCompensation: 0.5 } as const;
  expect(serverBytes({ replicas: 8, strategy: compensated }, 0, 2 ** 28)).toBe((1 + 4) * GIB);
});

test('encoded gradients wait at a server as they came, sums of them as float32', () => {
  const int8 = { kind: 'int8', errorFeedback: false } as const;
  const topK = { kind: 'top-k', density: 0.01, errorFeedback: false } as const;
  expect(waitingCopies({ replicas: 8 })).toBe(8);
  expect(waitingCopies({ replicas: 2, codec: int8 })).toBeCloseTo(0.5125, 6);
  expect(waitingCopies({ replicas: 8, codec: int8 })).toBeCloseTo(2 + 4 * 0.25625, 6);
  expect(waitingCopies({ replicas: 64, codec: topK })).toBeCloseTo(16 + 32 * 0.0225, 6);
  // A chunk may come as float32, or all of them until a codec is picked.
  for (const kind of ['threshold', 'auto'] as const) expect(waitingCopies({ replicas: 8, codec: { kind, errorFeedback: false } })).toBe(8);
  expect(serverBytes({ ...sync(8), codec: topK }, 2, 2 ** 20)).toBeCloseTo((4 + 2 + 4 * 0.0225) * 2 ** 22, -1);
  // The sum of two that are short.
  expect(serverBytes({ ...sync(2), codec: topK }, 2, 2 ** 20)).toBe((4 + 1) * 2 ** 22);
});

test('a server has room for what is kept of a checkpoint while training goes on', () => {
  const written = (checkpoint: { everySeconds: number; everyRounds?: number }) => serverBytes({ ...sync(1), checkpoint }, 2, 2 ** 28) / GIB;
  expect(written({ everySeconds: 60 })).toBe(4 + 3);
  expect(written({ everySeconds: 0, everyRounds: 100 })).toBe(4 + 3);
  expect(written({ everySeconds: 0 })).toBe(4);
});

test.each([
  ['fp16', 1, 1.01],
  ['bf16', 1, 1.01],
  ['int8', 0.5, 0.52],
  // What workers have of two generations, and what leads there.
  ['delta-int4', 2.2, 2.3],
  ['delta-int2', 2.1, 2.2],
  ['delta-top-k', 2.2, 2.3],
  ['float32', 0, 0],
] as const)('a server keeps two generations that are encoded for the workers: %s', (parameters, least, most) => {
  const codec = { kind: 'none', errorFeedback: false, parameters } as const;
  const vectors = serverBytes({ ...sync(1), codec }, 0, 2 ** 28) / GIB - 2;
  expect(vectors).toBeGreaterThanOrEqual(least);
  expect(vectors).toBeLessThanOrEqual(most);
});

test('local steps need the weights of a replica and the slots of its optimizer, kept ones two sets for each replica', () => {
  const spec = (innerState: 'reset' | 'keep') =>
    ({
      replicas: 4,
      strategy: { kind: 'local-update', mode: 'sync', backupReplicas: 0, innerState },
      optimizer: { name: 'momentum', learningRate: 1, momentum: 0, nesterov: false },
    }) as const;
  expect(gradientVectors(spec('reset'))).toBe(3 + 1 + 1);
  expect(gradientVectors(spec('keep'))).toBe(3 + 1 + 2 * 4);
  const elastic = { ...spec('reset'), strategy: { ...spec('reset').strategy, outerOptimizer: 'elastic' } } as const;
  expect(gradientVectors(elastic)).toBe(3 + 1 + 2 * 4 + 1);
  // Of two threads each has two replicas in progress or done, the weights of one, its slots and its outer gradient.
  const threaded = (innerState: 'reset' | 'keep') =>
    ({ ...spec(innerState), strategy: { ...spec(innerState).strategy, threads: 2 } }) as const;
  expect(gradientVectors(threaded('reset'))).toBe(4 + 2 * 3);
  expect(gradientVectors(threaded('keep'))).toBe(4 + 2 * 2 + 2 * 4);
  expect(localModelIssue(spec('keep'), 5e7)).toBeUndefined();
  expect(localModelIssue(spec('keep'), 1e8)).toContain('fewer replicas, innerState reset');
  expect(localModelIssue({ ...spec('keep'), strategy: { mode: 'sync' } }, 1e9)).toBeUndefined();
  for (const elements of [1e8, 3e8])
    expect(localModelIssue(threaded('reset'), elements) === undefined, 'a thread has an arena of its own').toBe(
      localModelIssue(spec('reset'), elements) === undefined,
    );
});

test('with tpu a worker has the weights, the slots and what a round has come to, beside the gradients of its threads', () => {
  const optimizer = { name: 'momentum', learningRate: 1, momentum: 0, nesterov: false } as const;
  const mirrored = { replicas: 4, strategy: { kind: 'mirrored', mode: 'sync', threads: 2 }, optimizer } as const;
  const tpu = { ...mirrored, strategy: { ...mirrored.strategy, kind: 'tpu' } } as const;
  expect(gradientVectors(tpu)).toBe(gradientVectors(mirrored) + 3);
  expect(localModelIssue(tpu, 5e7)).toBeUndefined();
  expect(localModelIssue(tpu, 5e8)).toMatch(/train with tpu: .*fewer replicas/);
});
