import { expect, test } from 'vitest';
import { inheritedLength, inheritSpec, optimizerIssues, variableIssues } from './inherited-spec.js';
import { roundGrid } from './round-grid.js';
import type { VariableSpec } from './model-description.js';
import { parseRunSpec, type RunSpec, type RunSpecInput } from './run-spec.js';

function specOf(input: unknown): RunSpec {
  const result = parseRunSpec(input);
  if (!result.ok) throw new Error(JSON.stringify(result.issues));
  return result.spec;
}
const source = specOf({
  optimizer: { name: 'adam', learningRate: 0.01, beta1: 0.8 },
  gradient: { clipNorm: 3 },
  augmentation: { zoom: 0.1 },
  checkpoint: { everyRounds: 5 },
} satisfies RunSpecInput);

test('what is not said is taken over, groups field by field', () => {
  expect(specOf(inheritSpec(source, {}))).toEqual(source);
  const given = {
    optimizer: { learningRate: 0.1 },
    strategy: { servers: 3 },
    augmentation: { mirror: true },
    length: { rounds: 9 },
    model: 'cnn',
  };
  expect(specOf(inheritSpec(source, given))).toEqual({
    ...source,
    optimizer: { ...source.optimizer, learningRate: 0.1 },
    strategy: { ...source.strategy, servers: 3 },
    augmentation: { ...source.augmentation, mirror: true },
    length: { rounds: 9 },
    model: 'cnn',
  });
});

test('a length of the learning rate takes the place of the other one, and another schedule that of the fields of the first', () => {
  const decaying = specOf({ learningRate: { schedule: 'cosine', endFactor: 0.1, decayRounds: 50, warmupEpochs: 1 } });
  const rateOf = (learningRate: object) => specOf(inheritSpec(decaying, { learningRate })).learningRate;
  expect(rateOf({ decayEpochs: 2, warmupRounds: 3 })).toMatchObject({ decayEpochs: 2, warmupRounds: 3, endFactor: 0.1 });
  expect(rateOf({ decayEpochs: 2 })).not.toHaveProperty('decayRounds');
  expect(rateOf({ schedule: 'constant' })).toEqual(specOf({ learningRate: { warmupEpochs: 1 } }).learningRate);
});

test('what is no spec is left for the schema to refuse', () => {
  for (const given of [null, [], 'x', { optimizer: 'adam' }, { strategy: [] }, { optimizer: { name: { toString: 1 } } }])
    expect(parseRunSpec(inheritSpec(source, given)).ok, JSON.stringify(given)).toBe(false);
  expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
});

test('another optimizer is refused once and in words, another rate is not', () => {
  const other = specOf(inheritSpec(source, { optimizer: { name: 'momentum' } }));
  expect(optimizerIssues(source, other, 'X')).toEqual([
    { path: 'optimizer.name', message: 'is adam in run X and cannot become momentum: its slots would not fit' },
  ]);
  expect(optimizerIssues(source, specOf(inheritSpec(source, { optimizer: { name: 'adam', learningRate: 1 } })), 'X')).toEqual([]);
});

test('other slots of the same optimizer are refused with the field that makes them, equal slots of another are not', () => {
  const plain = specOf({ optimizer: { name: 'rmsprop' } });
  const to = (optimizer: object): unknown => optimizerIssues(plain, specOf({ optimizer }), 'X');
  expect(to({ name: 'rmsprop', rho: 0.5 })).toEqual([]);
  expect(to({ name: 'rmsprop', momentum: 0.9 })).toEqual([
    {
      path: 'optimizer.momentum',
      message: 'changes the slots of rmsprop: run X has meanSquare, this would need meanSquare, velocity; leave it as it is there',
    },
  ]);
  expect(to({ name: 'rmsprop', centered: true })).toMatchObject([{ path: 'optimizer.centered' }]);
  expect(optimizerIssues(source, specOf({ optimizer: { name: 'adamw' } }), 'X')).toEqual([]);
  expect(optimizerIssues(source, specOf({ optimizer: { name: 'amsgrad' } }), 'X')).toHaveLength(1);
});

test('a run goes on to the end of its source, and from that end as long again', () => {
  const [rounds, epochs] = [
    { ...source, length: { rounds: 12 } },
    { ...source, length: { epochs: 2 } },
  ];
  const gridOf = (roundsPerEpoch: number) => roundGrid({ examples: roundsPerEpoch, globalBatch: 1, dropRemainder: false });
  expect(inheritedLength(rounds, 11, gridOf(5))).toEqual({ rounds: 12 });
  expect(inheritedLength(rounds, 12, gridOf(5))).toEqual({ rounds: 24 });
  expect(inheritedLength(epochs, 9, gridOf(5))).toEqual({ epochs: 2 });
  expect(inheritedLength(epochs, 10, gridOf(5))).toEqual({ epochs: 4 });
  expect(inheritedLength(epochs, 10, gridOf(50)), 'with larger epochs there is room').toEqual({ epochs: 2 });
});

test('other variables are refused with the first that differs', () => {
  const variable = (path: string, ...shape: number[]): VariableSpec => ({
    path,
    shape,
    section: 'trainable',
    initializer: { className: 'Zeros', config: {} },
  });
  const was = [variable('d/kernel', 3, 4), variable('d/bias', 4)];
  expect(variableIssues(was, [...was], source, 'X')).toEqual([]);
  expect(variableIssues(was, [was[0]!, variable('d/bias', 5)], source, 'X')).toEqual([
    { path: 'model', message: 'has other variables than run X (d/bias [5] where that has d/bias [4]): its weights would not fit' },
  ]);
  const table = Object.assign({}, was[0]!, { rows: { input: 0 } });
  expect(variableIssues(was, [table, was[1]!], source, 'X')).toEqual([
    {
      path: 'embeddings.kind',
      message: expect.stringContaining('is dense in run X, whose checkpoints are cut by it (d/kernel)') as string,
    },
  ]);
  expect(variableIssues([table, was[1]!], was, source, 'X')[0]!.message).toContain('is sparse in run X');
  expect(variableIssues(was, [was[0]!], source, 'X')[0]!.message).toContain('no more variables where that has d/bias [4]');
});

test('another kind of strategy takes over no field of the kind before it', () => {
  const strategy = { kind: 'multi-worker-mirrored', workers: 3 };
  expect(specOf(inheritSpec(source, { strategy })).strategy).toEqual({ ...strategy, mode: 'sync', accumulate: 1, standby: 0 });
});

test('a field takes the place of those that do not go with it, and null takes one out', () => {
  const local = (fields: object) => specOf({ strategy: Object.assign({ kind: 'local-update' }, fields) });
  const goesOn = (from: RunSpec, given: object) => specOf(inheritSpec(from, given)).strategy;
  const elastic = local({ outerOptimizer: 'elastic', movingRate: 0.2 });
  expect(goesOn(elastic, { strategy: { outerOptimizer: 'sgd' } })).not.toHaveProperty('movingRate');
  expect(goesOn(local({ outerLearningRate: 0.5 }), { strategy: { outerOptimizer: 'elastic' } })).not.toHaveProperty('outerLearningRate');
  expect(goesOn(elastic, { strategy: { outerOptimizer: 'elastic', localSteps: 3 } })).toMatchObject({ movingRate: 0.2 });
  expect(goesOn(local({ workers: 2 }), { strategy: { servers: 2 } })).not.toHaveProperty('workers');
  expect(goesOn(local({ servers: 3, startWorkers: 3 }), { strategy: { workers: 2 } })).toMatchObject({ servers: 1, workers: 2 });
  expect(goesOn(local({ fragments: 4 }), { strategy: { fragments: null }, codec: { kind: 'int8' } })).not.toHaveProperty('fragments');
  expect(specOf(inheritSpec(specOf({ codec: { kind: 'int8' } }), { codec: null }))).not.toHaveProperty('codec');
  expect(specOf(inheritSpec(source, { optimizer: { beta1: null } })).optimizer).toMatchObject({ learningRate: 0.01, beta1: 0.9 });
});

test('options of the source that nothing uses any more are not inherited; those that the request says are refused', () => {
  const ssp = specOf({ strategy: { kind: 'parameter-server', mode: 'ssp', stalenessBound: 8 } });
  expect(specOf(inheritSpec(ssp, { strategy: { mode: 'sync' } })).strategy).toMatchObject({ mode: 'sync', stalenessBound: 4 });
  const measured = specOf({ metrics: ['f1Score'], metricOptions: { average: 'macro', weighted: true } });
  expect(specOf(inheritSpec(measured, { metrics: ['accuracy'] })).metricOptions).toEqual({ weighted: true });
  expect(specOf(inheritSpec(measured, { metrics: ['f1_score'] })).metricOptions).toEqual({ average: 'macro', weighted: true });
  const logits = specOf({ loss: 'binaryCrossentropy', lossFromLogits: true });
  expect(specOf(inheritSpec(logits, { loss: 'mse' }))).not.toHaveProperty('lossFromLogits');
  expect(parseRunSpec(inheritSpec(logits, { loss: 'mse', lossFromLogits: true })).ok).toBe(false);
  expect(parseRunSpec(inheritSpec(logits, { metrics: 3, strategy: 'x' })).ok).toBe(false);
});

test('a checkpoint of local updates goes on with local updates whose outer optimizer has its slots', () => {
  const local = (fields: object) => specOf(inheritSpec(source, { strategy: { kind: 'local-update', ...fields } }));
  const [averaged, diloco] = [local({}), local({ outerOptimizer: 'nesterov' })];
  expect(optimizerIssues(averaged, local({ localSteps: 7, innerState: 'keep' }), 'X')).toEqual([]);
  expect(optimizerIssues(averaged, diloco, 'X')).toEqual([
    { path: 'strategy.outerOptimizer', message: expect.stringContaining('is sgd in run X') as string },
  ]);
  for (const [was, is] of [
    [source, diloco],
    [diloco, source],
  ] as const)
    expect(optimizerIssues(was, is, 'X')).toEqual([
      { path: 'strategy.kind', message: expect.stringContaining('begin with its weights') as string },
    ]);
});

test('a round of tpu has another number of steps, so a checkpoint of another kind does not become one of it, nor the other way round', () => {
  const tpu = (fields: object = {}) => specOf(inheritSpec(source, { strategy: { kind: 'tpu', ...fields } }));
  expect(optimizerIssues(tpu(), tpu({ threads: 2 }), 'X')).toEqual([]);
  expect(optimizerIssues(tpu(), tpu({ stepsPerExecution: 7 }), 'X')).toEqual([
    { path: 'strategy.stepsPerExecution', message: expect.stringMatching(/^is 20 in run X and cannot become 7/) as string },
  ]);
  for (const [was, is] of [
    [source, tpu()],
    [tpu(), source],
    [tpu(), specOf(inheritSpec(source, { strategy: { kind: 'local-update' } }))],
  ] as const)
    expect(optimizerIssues(was, is, 'X')).toEqual([
      { path: 'strategy.kind', message: expect.stringMatching(`is ${was.strategy.kind} in run X .*begin with its weights`) as string },
    ]);
});

test('estimates of EF21 belong to one run: another begins with the weights', () => {
  const ef21 = { codec: { kind: 'top-k', errorFeedback: true, feedbackRule: 'ef21' } } as const;
  const pairs = [
    [ef21, ef21],
    [ef21, {}],
    [{}, ef21],
  ] as const;
  for (const [was, is] of pairs)
    expect(optimizerIssues(specOf(was), specOf(is), 'r')).toMatchObject([
      { path: 'codec.feedbackRule', message: expect.stringMatching(/^is ef21 in .*weights\.run/) as string },
    ]);
});

test('another number of stages does away with where those of the source end, and the other way round', () => {
  const source = specOf({ strategy: { kind: 'model-parallel', stages: 3, cutAfter: ['a', 'b'] } });
  const strategyOf = (strategy: object) => specOf(inheritSpec(source, { strategy })).strategy;
  expect(strategyOf({ workers: 2 })).toMatchObject({ stages: 3, cutAfter: ['a', 'b'], workers: 2 });
  expect(strategyOf({ stages: 2 })).toMatchObject({ stages: 2 });
  expect(strategyOf({ stages: 2 })).not.toHaveProperty('cutAfter');
  expect(strategyOf({ cutAfter: ['a'] })).toMatchObject({ cutAfter: ['a'] });
  expect(strategyOf({ stages: 2, cutAfter: ['b'] })).toMatchObject({ stages: 2, cutAfter: ['b'] });
  const other = specOf(inheritSpec(source, { model: 'cnn' })).strategy;
  expect(other).toMatchObject({ stages: 3 });
  expect(other).not.toHaveProperty('cutAfter');
});
