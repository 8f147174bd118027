/**
 * The promise of equal bits, on real processes: whatever the fleet looks like and whatever happens to it, the weights are
 * those of the independent reference in test/numerics/reference.ts.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { DataPlane, pace, type RunView } from '@paceline/testkit';
import { RESIDUAL_LOST, residualLossSchema } from '@paceline/protocol';
import { startWorkersOf, type CodecSpec, type RunSpecInput } from '@paceline/spec';
import { CODEC_OPTIONS, KEEPS_NOTHING, layer, SMALL } from './codec-cases.js';
import { reference } from './references.js';

const ROUNDS = 12;
const base: RunSpecInput = { model: 'mlp', globalBatch: 60, replicas: 4, length: { rounds: ROUNDS }, seed: 7 };

/** A table of 24,000 elements, of which each server has rows. */
const pixelsAsIds: RunSpecInput['model'] = {
  topology: {
    class_name: 'Sequential',
    config: {
      layers: [
        layer('Embedding', { batch_input_shape: [null, 784], input_dim: 3000, output_dim: 8 }),
        layer('GlobalAveragePooling1D', {}),
        layer('Dense', { units: 10 }),
      ],
    },
  },
};

const withServers = (input: RunSpecInput, servers: number, accumulate = 1): RunSpecInput => ({
  ...input,
  strategy: { kind: 'parameter-server', mode: 'sync', servers, accumulate },
});

/** Rounds of four local steps on 48 rows, whose replicas and steps have unequal parts. */
const local = (servers: number, more: Partial<RunSpecInput> = {}, fields: object = {}): RunSpecInput => ({
  model: SMALL,
  globalBatch: 12,
  replicas: 5,
  length: { rounds: 7 },
  seed: 7,
  strategy: { kind: 'local-update', localSteps: 4, servers, ...fields },
  ...more,
});

/** Every example of the run exactly once in the ledger: ranges without gap or overlap, counted from (round, replica) rows. */
function expectLedger(run: RunView, rounds: number, examples: number): void {
  const ranges = run.entries.filter((e) => e.kind === 'ledger');
  let next = 0;
  for (const range of ranges) {
    expect(range.fromRound).toBe(next);
    next = range.toRound + 1;
  }
  expect(next).toBe(rounds);
  expect(ranges.reduce((sum, range) => sum + range.examples, 0)).toBe(examples);
}

/**
 * Slows a run down, so that a fault finds it while it still trains. Until its first round begins the servers alone are slow: a worker that loads its engine is
 * not held up.
 */
async function slowed(plane: DataPlane, run: RunView, share = 0.1, workers = plane.workers) {
  const seats = startWorkersOf(run.spec.strategy) ?? 1;
  const servers = pace(() => plane.servers.map(({ child }) => child.pid!), 0.03);
  try {
    await plane.until(run, `${seats} workers`, 60_000, () => (run.state?.seats.length ?? 0) >= seats);
    return pace(() => workers.map(({ child }) => child.pid!), share);
  } finally {
    servers.end();
  }
}

/** `npm run soak` has all of the cases below, the suite those that have the most in them. */
const ALL = process.env['PACELINE_SOAK'] === '1';
/** `npm run soak` kills a worker under each. */
const KILLED_UNDER = ALL ? KEEPS_NOTHING : KEEPS_NOTHING.filter((kind) => kind === 'top-k');
/** Codecs that keep something of each replica: one vector, two, and one with what its power iteration goes on from. */
const KEEP = [
  ['error feedback', { kind: 'top-k', density: 0.02, errorFeedback: true }],
  ['ef21', { kind: 'top-k', density: 0.02, errorFeedback: true, feedbackRule: 'ef21' }],
  ['dgc', { kind: 'dgc', density: 0.01, errorFeedback: false }],
  ['power-sgd', { kind: 'power-sgd', rank: 2, errorFeedback: false }],
] as [string, CodecSpec][];

/** A run of which a worker, or all of them, was killed in the middle: it is gone from the fleet. */
async function killedIn(plane: DataPlane, input: RunSpecInput, all = false): Promise<RunView> {
  const run = await plane.train({ ...input, length: { rounds: MOST_ROUNDS } });
  const slow = await slowed(plane, run, 0.03);
  try {
    await plane.until(run, 'round 3', 60_000, () => (run.state?.round ?? 0) >= 3);
    await Promise.all((all ? plane.workers.splice(0) : plane.workers.splice(1, 1)).map((victim) => victim.kill('SIGKILL')));
  } finally {
    slow.end();
  }
  expect(run.state!.round, 'it was killed in the middle').toBeLessThan(MOST_ROUNDS);
  return run;
}
/** Enough for the loss of a worker to be in the middle of them. */
const MOST_ROUNDS = 20;

describe('over unix', () => {
  let plane: DataPlane;
  beforeAll(async () => void (plane = await DataPlane.start({ servers: 2, workers: 1, transport: 'unix' })));
  afterAll(() => plane?.stop());

  test('1 worker, 1 and 2 servers', async () => {
    for (const servers of [1, 2]) {
      const run = await plane.train(withServers(base, servers));
      const result = await plane.finished(run);
      expect(result.weightsSha256).toBe(await reference(base));
      expectLedger(run, ROUNDS, ROUNDS * 60);
      const rounds = await plane.train(local(servers));
      expect((await plane.finished(rounds)).weightsSha256).toBe(await reference(local(servers)));
      expectLedger(rounds, 7, 7 * 48);
    }
  });

  test.runIf(ALL).each(KEEP)('1 worker; what %s has kept of replicas comes from the checkpoint', async (_, codec) => {
    const input: RunSpecInput = { ...base, model: SMALL, codec, optimizer: { name: 'sgd', learningRate: 0.1 } };
    const run = await plane.train(withServers({ ...input, checkpoint: { everyRounds: 5, everySeconds: 0 } }, 2));
    const { weightsSha256 } = await plane.finished(run);
    if (codec.kind === 'top-k') expect(weightsSha256).toBe(await reference(input));
    await plane.trainAgain(run, { attempt: 1, round: 5 });
    expect((await plane.finished(run)).weightsSha256).toBe(weightsSha256);
    expect(run.entries.filter((entry) => entry.kind === 'event' && entry.type === RESIDUAL_LOST)).toEqual([]);
  });

  test('2 workers; dropout and batch normalisation; accumulation; augmentation', async () => {
    await plane.addWorker();
    const augmented: RunSpecInput = { ...base, augmentation: { shiftPixels: 2, rotateDegrees: 15, zoom: 0.1, mirror: true } };
    const accumulated = ALL ? [withServers(base, 1, 3)] : [];
    for (const input of [withServers({ ...base, model: 'mlp-dropout' }, 2), ...accumulated, withServers(augmented, 1, 3)]) {
      const result = await plane.finished(await plane.train(input));
      expect(result.weightsSha256).toBe(await reference(input));
    }
  });

  test('2 workers, 2 servers; a table that is exchanged by rows', async () => {
    const momentum = { name: 'momentum', learningRate: 0.05 } as const;
    for (const optimizer of ALL ? [momentum, { name: 'sgd', learningRate: 0.1 } as const] : [momentum]) {
      const input = withServers({ ...base, model: pixelsAsIds, optimizer, globalBatch: 20, length: { rounds: 6 } }, 2);
      const run = await plane.train({ ...input, embeddings: { kind: 'sparse' } });
      expect((await plane.finished(run)).weightsSha256).toBe(await reference(input));
      expectLedger(run, 6, 6 * 20);
    }
  });

  test.runIf(ALL)('3 workers; R = 3 and 5; another seed differs', async () => {
    await plane.addWorker();
    expect(await reference({ ...base, replicas: 3, seed: 8 })).not.toBe(await reference({ ...base, replicas: 3 }));
    for (const input of [...(ALL ? [{ ...base, replicas: 3, seed: 8 }] : []), { ...base, model: 'mlp-dropout' as const, replicas: 5 }]) {
      const result = await plane.finished(await plane.train(withServers(input, 2)));
      expect(result.weightsSha256).toBe(await reference(input));
    }
  });

  test('3 workers; local steps with accumulation, kept slots with an encoded difference, and a worker that dies', async () => {
    while (plane.workers.length < 3) await plane.addWorker();
    const kept = { innerState: 'keep', outerOptimizer: 'nesterov', startWorkers: 3 };
    const sent = new Map<unknown, { readonly toServersBytes: number; readonly toWorkersBytes: number }>();
    const more = [
      local(2, { codec: { kind: 'top-k', density: 0.02, values: 'int2', errorFeedback: true } }, kept),
      local(2, {}, { ...kept, outerOptimizer: 'elastic', movingRate: 0.15 }),
      local(2, { codec: { kind: 'int8' } }, { outerOptimizer: 'elastic', startWorkers: 3 }),
    ];
    for (const input of [
      ...(ALL ? [local(2, { optimizer: { name: 'sgd', learningRate: 0.1 } }, { accumulate: 2, syncSteps: 3 })] : []),
      local(2, { optimizer: { name: 'adam', learningRate: 0.002 } }, kept),
      local(2, { optimizer: { name: 'adam', learningRate: 0.002 } }, { ...kept, fragments: 3 }),
      ...(ALL ? more : []),
    ]) {
      const run = await plane.train(input);
      expect((await plane.finished(run)).weightsSha256).toBe(await reference(input));
      // With syncSteps there are rounds of 12 examples before those of 48.
      expectLedger(run, 7, 'syncSteps' in input.strategy! ? 3 * 12 + 4 * 48 : 7 * 48);
      if (input.optimizer?.name === 'adam') sent.set('fragments' in input.strategy!, run.state!.traffic!);
    }
    // Of three fragments a round sends one, and state: 0.35 of the bytes in seven rounds; workers get the first generation whole, and 0.43. Heartbeats come on top.
    const [part, whole] = [sent.get(true)!, sent.get(false)!];
    expect(part.toServersBytes / whole.toServersBytes).toBeLessThan(0.5);
    expect(part.toWorkersBytes / whole.toWorkersBytes).toBeLessThan(0.6);
    if (!ALL) return;
    // Slots that begin anew in each round belong to nobody: a worker may die.
    const long = local(2, { length: { rounds: 40 } }, { startWorkers: 3 });
    const run = await plane.train(long);
    const slow = await slowed(plane, run);
    try {
      await plane.until(run, 'round 5', 60_000, () => (run.state?.round ?? 0) >= 5);
      await plane.workers[1]!.kill('SIGKILL');
    } finally {
      slow.end();
    }
    expect(run.state!.round, 'it was killed in the middle').toBeLessThan(40);
    expect((await plane.finished(run)).weightsSha256).toBe(await reference(long));
    plane.workers.splice(1, 1);
  });

  test.runIf(ALL)('3 workers; encoded gradients with error feedback, and rounded parameters', async () => {
    while (plane.workers.length < 3) await plane.addWorker();
    const codecs: NonNullable<RunSpecInput['codec']>[] = [
      { kind: 'int4', parameters: 'int8' },
      { kind: 'top-k', density: 0.05, values: 'int2', errorFeedback: true },
    ];
    const more: typeof codecs = [
      { kind: 'random-k', density: 0.1, values: 'int4' },
      { kind: 'none', parameters: 'bf16' },
      { kind: 'int8', parameters: 'delta-int4' },
      { kind: 'none', parameters: 'delta-top-k', parameterDensity: 0.1 },
      { kind: 'top-k', density: 0.02, errorFeedback: true },
    ];
    if (ALL) codecs.push(...more);
    for (const codec of codecs) {
      const input: RunSpecInput = { ...base, model: SMALL, codec, length: { rounds: 6 } };
      // With error feedback the bits need replicas that stay where they are.
      const strategy = { kind: 'parameter-server', mode: 'sync', servers: 2, startWorkers: 3 } as const;
      const run = await plane.train({ ...input, strategy });
      const result = await plane.finished(run);
      expect([codec, result.weightsSha256]).toEqual([codec, await reference(input)]);
      expect(run.entries.filter((entry) => entry.kind === 'event' && entry.type === RESIDUAL_LOST)).toEqual([]);
    }
  });

  test.each(KILLED_UNDER)('encoded gradients: %s, and a worker that is SIGKILLed', async (kind) => {
    const input: RunSpecInput = { ...base, model: SMALL, codec: { kind, ...CODEC_OPTIONS[kind] }, length: { rounds: MOST_ROUNDS } };
    const expected = await reference(input);
    while (plane.workers.length < 3) await plane.addWorker();
    const servers = 1 + (KEEPS_NOTHING.indexOf(kind) % 2);
    const strategy = { kind: 'parameter-server', mode: 'sync', servers, startWorkers: 3 } as const;
    expect((await plane.finished(await killedIn(plane, { ...input, strategy }))).weightsSha256).toBe(expected);
  });

  test.runIf(ALL)('parameters as differences: a worker that is SIGKILLed, and workers that join when the run has got far', async () => {
    const strategy = { kind: 'parameter-server', mode: 'sync', servers: 2 } as const;
    const inputOf = (codec: NonNullable<RunSpecInput['codec']>): RunSpecInput => ({
      ...base,
      model: SMALL,
      codec,
      length: { rounds: MOST_ROUNDS },
    });
    const killed = inputOf({ kind: 'int8', parameters: 'delta-int4' });
    const joined = inputOf({ kind: 'none', parameters: 'delta-top-k', parameterDensity: 0.1 });
    const expected = [await reference(killed), await reference(joined)];
    while (plane.workers.length < 3) await plane.addWorker();
    const first = await killedIn(plane, { ...killed, strategy: { ...strategy, startWorkers: 3 } });
    const firstResult = await plane.finished(first);
    const second = await killedIn(plane, { ...joined, strategy: { ...strategy, startWorkers: 2 } }, true);
    // What these get first is what the others had, and not the parameters that the servers keep.
    while (plane.workers.length < 2) await plane.addWorker();
    const secondResult = await plane.finished(second);
    expect([firstResult.weightsSha256, secondResult.weightsSha256]).toEqual(expected);
    for (const { entries } of [first, second])
      expect(entries.filter((entry) => entry.kind === 'event' && entry.type === RESIDUAL_LOST)).toEqual([]);
  });

  test.runIf(ALL)('parameters as differences, from a checkpoint on: the run says that its bits are others', async () => {
    while (plane.workers.length < 2) await plane.addWorker();
    const codec = { kind: 'none', parameters: 'delta-top-k', parameterDensity: 0.1 } as const;
    const input: RunSpecInput = { ...base, model: SMALL, codec };
    const run = await plane.train(withServers({ ...input, checkpoint: { everyRounds: 8, everySeconds: 0 } }, 2));
    const expected = await reference(input);
    expect((await plane.finished(run)).weightsSha256).toBe(expected);
    await plane.trainAgain(run, { attempt: 1, round: 8 });
    expect((await plane.finished(run)).weightsSha256).not.toBe(expected);
    const losses = run.entries.flatMap((entry) => (entry.kind === 'event' && entry.type === RESIDUAL_LOST ? [entry.data] : []));
    expect(losses).toEqual([{ cause: 'checkpoint', fromRound: 8, replicas: 4 }]);
  });

  test.runIf(ALL)('workers that join and leave: what error feedback has kept follows the replicas', async () => {
    while (plane.workers.length < 2) await plane.addWorker();
    const codec = { kind: 'top-k', density: 0.02, errorFeedback: true } as const;
    const input: RunSpecInput = { ...base, model: SMALL, codec, length: { rounds: 2 * MOST_ROUNDS } };
    const expected = await reference(input);
    const strategy = { kind: 'parameter-server', mode: 'sync', servers: 2, startWorkers: 2 } as const;
    const run = await plane.train({ ...input, strategy });
    // The one that joins is not held up.
    const slow = await slowed(plane, run, 0.02, [...plane.workers]);
    const seats = (): number => run.state?.seats.length ?? 0;
    try {
      await plane.until(run, 'round 3', 60_000, () => (run.state?.round ?? 0) >= 3);
      const had = seats();
      await plane.addWorker();
      await plane.until(run, 'another worker', 60_000, () => seats() > had);
    } finally {
      slow.end();
    }
    // It has three seconds for the rest of its round, and for what it hands on; the others keep the run from its end meanwhile.
    const [leaver, ...staying] = plane.workers;
    const longer = pace(() => staying.map(({ child }) => child.pid!), 0.05);
    try {
      await leaver!.kill('SIGTERM');
    } finally {
      longer.end();
    }
    plane.workers.shift();
    expect((await plane.finished(run)).weightsSha256).toBe(expected);
    const events = run.entries.flatMap((entry) => (entry.kind === 'event' ? [entry.type] : []));
    expect(events).toEqual(expect.arrayContaining(['worker.left', 'view.changed']));
    expect(events).not.toContain(RESIDUAL_LOST);
  });

  test.runIf(ALL)('a replica whose worker is killed loses its residual: the run says from which round on', async () => {
    while (plane.workers.length < 3) await plane.addWorker();
    const codec = { kind: 'top-k', density: 0.02, errorFeedback: true } as const;
    const input: RunSpecInput = { ...base, model: SMALL, codec, length: { rounds: MOST_ROUNDS } };
    const strategy = { kind: 'parameter-server', mode: 'sync', servers: 1, startWorkers: 3 } as const;
    const run = await killedIn(plane, { ...input, strategy });
    expect((await plane.finished(run)).weightsSha256).not.toBe(await reference(input));
    const losses = run.entries.flatMap((entry) =>
      entry.kind === 'event' && entry.type === RESIDUAL_LOST ? [residualLossSchema.parse(entry.data)] : [],
    );
    expect(losses[0]).toMatchObject({ cause: 'moved' });
    expect(losses[0]!.fromRound).toBeGreaterThan(0);
  });
});

/** The newest checkpoint that the run has told of. */
const checkpointOf = ({ entries }: RunView): number =>
  Math.max(
    ...entries.flatMap((entry) => (entry.kind === 'event' && entry.type === 'checkpoint.written' ? [Number(entry.data['round'])] : [])),
  );

describe('over tcp', () => {
  let plane: DataPlane;
  beforeAll(async () => void (plane = await DataPlane.start({ servers: 2, workers: 2, transport: 'tcp' })));
  afterAll(() => plane?.stop());

  test('2 workers, 2 servers; dropout and batch normalisation', async () => {
    const input = { ...base, model: 'mlp-dropout' as const };
    const result = await plane.finished(await plane.train(withServers(input, 2)));
    expect(result.weightsSha256).toBe(await reference(input));
  });

  test.runIf(ALL)('ef21: a worker that is SIGKILLed ends the attempt, and the next one has the bits of an undisturbed run', async () => {
    const codec = { kind: 'top-k', density: 0.02, errorFeedback: true, feedbackRule: 'ef21' } as const;
    const optimizer = { name: 'momentum', learningRate: 0.05, momentum: 0.9 } as const;
    const input: RunSpecInput = { ...base, model: SMALL, codec, optimizer, length: { rounds: MOST_ROUNDS } };
    const expected = await reference(input);
    while (plane.workers.length < 2) await plane.addWorker();
    const strategy = { kind: 'parameter-server', mode: 'sync', servers: 2, startWorkers: 2 } as const;
    const run = await plane.train({ ...input, strategy, checkpoint: { everyRounds: 5, everySeconds: 0 } });
    const slow = await slowed(plane, run, 0.05);
    try {
      await plane.until(run, 'a checkpoint', 60_000, () => checkpointOf(run) >= 5);
      await plane.workers.splice(1, 1)[0]!.kill('SIGKILL');
      await plane.until(run, 'the end of the attempt', 60_000, () =>
        run.entries.some((entry) => entry.kind === 'event' && entry.type === 'run.failed'),
      );
    } finally {
      slow.end();
    }
    const failed = run.entries.findLast((entry) => entry.kind === 'event' && entry.type === 'run.failed');
    expect(failed).toMatchObject({ data: { cause: 'ESTIMATE_LOST' }, message: /does not have its estimate \(EF21\)/ });
    await plane.trainAgain(run, { attempt: 1, round: checkpointOf(run) });
    expect((await plane.finished(run)).weightsSha256).toBe(expected);
    expect(run.entries.filter((entry) => entry.kind === 'event' && entry.type === RESIDUAL_LOST)).toEqual([]);
    await plane.addWorker();
  });

  test.runIf(ALL)('all workers gone: the run waits, says for what, and goes on with a new one', async () => {
    const long: RunSpecInput = { ...base, length: { rounds: 60 } };
    const run = await plane.train(withServers(long, 1));
    const slow = await slowed(plane, run);
    try {
      await plane.until(run, 'round 5', 60_000, () => (run.state?.round ?? 0) >= 5);
      await Promise.all(plane.workers.map((worker) => worker.kill('SIGKILL')));
    } finally {
      slow.end();
    }
    expect(run.state!.round, 'they were killed in the middle').toBeLessThan(60);
    await plane.until(run, 'the run to say what it waits for', 10_000, () => run.state?.waitingFor === 'a worker to take a step task');
    await plane.addWorker();
    const result = await plane.finished(run);
    expect(result.weightsSha256).toBe(await reference(long));
  });
});
