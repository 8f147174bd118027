import { expect, test } from 'vitest';
import { appliedByServers, localSteps, movingRate, roundExamples } from './local-update.js';
import { parseRunSpec, roundPlan } from './run-spec.js';
import { shardCount, shardHosts, startWorkersOf } from './strategy.js';

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
  expect([localSteps(diloco), roundExamples(diloco), roundPlan(diloco)]).toEqual([50, 5000, 'streaming']);
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
  expect([localSteps(plain), roundExamples(plain), roundPlan(plain)]).toEqual([1, 100, 'two-phase']);
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
});
