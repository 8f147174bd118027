/** What comes before an update, held to the trajectories of Keras: libs/hosting reads no files. */
import { readFileSync } from 'node:fs';
import { acquireRegion } from '@paceline/exchange';
import { ParameterStore } from '@paceline/hosting';
import { Arena } from '@paceline/kernels';
import { createLayout } from '@paceline/learning';
import type { OptimizerSpec } from '@paceline/spec';
import { expect, test } from 'vitest';

function storeOf(length: number, optimizer: OptimizerSpec, clipValue?: number): ParameterStore {
  const variable = {
    path: 'dense/kernel',
    shape: [length, 1],
    section: 'trainable',
    initializer: { className: 'Zeros', config: {} },
  } as const;
  const model = { variables: [variable], inputs: [], outputs: [], parameterCount: length, stateCount: 0 };
  return new ParameterStore({
    layout: createLayout(model),
    owned: [0],
    model,
    seed: 1,
    gradientsInFlight: 1,
    examplesIn: () => 1,
    optimizer,
    clipValue,
    createArena: (options) => Arena.create(options),
  });
}

test('AdamW follows Keras: weights decay before the update, those that are excluded do not; a gradient is cut by value', () => {
  const golden = JSON.parse(readFileSync(new URL('../golden/optimizers.json', import.meta.url), 'utf8')) as {
    initial: number[];
    gradients: number[][];
    cases: { adamw: { trajectory: number[][] } };
  };
  const run = (spec: object, isInPlace: boolean, clipValue?: number): number[] => {
    const optimizer = { name: 'adamw', learningRate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-7, weightDecay: 0.004 } as const;
    const store = storeOf(golden.initial.length, Object.assign({}, optimizer, spec), clipValue);
    for (const step of store.begin()) expect(step).toBeUndefined();
    const chunk = store.chunks[0]!;
    let from = store.initial[0]!;
    let to = isInPlace ? from : acquireRegion(chunk.arena, chunk.length);
    const gradient = acquireRegion(chunk.arena, chunk.length);
    from.floats.set(golden.initial);
    for (const [round, values] of golden.gradients.entries()) {
      gradient.floats.set(values);
      if (isInPlace) {
        const update = { item: { round, replica: 0 } as never, step: round + 1, staleness: 0, fetched: undefined };
        store.updateFromItem(chunk, update, from, to, gradient, 1, { stalenessScaledRate: false, delayCompensation: 0 });
      } else store.update(chunk, round, from, to, gradient);
      [from, to] = [to, from];
    }
    return [...from.floats];
  };
  const wanted = golden.cases.adamw.trajectory.at(-1)!;
  const distance = (got: readonly number[]): number => Math.max(...got.map((value, i) => Math.abs(value - wanted[i]!)));
  expect(distance(run({}, false))).toBeLessThan(1e-6);
  expect(run({}, true)).toEqual(run({}, false));
  expect(run({ weightDecayExclude: ['*/kernel'] }, false)).toEqual(run({ weightDecay: 0 }, false));
  expect(distance(run({ weightDecay: 0 }, false))).toBeGreaterThan(1e-4);
  expect(run({}, false, 1e6)).toEqual(run({}, false));
  expect(distance(run({}, false, 0.01))).toBeGreaterThan(1e-3);
});
