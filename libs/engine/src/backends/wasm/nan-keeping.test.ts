import * as tf from '@tensorflow/tfjs-core';
import { expect, it } from 'vitest';
import { merged } from '../../gradients/build.fixture.js';
import { batchOf, loadedEngine, sequential } from '../../run.fixture.js';
import { startBackend } from '../start-backend.js';

const input = ['InputLayer', { batch_input_shape: [null, 784] }] as const;
const image = [
  ['Reshape', { target_shape: [28, 28, 1] }],
  ['Conv2D', { filters: 3, kernel_size: 3, activation: 'tanh' }],
] as const;
const out = ['Dense', { units: 10 }] as const;
const relu = ['Activation', { activation: 'relu' }] as const;
const keras3 = sequential(input, ['Dense', { units: 9, activation: 'hard_sigmoid' }], out) as { topology: object };

it.each([
  ['hard_tanh', sequential(input, ['Dense', { units: 9, activation: 'hard_tanh' }], out)],
  ['hard_sigmoid', sequential(input, ['Dense', { units: 9, activation: 'hard_sigmoid' }], out)],
  ['hard_sigmoid of Keras 3', { topology: { ...keras3.topology, keras_version: '3.15.1' } as never }],
  ['relu6', sequential(input, ['Dense', { units: 9, activation: 'relu6' }], out)],
  ['max pooling', sequential(input, ...image, ['MaxPooling2D', { pool_size: 3, strides: 2, padding: 'same' }], relu, ['Flatten'], out)],
  ['average pooling', sequential(input, ...image, ['AveragePooling2D', { pool_size: 2 }], relu, ['Flatten'], out)],
  ['Maximum', merged('Maximum')],
  ['Minimum', merged('Minimum')],
])('a weight that is no number leaves no number behind %s', async (name, model) => {
  const { engine, flat, layout } = await loadedEngine({ model, loss: 'sparseCategoricalCrossentropy' });
  const gradient = new Float32Array(layout.totalLength);
  const step = () => engine.step({ round: 0, replica: 0, batches: [batchOf(6)], out: gradient }).metricSums[0];
  for (let i = 0; i < 8; i++) expect(step()).toBeGreaterThan(0); // from then on it is replayed
  // The second branch of what is merged: the first operand keeps it anyway.
  flat[name === 'Maximum' || name === 'Minimum' ? layout.variables.find(({ path }) => path.startsWith('b/'))!.offset : 0] = Number.NaN;
  engine.load(flat);
  expect(step()).toBeNaN();
  expect(gradient.some(Number.isNaN)).toBe(true);
  expect(engine.evaluate(batchOf(6)).metricSums[0]).toBeNaN();
  engine.dispose();
});

it('gives what the JavaScript backend gives where there is NaN and infinities', async () => {
  const [wasm, cpu] = [await startBackend('wasm'), await startBackend('cpu')];
  const values = Float32Array.from(
    { length: 2 * 5 * 5 * 3 },
    (_, i) => [Number.NaN, Infinity, -Infinity][(i * 7) % 23] ?? Math.sin(i * 1.7) * 9,
  );
  const operations: Readonly<Record<string, (x: tf.Tensor4D) => tf.Tensor>> = {
    clip: (x) => tf.clipByValue(x, -1, 1),
    relu6: (x) => tf.relu6(x),
    'average of windows': (x) => tf.avgPool(x, [3, 2], 2, 'same'),
    maximum: (x) => tf.maximum(tf.reverse(x, 1), x),
    'maximum with one': (x) => tf.maximum(tf.scalar(0.5), x),
    minimum: (x) => tf.minimum(tf.slice(x, [0, 0, 0, 0], [1, 5, 5, 3]), x),
  };
  for (const [name, operation] of Object.entries(operations)) {
    const [a, b] = [wasm, cpu].map((backend) => {
      backend.activate();
      return tf.tidy(() => [...operation(tf.tensor4d(values, [2, 5, 5, 3])).dataSync()].map((value) => +value.toFixed(4)));
    });
    expect(a, name).toEqual(b);
  }
  wasm.activate();
  const largest = tf.tidy(() => [
    ...tf.maxPool(tf.tensor4d([1, Number.NaN, 3, 9, 8, 7, 6, Infinity, 4], [1, 3, 3, 1]), 2, 1, 'valid').dataSync(),
  ]);
  expect(largest).toEqual([Number.NaN, Number.NaN, Infinity, Infinity]);
});
