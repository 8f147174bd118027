import { expect, test } from 'vitest';
import type { RowFormat } from './datasets/row-format.js';
import { workerElements } from './embeddings.js';
import type { VariableSpec } from './model-description.js';
import { parseRunSpec } from './run-spec.js';

const fieldsAtFault = (input: object): string[] => {
  const parsed = parseRunSpec({ embeddings: { kind: 'sparse' }, ...input });
  return parsed.ok ? [] : parsed.issues.map(({ path }) => path);
};

test('sparse embeddings go with parameter servers in mode sync', () => {
  expect(fieldsAtFault({})).toEqual([]);
  expect(fieldsAtFault({ optimizer: { name: 'adam' }, embeddings: { kind: 'sparse', slots: 'lazy' }, gradient: { clipValue: 1 } })).toEqual(
    [],
  );
});

test.each([
  ['strategy.mode', { strategy: { kind: 'parameter-server', mode: 'async' } }],
  ['strategy.kind', { strategy: { kind: 'multi-worker-mirrored' } }],
  ['strategy.standby', { strategy: { kind: 'parameter-server', standby: 1 } }],
  ['strategy.backupReplicas', { strategy: { kind: 'parameter-server', backupReplicas: 1 } }],
  ['codec', { codec: { kind: 'int8' } }],
  ['gradient.clipGlobalNorm', { gradient: { clipGlobalNorm: 1 } }],
  ['gradient.nonFinite', { gradient: { nonFinite: 'skip' } }],
  ['optimizer.name', { optimizer: { name: 'lamb' } }],
  ['engine', { engine: 'auto' }],
  ['embeddings.slots', { embeddings: { kind: 'dense', slots: 'lazy' } }],
  ['optimizer.weightDecay', { embeddings: { slots: 'lazy' }, optimizer: { name: 'adamw' } }],
])('%s is refused', (field, input) => {
  expect(fieldsAtFault(input)).toEqual([field]);
});

test('counts at a worker the rows of one round, and at most the table', () => {
  const format = { inputs: [{ shape: [3] }, { shape: [2] }], targets: [] } as unknown as RowFormat;
  const table = (rows: number) => ({ path: 't', shape: [rows, 16], section: 'trainable', rows: { input: 0 } }) as unknown as VariableSpec;
  const dense = { path: 'd', shape: [7], section: 'trainable' } as unknown as VariableSpec;
  const of = (rows: number) =>
    workerElements({ globalBatch: 1000 }, format, { parameterCount: rows * 16 + 7, stateCount: 5, variables: [table(rows), dense] });
  expect(of(1_000_000)).toBe(3001 * 16 + 7 + 5);
  expect(of(100)).toBe(100 * 16 + 7 + 5);
});
