/** Local updates against what they are meant to be: with one local step and averaging, plain synchronous SGD. */
import { parseRunSpec, type RunSpec, type RunSpecInput } from '@paceline/spec';
import { expect, test } from 'vitest';
import { trainReference } from './reference.js';

function specOf(strategy: RunSpecInput['strategy']): RunSpec {
  const optimizer = { name: 'sgd', learningRate: 0.1 } as const;
  const parsed = parseRunSpec({ model: 'mlp-dropout', globalBatch: 24, replicas: 4, length: { rounds: 12 }, seed: 3, optimizer, strategy });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  return parsed.spec;
}

const farthest = (a: Float32Array, b: Float32Array): number => a.reduce((most, value, i) => Math.max(most, Math.abs(value - b[i]!)), 0);

test('one local step of SGD and an average at rate 1 are synchronous SGD, within rounding; more steps are not', async () => {
  const plain = await trainReference(specOf({ kind: 'parameter-server' }));
  const averaged = await trainReference(specOf({ kind: 'local-update', localSteps: 1 }));
  expect(averaged.rows).toEqual(plain.rows);
  expect(farthest(averaged.weights, plain.weights)).toBeLessThan(1e-5);
  const postLocal = await trainReference(specOf({ kind: 'local-update', localSteps: 6, syncSteps: 12 }));
  expect(farthest(postLocal.weights, plain.weights)).toBeLessThan(1e-5);
  const several = await trainReference(specOf({ kind: 'local-update', localSteps: 2 }));
  expect(farthest(several.weights, plain.weights)).toBeGreaterThan(1e-2);
});
