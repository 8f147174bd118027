/** Which strategies a name stands for, and which recordings they cannot follow. */
import path from 'node:path';
import { readRecording, type TrainingRecording } from '@paceline/models';
import { unserved } from '@paceline/strategies/recorded';
import { expect, it } from 'vitest';
import { programOf } from './library.js';
import {
  processesOf,
  reasonAgainst,
  sizesOfRun,
  strategyOfRun,
  TARGETS,
  targetsNamed,
  type LibraryTarget,
  type ServiceTarget,
} from './targets.js';
import { planTraining } from './training.js';

const file = path.join(import.meta.dirname, '../../../../libs/testkit/golden/mirrored-mlp-sgd.json');
const recording = (await readRecording(file)) as TrainingRecording;
const named = (...names: string[]): string[] => targetsNamed(names, undefined).map(({ as, name }) => `${as} ${name}`);

it('a name without a topology is all that library and service have of it, without other modes', () => {
  expect(named('multi-worker-mirrored')).toEqual([
    ...['direct', 'ring', 'tree', 'hierarchical'].map((topology) => `library multi-worker-mirrored:${topology}`),
    'service multi-worker-mirrored',
  ]);
  expect(named('parameter-server', 'multi-worker-mirrored:ring', 'parameter-server')).toEqual([
    'library parameter-server',
    'service parameter-server',
    'library multi-worker-mirrored:ring',
  ]);
  expect(targetsNamed(['local-update'], 'library')).toHaveLength(1);
  expect(() => named('mirored')).toThrow(/--strategy "mirored" is no strategy: there are one-device, mirrored/);
  expect(named('mirrored', 'hybrid')).toEqual([
    'library mirrored',
    'service mirrored',
    'library hybrid',
    'library hybrid:groups',
    'service hybrid',
  ]);
  expect(named('hybrid:groups')).toEqual(['library hybrid:groups']);
  expect(() => targetsNamed(['central-storage'], 'service')).toThrow(/no strategy of the service/);
});

it('what a strategy cannot follow has a reason', async () => {
  const reasons = async (changes: Partial<TrainingRecording>): Promise<Record<string, string>> => {
    const plan = await planTraining({ ...recording, ...changes }, { servers: 1 });
    const program = await programOf(plan);
    const found: Record<string, string> = {};
    for (const target of TARGETS) {
      const reason = reasonAgainst(target, plan, program);
      if (reason !== undefined) found[`${target.as} ${target.name}`] = reason;
    }
    return found;
  };
  const modes = ['service parameter-server:async', 'service parameter-server:ssp'];
  const oneDevice = 'service one-device';
  expect(Object.keys(await reasons({}))).toEqual([...modes, oneDevice]);
  expect(Object.keys(await reasons({ replicas: 1 }))).toEqual([...modes, 'service hybrid']);
  expect(Object.keys(await reasons({ replicas: 3 }))).toEqual(['library local-update', ...modes, oneDevice, 'service local-update']);
  const adam = await reasons({ optimizer: { class: 'Adam', config: {} } });
  expect(Object.keys(adam)).toEqual(['library local-update', ...modes, oneDevice, 'service local-update']);
  expect(adam['service local-update']).toMatch(/steps of adam alone/);
  const normalised = {
    optimizer: (await planTraining(recording, { servers: 1 })).spec.optimizer,
    globalBatch: 6,
    layers: ['BatchNormalization'],
  };
  expect(unserved({ ...normalised, replicas: 3 }, { kind: 'hybrid' }, false)).toMatch(/recorded with 3 replicas, .* a multiple of 2/);
  expect(unserved({ ...normalised, replicas: 4 }, { kind: 'hybrid' }, false)).toBeUndefined();
  const groups = { kind: 'hybrid', workersPerGroup: 2 } as const;
  expect(unserved({ ...normalised, replicas: 3 }, groups, false)).toBeUndefined();
  expect(unserved({ ...normalised, replicas: 1 }, groups, false)).toMatch(/a group has several/);
  const lamb = await reasons({ optimizer: { class: 'Lamb', config: {} } });
  expect(lamb['library mirrored']).toMatch(/^lamb takes norms/);
  const adamw = await reasons({ optimizer: { class: 'AdamW', config: {} } });
  expect(Object.keys(adamw)).toEqual(Object.keys(adam));
  expect((await reasons({ optimizer: { class: 'SGD', config: { clipnorm: 1 } } }))['library one-device']).toMatch(/do not clip/);
});

it('a run has the strategy of its name: that of local updates takes one step between averages, and keeps the velocity of its replicas', async () => {
  const local = TARGETS.find(({ as, name }) => as === 'service' && name === 'local-update') as ServiceTarget;
  const plan = await planTraining({ ...recording, optimizer: { class: 'SGD', config: { momentum: 0.9 } } }, { servers: 1 });
  expect(strategyOfRun(local, { workers: 3, servers: 2 }, plan)).toEqual({
    kind: 'local-update',
    servers: 2,
    startWorkers: 2,
    localSteps: 1,
    outerOptimizer: 'sgd',
    innerState: 'keep',
  });
  const ofKind = (name: string) => strategyOfRun(targetsNamed([name], 'service')[0] as ServiceTarget, { workers: 3, servers: 2 }, plan);
  expect(ofKind('hybrid')).toEqual({ kind: 'hybrid', servers: 2, startWorkers: 2, threads: 2 });
  expect(ofKind('mirrored')).toEqual({ kind: 'mirrored', threads: 2 });
  expect(ofKind('one-device')).toEqual({ kind: 'one-device' });
  expect(ofKind('tpu')).toEqual({ kind: 'tpu', threads: 2, stepsPerExecution: 1 });
  expect(ofKind('model-parallel')).toEqual({ kind: 'model-parallel', workers: 2, stages: 2 });
  const sizes = { workers: 3, servers: 2 };
  for (const name of ['mirrored', 'one-device', 'tpu'])
    expect(sizesOfRun({ as: 'service', name }, sizes)).toEqual({ workers: 1, servers: 0 });
  expect(sizesOfRun({ as: 'service', name: 'hybrid' }, sizes)).toEqual(sizes);
  const tree = targetsNamed(['multi-worker-mirrored:tree'], 'library')[0] as LibraryTarget;
  const of = (replicas: number, globalBatch: number, ...layers: string[]) => ({ replicas, globalBatch, layers });
  expect([undefined, 3, 8].map((workers) => processesOf(tree, workers, of(2, 6, 'Dense')))).toEqual([4, 3, 6]);
  // Batch normalisation normalises by the rows of a recorded replica: there are no more processes than these.
  expect([undefined, 3, 8].map((workers) => processesOf(tree, workers, of(2, 6, 'Dense', 'BatchNormalization')))).toEqual([2, 2, 2]);
  const sizesOf = (name: string, ...plan: Parameters<typeof of>): number[] =>
    [undefined, 3].map((workers) => processesOf(targetsNamed([name], 'library')[0] as LibraryTarget, workers, of(...plan)));
  expect([sizesOf('parameter-server', 2, 6, 'Dense'), sizesOf('hybrid', 2, 6, 'Dense')]).toEqual([
    [4, 3],
    [2, 3],
  ]);
  expect(sizesOf('parameter-server', 6, 12, 'BatchNormalization')).toEqual([6, 6]);
  expect(sizesOf('hybrid', 6, 12, 'BatchNormalization')).toEqual([3, 3]);
  expect([sizesOf('hybrid:groups', 2, 6, 'Dense'), sizesOf('hybrid:groups', 6, 12, 'BatchNormalization')]).toEqual([
    [4, 3],
    [6, 6],
  ]);
  expect(processesOf(targetsNamed(['hybrid:groups'], 'library')[0] as LibraryTarget, 1, of(2, 6, 'Dense'))).toBe(2);
});
