/** Models, data and comparisons of the tests, on the plain JavaScript backend of tf.js. */
import '@tensorflow/tfjs-backend-cpu';
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { expect } from 'vitest';

tf.enableProdMode();

/** Deterministic values in [-1, 1). */
export function values(count: number, seed: number): Float32Array {
  let state = seed;
  return Float32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 31 - 1;
  });
}

export const EXAMPLES = 50;
export const FEATURES = 12;
export const CLASSES = 3;

export const rows = (examples = EXAMPLES): tf.Tensor2D => tf.tensor2d(values(examples * FEATURES, 1), [examples, FEATURES]);
const labelsOf = (examples: number): number[] => {
  const x = values(examples * FEATURES, 1);
  return Array.from({ length: examples }, (_, i) => (x[i * FEATURES]! > 0.3 ? 2 : x[i * FEATURES + 1]! > 0 ? 1 : 0));
};
export const oneHot = (examples = EXAMPLES): tf.Tensor2D =>
  tf.tensor2d(
    labelsOf(examples).flatMap((label) => Array.from({ length: CLASSES }, (_, c) => (c === label ? 1 : 0))),
    [examples, CLASSES],
  );
export const labels = (examples = EXAMPLES): tf.Tensor2D => tf.tensor2d(labelsOf(examples), [examples, 1]);
export const numbers = (examples = EXAMPLES): tf.Tensor2D => tf.tensor2d(values(examples, 5), [examples, 1]);

const kernel = (seed: number) => tfl.initializers.glorotUniform({ seed });

export function mlp(output: 'softmax' | 'linear' = 'softmax', units = CLASSES): tfl.Sequential {
  return tfl.sequential({
    layers: [
      tfl.layers.dense({ units: 16, activation: 'relu', inputShape: [FEATURES], kernelInitializer: kernel(1) }),
      tfl.layers.dense({ units, activation: output, kernelInitializer: kernel(2) }),
    ],
  });
}

export type Optimizer = () => tf.Optimizer | string;
export const compiled = <M extends tfl.LayersModel>(model: M, optimizer: Optimizer, args: Partial<tfl.ModelCompileArgs> = {}): M => {
  const given: tfl.ModelCompileArgs = { optimizer: optimizer() as tf.Optimizer, loss: 'categoricalCrossentropy', metrics: ['accuracy'] };
  model.compile(Object.assign(given, args));
  return model;
};

export const QUIET = { verbose: 0 as const, shuffle: false };

/** All numbers of both histories are the same within `relative`, and so are their keys. */
export function expectSame(actual: tfl.History, expected: tfl.History, relative = 1e-4): void {
  expect(Object.keys(actual.history)).toEqual(Object.keys(expected.history));
  for (const [key, numbersOf] of Object.entries(expected.history)) {
    const got = actual.history[key] as number[];
    expect(got.length, key).toBe(numbersOf.length);
    for (const [i, value] of (numbersOf as number[]).entries())
      expect(Math.abs(got[i]! - value), `${key} of epoch ${i}: ${got[i]} and ${value}`).toBeLessThanOrEqual(
        relative * Math.max(Math.abs(value), 1e-3),
      );
  }
}

export const weightsOf = (model: tfl.LayersModel): number[][] => model.getWeights().map((weight) => [...weight.dataSync<'float32'>()]);

/** A model of two inputs with an output for a class and one for a number, of what both inputs have become. */
export function kindAndSize(
  a: tfl.SymbolicTensor,
  b: tfl.SymbolicTensor,
  both: tfl.SymbolicTensor,
  initializer: (seed: number) => ReturnType<typeof kernel>,
) {
  const kind = tfl.layers.dense({ units: CLASSES, activation: 'softmax', name: 'kind', kernelInitializer: initializer(3) });
  const size = tfl.layers.dense({ units: 1, name: 'size', kernelInitializer: initializer(4) });
  const model = tfl.model({ inputs: [a, b], outputs: [kind.apply(both) as tfl.SymbolicTensor, size.apply(both) as tfl.SymbolicTensor] });
  return compiled(model, () => tf.train.adam(0.02), {
    loss: { kind: 'categoricalCrossentropy', size: 'meanSquaredError' },
    metrics: { kind: 'accuracy', size: 'mae' } as never,
  });
}
