import { expect, test } from 'vitest';
import { COMPARABLE_FIELDS, COMPARABLE_STRATEGY_FIELDS, comparableConfig, configDifferences } from './comparable-config.js';
import { parseRunSpec, runSpecSchema, type RunSpec, type RunSpecInput } from './run-spec.js';
import { STRATEGY_KINDS } from './strategy.js';

function specOf(input: RunSpecInput): RunSpec {
  const result = parseRunSpec(input);
  if (!result.ok) throw new Error(JSON.stringify(result.issues));
  return result.spec;
}

test('every field of the spec is either comparable or named here as one that changes no number', () => {
  const free = [
    'name',
    'earlyStopping',
    'metrics',
    'metricOptions',
    'length',
    'stepDeadlineMs',
    'link',
    'checkpoint',
    'restarts',
    'weights',
  ];
  expect(Object.keys(runSpecSchema.shape).sort()).toEqual([...COMPARABLE_FIELDS, ...free].sort());
  const freeInStrategy = [
    'allowedLocalSteps',
    'cutAfter',
    'maxWorkers',
    'minWorkers',
    'servers',
    'stages',
    'standby',
    'startWorkers',
    'threads',
    'workers',
  ];
  const strategyFields = [...new Set(STRATEGY_KINDS.flatMap((option) => Object.keys(option.shape)))];
  expect(strategyFields.sort()).toEqual([...COMPARABLE_STRATEGY_FIELDS, ...freeInStrategy].sort());
});

test('what changes no number makes no difference', () => {
  const a = specOf({ name: 'a' });
  const b = specOf({
    name: 'b',
    length: { rounds: 7 },
    stepDeadlineMs: 5000,
    restarts: 1,
    checkpoint: { everyRounds: 3 },
    strategy: { kind: 'parameter-server', servers: 3, standby: 1 },
  });
  expect(configDifferences(comparableConfig(a), comparableConfig(b))).toEqual([]);
});

test('a difference is named by its path in the spec, with what was and what is', () => {
  const was = comparableConfig(specOf({ seed: 1, optimizer: { name: 'momentum', learningRate: 0.1 } }));
  const is = comparableConfig(specOf({ seed: 2, optimizer: { name: 'sgd', learningRate: 0.1 }, gradient: { clipNorm: 3 } }));
  expect(configDifferences(was, is)).toEqual([
    { path: 'gradient.clipNorm', was: undefined, is: 3 },
    { path: 'optimizer.momentum', was: 0.9, is: undefined },
    { path: 'optimizer.name', was: 'momentum', is: 'sgd' },
    { path: 'optimizer.nesterov', was: false, is: undefined },
    { path: 'seed', was: 1, is: 2 },
  ]);
});

test('names that every object inherits are no members', () => {
  const was = JSON.parse('{"model":{"__proto__":1,"constructor":2}}') as Parameters<typeof configDifferences>[0];
  expect(configDifferences(was, { model: {} }).map(({ path }) => path)).toEqual(['model.__proto__', 'model.constructor']);
});
