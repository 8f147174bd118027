import * as tf from '@tensorflow/tfjs-core';
import { expect, it, onTestFinished } from 'vitest';
import { failedLayer } from '../errors/failed-layer.js';
import { batchOf, loadedEngine, sequential } from '../run.fixture.js';

it.each([
  [
    tf.Conv2DBackpropFilter,
    () => {
      throw new Error('no');
    },
    'second',
  ],
  // Not in a kernel: tf.js finds a gradient of another shape than its tensor has.
  [tf.AvgPoolGrad, () => tf.zeros([1]), 'pool'],
] as const)('an error of the way back in %s names its layer', async (kernelName, kernelFunc, layer) => {
  const { engine, layout } = await loadedEngine({
    engine: 'cpu',
    model: sequential(
      ['InputLayer', { batch_input_shape: [null, 784] }],
      ['Reshape', { target_shape: [28, 28, 1] }],
      ['Conv2D', { name: 'first', filters: 2, kernel_size: 3 }],
      ['AveragePooling2D', { name: 'pool' }],
      ['Conv2D', { name: 'second', filters: 2, kernel_size: 3, activation: 'tanh' }],
      ['Flatten'],
      ['Dense', { name: 'last', units: 10 }],
    ),
  });
  const step = () => engine.step({ round: 0, replica: 0, batches: [batchOf(2)], out: new Float32Array(layout.totalLength) });
  step();
  const stock = tf.getKernel(kernelName, 'cpu')!;
  tf.unregisterKernel(kernelName, 'cpu');
  tf.registerKernel({ ...stock, kernelFunc });
  onTestFinished(() => {
    tf.unregisterKernel(kernelName, 'cpu');
    tf.registerKernel(stock);
    engine.dispose();
  });
  let thrown: unknown;
  try {
    step();
  } catch (error) {
    thrown = error;
  }
  expect(thrown).toBeInstanceOf(Error);
  expect(failedLayer(thrown)).toBe(layer);
});
