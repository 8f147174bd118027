import { expect, test } from 'vitest';
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
