import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { beforeAll, expect, it } from 'vitest';
import { startBackend } from '../../backends/start-backend.js';
import { registerLayers } from '../register.js';

beforeAll(async () => {
  await startBackend('cpu');
  registerLayers();
});

function registered(className: string, config: Record<string, unknown>): tfl.layers.Layer {
  const [cls, fromConfig] = tf.serialization.SerializationMap.getMap().classNameMap[className]!;
  return fromConfig(cls, config as tf.serialization.ConfigDict) as tfl.layers.Layer;
}

it.each([
  [9, 12],
  [27, 5],
  [1, 26],
  [28, 28],
  [14, 1],
  [13, 14],
])('CenterCrop takes the pixels that tf.js takes, %i × %i of 28 × 28', (height, width) => {
  const image = tf.reshape(tf.range(0, 2 * 28 * 28 * 3), [2, 28, 28, 3]);
  const theirs = tfl.layers.centerCrop({ height, width }).apply(image) as tf.Tensor;
  const ours = registered('CenterCrop', { height, width }).apply(image) as tf.Tensor;
  expect(ours.shape).toEqual(theirs.shape);
  expect([...ours.dataSync()]).toEqual([...theirs.dataSync()]);
});

it('the shape of what a layer gets stays as it is', () => {
  const image = tfl.input({ batchShape: [null, 28, 28, 1] });
  expect((registered('CenterCrop', { height: 5, width: 6 }).apply(image) as tfl.SymbolicTensor).shape).toEqual([null, 5, 6, 1]);
  const row = tfl.input({ batchShape: [null, 784] });
  expect((registered('CategoryEncoding', { numTokens: 3 }).apply(row) as tfl.SymbolicTensor).shape).toEqual([null, 3]);
  expect([image.shape, row.shape]).toEqual([
    [null, 28, 28, 1],
    [null, 784],
  ]);
});
