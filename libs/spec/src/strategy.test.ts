import fc from 'fast-check';
import { expect, test } from 'vitest';
import { appliedByServers, stepsOfRound, movingRate, roundExamples, roundsOf } from './local-update.js';
import { roundGrid } from './round-grid.js';
import { parseRunSpec, roundPlan } from './run-spec.js';
import { shardCount, shardHosts, shardHostsIn } from './shard-holders.js';
import { isThreaded, stagesOf, startWorkersOf, threadsOf } from './strategy.js';

const issuesOf = (strategy: object, more: object = {}): string[] => {
  const result = parseRunSpec({ strategy, ...more });
  return result.ok ? [] : result.issues.map(({ path, message }) => `${path}: ${message}`);
};

test('a kind names only the fields that mean something in it', () => {
  const mirrored = { kind: 'multi-worker-mirrored', workers: 3 };
  const result = parseRunSpec({ strategy: mirrored });
  if (!result.ok) throw new Error(JSON.stringify(result.issues));
  expect(result.spec.strategy).toEqual({ ...mirrored, mode: 'sync', accumulate: 1, standby: 0 });
  expect(issuesOf({ ...mirrored, servers: 2 })).toEqual([expect.stringMatching(/^strategy\.servers: /)]);
  expect(issuesOf({ kind: 'parameter-server', workers: 2 })).toEqual([expect.stringMatching(/^strategy\.workers: /)]);
});

test('workers that hold the shards train in mode sync alone, each with a replica, and a standby is on another worker', () => {
  const mirrored = (fields: object, more?: object) => issuesOf({ kind: 'multi-worker-mirrored', ...fields }, more);
  for (const mode of ['async', 'ssp']) expect(mirrored({ mode })).toEqual([expect.stringMatching(/^strategy\.mode: .*sync/)]);
  expect(mirrored({ workers: 5 })).toEqual([expect.stringMatching(/^strategy\.workers: must not exceed replicas \(4\)/)]);
  expect(mirrored({ workers: 1, standby: 1 })).toEqual([expect.stringMatching(/^strategy\.standby: needs two workers/)]);
  expect(mirrored({ workers: 2, standby: 1 }, { gradient: { clipGlobalNorm: 1 } })).toEqual([]);
});

test('ways of gradients that the library has are refused with the reason, whatever the kind', () => {
  for (const field of ['communication', 'topology'])
    for (const kind of ['parameter-server', 'multi-worker-mirrored', 'local-update', 'no-such-kind', undefined]) {
      const issues = issuesOf({ ...(kind && { kind }), [field]: 'ring' }).filter((issue) => issue.startsWith(`strategy.${field}: `));
      expect(issues, kind).toEqual([
        expect.stringMatching(/unknown field; runs have direct exchange only.*number of workers.*leave it out/),
      ]);
    }
});

test('groups of several workers, which the library has, are refused with the reason', () => {
  expect(issuesOf({ kind: 'hybrid', threads: 2, workersPerGroup: 2 })).toEqual([
    expect.stringMatching(
      /^strategy\.workersPerGroup: unknown field; a group of a run .* set strategy\.threads, or train with HybridStrategy/,
    ),
  ]);
});

test('local updates: what does not go with them is refused with the reason', () => {
  const local = (fields: object, more?: object) => issuesOf({ kind: 'local-update', ...fields }, more);
  expect(local({ localSteps: 50, outerOptimizer: 'nesterov', outerLearningRate: 0.7, outerMomentum: 0.9, innerState: 'keep' })).toEqual([]);
  expect(
    local({}, { gradient: { clipGlobalNorm: 1 }, codec: { kind: 'top-k', errorFeedback: true }, optimizer: { name: 'adamw' } }),
  ).toEqual([]);
  for (const mode of ['async', 'ssp']) expect(local({ mode })).toEqual([expect.stringMatching(/^strategy\.mode: .*sync/)]);
  expect(local({ stalenessBound: 2 })).toEqual([expect.stringMatching(/^strategy\.stalenessBound: .*belongs to parameter-server/)]);
  expect(local({ outerMomentum: 0.9 })).toEqual([expect.stringMatching(/^strategy\.outerMomentum: belongs to momentum and nesterov/)]);
  for (const name of ['lamb', 'lars'])
    expect(local({}, { optimizer: { name } })).toEqual([expect.stringMatching(/^optimizer\.name: .*norms that the servers take/)]);
  expect(local({}, { optimizer: { name: 'ftrl' } })).toEqual([expect.stringMatching(/^optimizer\.name: ftrl .*sums alone/)]);
  expect(local({ innerState: 'keep', backupReplicas: 1 })).toEqual([expect.stringMatching(/^strategy\.innerState: keep .*backupReplicas/)]);
  expect(local({}, { optimizer: { name: 'adam', emaMomentum: 0.9 } })).toEqual([expect.stringMatching(/^optimizer\.emaMomentum: /)]);
  expect(local({}, { reduceLROnPlateau: {} })).toEqual([expect.stringMatching(/^reduceLROnPlateau: .*schedule/)]);
  expect(local({ innerState: 'keep' }, { gradient: { nonFinite: 'skip' } })).toEqual([
    expect.stringMatching(/^strategy\.innerState: keep/),
  ]);
  expect(local({ startWorkers: 5 })).toEqual([expect.stringMatching(/^strategy\.startWorkers: must not exceed/)]);
  expect(local({ standby: 1, backupReplicas: 1 })).toEqual([expect.stringMatching(/^strategy\.standby: /)]);
});

test('local updates with the shards on workers: what does not go with that is refused with the reason', () => {
  const local = (fields: object) => issuesOf({ kind: 'local-update', workers: 2, ...fields });
  for (const more of [{}, { startWorkers: 2 }, { standby: 1 }, { outerOptimizer: 'elastic', innerState: 'keep' }])
    expect(local(more)).toEqual([]);
  expect(local({ workers: 5 })).toEqual([expect.stringMatching(/^strategy\.workers: must not exceed replicas \(4\)/)]);
  expect(local({ servers: 2 })).toEqual([expect.stringMatching(/^strategy\.servers: does not go with workers/)]);
  expect(local({ startWorkers: 1 })).toEqual([expect.stringMatching(/^strategy\.startWorkers: .*waits for all 2/)]);
  expect(local({ backupReplicas: 1 })).toEqual([expect.stringMatching(/^strategy\.backupReplicas: .*each of them holds a shard/)]);
  expect(local({ workers: 1, standby: 1 })).toEqual([expect.stringMatching(/^strategy\.standby: needs two workers/)]);
});

test('elastic averaging: what does not go with it is refused with the reason', () => {
  const elastic = (fields: object, more?: object) => issuesOf({ kind: 'local-update', outerOptimizer: 'elastic', ...fields }, more);
  expect(elastic({})).toEqual([]);
  expect(elastic({ movingRate: 0.25, innerState: 'keep' }, { codec: { kind: 'int8' }, replicas: 4 })).toEqual([]);
  expect(elastic({ movingRate: 1 / 3 }, { replicas: 3 })).toEqual([]);
  expect(elastic({ movingRate: 0.26 }, { replicas: 4 })).toEqual([
    expect.stringMatching(/^strategy\.movingRate: .*1 \/ replicas \(0\.25\)/),
  ]);
  expect(issuesOf({ kind: 'local-update', movingRate: 0.1 })).toEqual([expect.stringMatching(/^strategy\.movingRate: belongs to elastic/)]);
  expect(elastic({ outerLearningRate: 1 })).toEqual([expect.stringMatching(/^strategy\.outerLearningRate: follows from movingRate/)]);
  expect(elastic({ outerMomentum: 0.9 })).toEqual([expect.stringMatching(/^strategy\.outerMomentum: .*is elastic/)]);
  expect(elastic({ backupReplicas: 1 })).toEqual([expect.stringMatching(/^strategy\.outerOptimizer: .*backupReplicas/)]);
  expect(elastic({}, { gradient: { nonFinite: 'skip' } })).toEqual([expect.stringMatching(/^strategy\.outerOptimizer: .*nonFinite skip/)]);
  for (const codec of [{ kind: 'top-k', errorFeedback: true }, { kind: 'power-sgd' }])
    expect(elastic({}, { codec })).toEqual([expect.stringMatching(/^codec\.(errorFeedback|kind): .*count twice/)]);
});

test('local updates: the servers apply the outer optimizer to rounds of several batches, and clip nothing', () => {
  const specOf = (strategy: object) => {
    const result = parseRunSpec({ strategy, gradient: { clipGlobalNorm: 1 }, learningRate: { warmupRounds: 3 }, globalBatch: 100 });
    if (!result.ok) throw new Error(JSON.stringify(result.issues));
    return result.spec;
  };
  const diloco = specOf({ kind: 'local-update', localSteps: 50, outerOptimizer: 'nesterov' });
  expect(appliedByServers(diloco)).toEqual({
    optimizer: { name: 'momentum', learningRate: 0.7, momentum: 0.9, nesterov: true },
    gradient: { nonFinite: 'fail' },
  });
  expect([stepsOfRound(diloco), roundExamples(diloco), roundPlan(diloco)]).toEqual([50, 5000, 'streaming']);
  expect(appliedByServers(specOf({ kind: 'local-update' })).optimizer).toEqual({ name: 'sgd', learningRate: 1 });
  const elastic = { kind: 'local-update', outerOptimizer: 'elastic' };
  expect(appliedByServers(specOf(elastic)).optimizer).toEqual({ name: 'sgd', learningRate: 0.9 });
  expect(appliedByServers(specOf({ ...elastic, movingRate: 0.125 })).optimizer).toEqual({ name: 'sgd', learningRate: 0.5 });
  expect([movingRate(specOf(elastic)), movingRate(specOf({ ...elastic, movingRate: 0.125 })), movingRate(diloco)]).toEqual([
    0.225,
    0.125,
    undefined,
  ]);
  const plain = specOf({ kind: 'parameter-server' });
  expect(appliedByServers(plain)).toMatchObject({ optimizer: { name: 'momentum' }, learningRate: { warmupRounds: 3 } });
  expect([stepsOfRound(plain), roundExamples(plain), roundPlan(plain)]).toEqual([1, 100, 'two-phase']);
});

test('post-local SGD: what goes with synchronous steps at first, and where these end', () => {
  const post = (strategy: object, more: object = {}) =>
    issuesOf({ kind: 'local-update', syncSteps: 10, ...strategy }, { optimizer: { name: 'sgd', learningRate: 0.1 }, ...more });
  expect(post({})).toEqual([]);
  expect(post({ innerState: 'keep', outerLearningRate: 1 }, { optimizer: { name: 'adam', learningRate: 0.001 } })).toEqual([]);
  for (const other of [{ outerOptimizer: 'nesterov' }, { outerLearningRate: 0.5 }, { outerOptimizer: 'elastic' }])
    expect(post(other)).toEqual([expect.stringMatching(/^strategy\.syncSteps: needs the outer optimizer sgd at rate 1/)]);
  expect(post({}, { optimizer: { name: 'momentum', learningRate: 0.1, momentum: 0.9 } })).toEqual([
    expect.stringMatching(/^strategy\.innerState: must be keep with syncSteps and momentum/),
  ]);
  expect(post({}, { learningRate: { warmupEpochs: 1, schedule: 'cosine', decayEpochs: 3 } })).toEqual([
    expect.stringMatching(/^learningRate\.warmupEpochs: .*give warmupRounds/),
    expect.stringMatching(/^learningRate\.decayEpochs: .*give decayRounds/),
  ]);
  for (const validating of [{ validation: { everyEpochs: 1 } }, { earlyStopping: { patience: 2 } }])
    expect(post({}, validating)).toEqual([expect.stringMatching(/^validation\.everyRounds: is needed with syncSteps/)]);
  expect(post({}, { validation: { everyRounds: 5 }, earlyStopping: { patience: 2 } })).toEqual([]);
  const result = parseRunSpec({
    strategy: { kind: 'local-update', localSteps: 4, syncSteps: 14 },
    optimizer: { name: 'sgd', learningRate: 0.1 },
    globalBatch: 100,
  });
  if (!result.ok) throw new Error(JSON.stringify(result.issues));
  // Ten steps an epoch: four of the second are synchronous, and two rounds are left in it.
  const grid = roundGrid(roundsOf(result.spec, 950));
  expect([grid.roundsPerEpoch, grid.roundsIn(1), grid.roundsIn(2), grid.roundsIn(4)]).toEqual([3, 10, 16, 22]);
  expect([9, 13, 14, 15, 16, 18].map((k) => Object.values(grid.round(k)))).toEqual([
    [0, 9, 900, 50],
    [1, 3, 300, 100],
    [1, 4, 400, 400],
    [1, 5, 800, 150],
    [2, 0, 0, 400],
    [2, 2, 800, 150],
  ]);
});

test('fragments: what does not go with them is refused with the reason', () => {
  const cut = (fields: object, more?: object) => issuesOf({ kind: 'local-update', fragments: 4, ...fields }, more);
  expect(cut({ outerOptimizer: 'nesterov', innerState: 'keep', startWorkers: 2, servers: 3 }, { codec: { kind: 'none' } })).toEqual([]);
  expect(issuesOf({ kind: 'local-update', fragments: 1 })).toEqual([expect.stringMatching(/^strategy\.fragments: /)]);
  expect(cut({ outerOptimizer: 'elastic' })).toEqual([expect.stringMatching(/^strategy\.fragments: does not go with elastic/)]);
  expect(cut({ syncSteps: 3, innerState: 'keep' })).toEqual([expect.stringMatching(/^strategy\.syncSteps: does not go with fragments/)]);
  expect(cut({ backupReplicas: 1 })).toEqual([expect.stringMatching(/^strategy\.backupReplicas: does not go with fragments/)]);
  expect(cut({ standby: 1 })).toEqual([expect.stringMatching(/^strategy\.standby: does not go with fragments/)]);
  expect(cut({}, { gradient: { nonFinite: 'skip' } })).toEqual([expect.stringMatching(/^gradient\.nonFinite: skip does not go/)]);
  for (const codec of [{ kind: 'fp16' }, { kind: 'none', parameters: 'bf16' }])
    expect(cut({}, { codec })).toEqual([expect.stringMatching(/^codec\.kind: a codec does not go with fragments/)]);
});

test('a grid of rounds has every example of an epoch once, and counts what it has', () => {
  const whole = fc.integer({ min: 1, max: 40 });
  fc.assert(
    fc.property(
      whole,
      whole,
      fc.integer({ min: 1, max: 5 }),
      fc.integer({ min: 0, max: 30 }),
      fc.boolean(),
      (examples, batch, steps, rounds, drops) => {
        fc.pre(!drops || examples >= batch * steps);
        const grid = roundGrid({ examples, globalBatch: batch * steps, dropRemainder: drops, first: { rounds, globalBatch: batch } });
        let [epoch, next, seen] = [0, 0, 0];
        for (let k = 0; k < 40; k++) {
          const round = grid.round(k);
          if (round.epoch > epoch) {
            if (!drops) expect(next).toBe(examples);
            expect([round.epoch, round.roundInEpoch, grid.roundsIn(round.epoch)]).toEqual([++epoch, 0, k]);
            next = 0;
          }
          expect([round.first, round.count > 0 && round.first + round.count <= examples]).toEqual([next, true]);
          expect([grid.examplesIn(k), Math.floor(grid.epochsIn(k))]).toEqual([seen, epoch]);
          next += round.count;
          seen += round.count;
        }
      },
    ),
    { numRuns: 100 },
  );
});

test('what all kinds are asked for', () => {
  const ask = (strategy: object) => {
    const result = parseRunSpec({ strategy });
    if (!result.ok) throw new Error(JSON.stringify(result.issues));
    const { strategy: parsed } = result.spec;
    return [shardCount(parsed), shardHosts(parsed), startWorkersOf(parsed)];
  };
  expect(ask({ kind: 'parameter-server', servers: 3 })).toEqual([3, 'servers', undefined]);
  expect(ask({ kind: 'multi-worker-mirrored', workers: 3 })).toEqual([3, 'workers', 3]);
  expect(ask({ kind: 'local-update', servers: 2, startWorkers: 4 })).toEqual([2, 'servers', 4]);
  expect(ask({ kind: 'local-update', workers: 3 })).toEqual([3, 'workers', 3]);
  expect(ask({ kind: 'hybrid', servers: 2, startWorkers: 4 })).toEqual([2, 'servers', 4]);
  expect(ask({ kind: 'mirrored' })).toEqual([1, 'workers', 1]);
  expect(ask({ kind: 'tpu' })).toEqual([1, 'workers', 1]);
  expect(ask({ kind: 'model-parallel' })).toEqual([1, 'workers', 1]);
  expect(ask({ kind: 'model-parallel', workers: 3 })).toEqual([3, 'workers', 3]);
});

test('compute threads: those that are asked for, else one per core, and none without a replica', () => {
  const threads = (strategy: object, replicas: number, cores: number) => {
    const result = parseRunSpec({ strategy, replicas });
    if (!result.ok) throw new Error(JSON.stringify(result.issues));
    expect(isThreaded(result.spec)).toBe(result.spec.strategy.kind === 'tpu' || threadsOf(result.spec, 256) > 1);
    return threadsOf(result.spec, cores);
  };
  for (const kind of ['hybrid', 'mirrored', 'tpu']) {
    expect(threads({ kind, threads: 3 }, 8, 2)).toBe(3);
    expect(threads({ kind }, 8, 6)).toBe(6);
    expect(threads({ kind }, 4, 6)).toBe(4);
    expect(threads({ kind, threads: 1 }, 8, 6)).toBe(1);
  }
  expect(threads({ kind: 'mirrored' }, 1, 6)).toBe(1);
  expect(threads({ kind: 'multi-worker-mirrored', threads: 3 }, 8, 2)).toBe(3);
  expect(threads({ kind: 'local-update', threads: 3 }, 8, 2)).toBe(3);
  for (const kind of ['parameter-server', 'multi-worker-mirrored', 'local-update', 'auto']) expect(threads({ kind }, 8, 6)).toBe(1);
  expect(threads({ kind: 'one-device' }, 1, 6)).toBe(1);
});

test('stages: what does not go with them is refused with the reason', () => {
  const staged = (fields: object, more?: object) => issuesOf({ kind: 'model-parallel', ...fields }, more);
  for (const more of [{}, { stages: 3, workers: 4 }, { workers: 2, standby: 1, minWorkers: 2 }, { stages: 3, cutAfter: ['a', 'b'] }])
    expect(staged(more)).toEqual([]);
  expect(staged({}, { replicas: 1 })).toEqual([]);
  expect(staged({ stages: 1 })).toEqual([expect.stringMatching(/^strategy\.stages: must be at least 2/)]);
  expect(staged({ cutAfter: ['a', 'b'] })).toEqual([]);
  expect(staged({ stages: 2, cutAfter: ['a', 'b'] })).toEqual([
    expect.stringMatching(/^strategy\.cutAfter: names 2 layers, but 2 stages have 1 cut between them: name 1, or set stages to 3/),
  ]);
  expect(staged({ cutAfter: [] })[0]).toMatch(/^strategy\.cutAfter: /);
  expect(staged({ accumulate: 2 })).toEqual([expect.stringMatching(/^strategy\.accumulate: must be 1 .*take more replicas/)]);
  expect(staged({ workers: 5 })).toEqual([expect.stringMatching(/^strategy\.workers: must not exceed replicas \(4\)/)]);
  expect(staged({ standby: 1 })).toEqual([expect.stringMatching(/^strategy\.standby: needs two workers/)]);
  expect(staged({ workers: 2, minWorkers: 3 })).toEqual([expect.stringMatching(/^strategy\.minWorkers: must not exceed workers \(2\)/)]);
  expect(staged({ mode: 'async' })[0]).toMatch(/^strategy\.mode: .*sync/);
  expect(staged({ threads: 2 })[0]).toMatch(/^strategy\.threads: /);
  for (const engine of ['tensorflow', 'webgpu']) expect(staged({}, { engine })).toEqual([expect.stringMatching(/^engine: .*wasm/)]);
  expect(staged({}, { codec: { kind: 'int8' } })).toEqual([expect.stringMatching(/^codec\.kind: int8 .*each replica/)]);
  expect(staged({ workers: 2 }, { codec: { kind: 'none', parameters: 'bf16' } })).toEqual([]);
  expect(staged({}, { embeddings: { kind: 'sparse' }, optimizer: { name: 'sgd' } })[0]).toMatch(/^strategy\.kind: .*parameter-server/);
  for (const [fields, stages] of [
    [{}, 2],
    [{ stages: 3 }, 3],
    [{ cutAfter: ['a', 'b', 'c'] }, 4],
  ] as const) {
    const result = parseRunSpec({ strategy: { kind: 'model-parallel', ...fields } });
    if (!result.ok) throw new Error(JSON.stringify(result.issues));
    expect([isThreaded(result.spec), threadsOf(result.spec, 8), stagesOf(result.spec.strategy)]).toEqual([true, 1, stages]);
  }
});

test('tpu: a round has several steps, and what the threads cannot apply is refused with the reason', () => {
  const specOf = (strategy: object, more: object = {}) => {
    const result = parseRunSpec({ globalBatch: 100, strategy: { kind: 'tpu', ...strategy }, ...more });
    if (!result.ok) throw new Error(JSON.stringify(result.issues));
    return result.spec;
  };
  const clipped = specOf(
    {},
    { gradient: { clipNorm: 1, nonFinite: 'fail' }, learningRate: { schedule: 'cosine' }, optimizer: { name: 'adam' } },
  );
  expect([stepsOfRound(clipped), roundExamples(clipped), roundPlan(clipped)]).toEqual([20, 2000, 'streaming']);
  // Slots are those of the optimizer; its rate, its schedule and its clipping are the worker's.
  expect(appliedByServers(clipped)).toEqual({ optimizer: { ...clipped.optimizer, isApplied: true }, gradient: { nonFinite: 'fail' } });
  expect(roundPlan(specOf({}, { gradient: { nonFinite: 'skip' } }))).toBe('two-phase');
  // What is dropped is the rest of a batch, and not that of a round.
  const dropped = roundsOf(specOf({ stepsPerExecution: 4 }, { dropRemainder: true }), 1050);
  expect([roundGrid(dropped).roundsPerEpoch, roundGrid(dropped).round(2).count, roundGrid(dropped).examplesIn(3)]).toEqual([3, 200, 1000]);
  const refused = (strategy: object, more: object = {}): string[] => issuesOf({ kind: 'tpu', ...strategy }, more);
  for (const optimizer of [{ name: 'lamb' }, { name: 'lars' }])
    expect(refused({}, { optimizer })).toEqual([expect.stringMatching(/^optimizer\.name: .*or mirrored/)]);
  for (const name of ['ftrl', 'adamw', 'lion']) expect(refused({}, { optimizer: { name } })).toEqual([]);
  expect(refused({}, { optimizer: { name: 'adam', emaMomentum: 0.99 } })).toEqual([expect.stringMatching(/^optimizer\.emaMomentum: /)]);
  expect(refused({}, { reduceLROnPlateau: {}, validation: {} })).toEqual([expect.stringMatching(/^reduceLROnPlateau: .*mirrored/)]);
  for (const stepsPerExecution of [0, 10_001, 1.5]) expect(refused({ stepsPerExecution })[0]).toMatch(/^strategy\.stepsPerExecution: /);
  expect(refused({ mode: 'async' })[0]).toMatch(/^strategy\.mode: /);
  expect(refused({ standby: 1 })).toEqual([expect.stringMatching(/^strategy\.standby: .*one worker/)]);
  expect(refused({}, { codec: { kind: 'int8' } })).toEqual([expect.stringMatching(/^codec\.kind: int8 /)]);
  for (const engine of ['tensorflow', 'webgpu']) expect(refused({}, { engine })).toEqual([expect.stringMatching(/^engine: .*wasm/)]);
  expect(refused({ servers: 2 })[0]).toMatch(/^strategy\.servers: /);
  expect(refused({}, { embeddings: { kind: 'sparse' }, optimizer: { name: 'sgd' } })[0]).toMatch(/^strategy\.kind: .*parameter-server/);
});

test('several threads, one worker, one replica: what does not go with them is refused with the reason', () => {
  for (const kind of ['hybrid', 'mirrored', 'one-device'])
    for (const mode of ['async', 'ssp']) expect(issuesOf({ kind, mode }, { replicas: 1 })[0]).toMatch(/^strategy\.mode: .*sync/);
  expect(issuesOf({ kind: 'multi-worker-mirrored' }, { codec: { kind: 'int8' } })).toEqual([]);
  for (const kind of ['multi-worker-mirrored', 'local-update'])
    expect(issuesOf({ kind, threads: 2 }, { codec: { kind: 'int8' } })).toEqual([
      expect.stringMatching(`^codec\\.kind: int8 does not go with ${kind}`),
    ]);
  expect(issuesOf({ kind: 'local-update', threads: 2, backupReplicas: 1 })).toEqual([
    expect.stringMatching(/^strategy\.threads: does not go with backupReplicas/),
  ]);
  expect(issuesOf({ kind: 'local-update', threads: 1, backupReplicas: 1 })).toEqual([]);
  expect(issuesOf({ kind: 'local-update', threads: 5 })).toEqual([
    expect.stringMatching(/^strategy\.threads: must not exceed replicas \(4\)/),
  ]);
  for (const kind of ['hybrid', 'mirrored', 'tpu']) {
    expect(issuesOf({ kind, threads: 5 })).toEqual([expect.stringMatching(/^strategy\.threads: must not exceed replicas \(4\)/)]);
    expect(issuesOf({ kind, threads: 257 })).toEqual([expect.stringMatching(/^strategy\.threads: must be at most 256/)]);
    for (const engine of ['tensorflow', 'webgpu'])
      expect(issuesOf({ kind }, { engine })).toEqual([expect.stringMatching(/^engine: .*wasm/)]);
    expect(issuesOf({ kind }, { codec: { kind: 'int8' } })).toEqual([expect.stringMatching(/^codec\.kind: int8 .*each replica/)]);
    expect(issuesOf({ kind }, { codec: { kind: 'none', parameters: 'float32' }, gradient: { clipGlobalNorm: 1 } })).toEqual([]);
    expect(issuesOf({ kind }, { embeddings: { kind: 'sparse' }, optimizer: { name: 'sgd' } })[0]).toMatch(
      /^strategy\.kind: .*parameter-server/,
    );
  }
  for (const parameters of ['bf16', 'delta-int4']) {
    expect(issuesOf({ kind: 'hybrid' }, { codec: { kind: 'none', parameters } })).toEqual([]);
    for (const kind of ['mirrored', 'one-device'])
      expect(issuesOf({ kind }, { replicas: 1, codec: { kind: 'none', parameters } })).toEqual([
        expect.stringMatching(`^codec\\.parameters: ${parameters} does not go with ${kind}: .*no parameters are sent`),
      ]);
  }
  expect(issuesOf({ kind: 'hybrid' }, { replicas: 1 })).toEqual([expect.stringMatching(/^strategy\.kind: .*parameter-server/)]);
  expect(issuesOf({ kind: 'hybrid', standby: 1, startWorkers: 2 })).toEqual([]);
  expect(issuesOf({ kind: 'mirrored', servers: 2 })).toEqual([expect.stringMatching(/^strategy\.servers: /)]);
  for (const kind of ['mirrored', 'one-device'])
    expect(issuesOf({ kind, standby: 1 }, { replicas: 1 })).toEqual([expect.stringMatching(/^strategy\.standby: .*one worker/)]);
  expect(issuesOf({ kind: 'one-device' })).toEqual([expect.stringMatching(/^replicas: must be 1 .*mirrored/)]);
  expect(issuesOf({ kind: 'one-device' }, { replicas: 1, codec: { kind: 'int8' } })).toEqual([
    expect.stringMatching(/^codec\.kind: int8 does not go with one-device: no gradient is sent/),
  ]);
  expect(issuesOf({ kind: 'one-device' }, { replicas: 1, codec: { kind: 'none' } })).toEqual([]);
  expect(issuesOf({ kind: 'one-device', threads: 2 }, { replicas: 1 })).toEqual([expect.stringMatching(/^strategy\.threads: /)]);
  expect(issuesOf({ kind: 'central-storage' })).toEqual([expect.stringMatching(/^strategy\.kind: .*take mirrored/)]);
});

test.each([
  [{ strategy: { kind: 'parameter-server', servers: 2 } }, 'servers'],
  [{ strategy: { kind: 'hybrid', servers: 1 } }, 'servers'],
  [{ strategy: { kind: 'auto', servers: 1 } }, 'servers'],
  [{ strategy: { kind: 'local-update', servers: 1 } }, 'servers'],
  [{ strategy: { kind: 'local-update', workers: 2 } }, 'workers'],
  [{ strategy: { kind: 'multi-worker-mirrored', workers: 1 } }, 'workers'],
  [{ strategy: { kind: 'model-parallel', workers: 1 } }, 'workers'],
  [{ strategy: { kind: 'mirrored' } }, 'worker'],
  [{ strategy: { kind: 'one-device' } }, 'worker'],
  [{ strategy: { kind: 'tpu', stepsPerExecution: 5 } }, 'worker'],
  [{ strategy: { kind: 'of a newer server', workers: 3 } }, 'servers'],
  [{ strategy: 'mirrored' }, 'servers'],
  [{}, 'servers'],
  [null, 'servers'],
  ['text', 'servers'],
])('who holds the shards of %j', (spec, holders) => {
  expect(shardHostsIn(spec)).toBe(holders);
});

test('the fewest workers of a run are not more than it begins with, and two with a standby; the most are not fewer, nor more than replicas', () => {
  const issues = (strategy: object): string[] => {
    const parsed = parseRunSpec({ replicas: 4, globalBatch: 64, strategy: { kind: 'multi-worker-mirrored', workers: 3, ...strategy } });
    return parsed.ok ? [] : parsed.issues.map(({ path, message }) => `${path}: ${message}`);
  };
  for (const good of [{ minWorkers: 1 }, { minWorkers: 3 }, { minWorkers: 2, standby: 1 }]) expect(issues(good)).toEqual([]);
  expect(issues({ minWorkers: 4 })).toEqual([expect.stringMatching(/^strategy\.minWorkers: must not exceed workers \(3\)/)]);
  expect(issues({ minWorkers: 1, standby: 1 })).toEqual([expect.stringMatching(/^strategy\.minWorkers: must be 2 at least/)]);
  expect(parseRunSpec({ strategy: { kind: 'local-update', workers: 2, minWorkers: 1 } }).ok).toBe(false);
  for (const maxWorkers of [3, 4]) expect(issues({ minWorkers: 1, maxWorkers })).toEqual([]);
  expect(issues({ minWorkers: 1, maxWorkers: 2 })).toEqual([
    expect.stringMatching(/^strategy\.maxWorkers: must not be below workers \(3\)/),
  ]);
  expect(issues({ minWorkers: 1, maxWorkers: 5 })).toEqual([
    expect.stringMatching(/^strategy\.maxWorkers: must not exceed replicas \(4\)/),
  ]);
  expect(issues({ maxWorkers: 4 })).toEqual([expect.stringMatching(/^strategy\.maxWorkers: needs minWorkers/)]);
});
