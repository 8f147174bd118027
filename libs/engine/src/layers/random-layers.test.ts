import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { beforeAll, expect, it } from 'vitest';
import { startBackend } from '../backends/start-backend.js';
import { Randomness } from '../training/randomness.js';
import { registerLayers } from './register.js';
import { stockClass } from './replace-class.js';
import { drawFromStreams } from './random-layers.js';

beforeAll(async () => {
  await startBackend('cpu');
});

function trained(layer: tfl.layers.Layer, input: tf.Tensor): number[] {
  const randomness = new Randomness();
  randomness.scopeLayer(layer);
  drawFromStreams(layer, randomness);
  return randomness.during({ seed: 1, round: 2, replica: 3, microBatch: 0 }, () => {
    const output = layer.apply(input, { training: true }) as tf.Tensor;
    return [...output.dataSync()];
  });
}
const mean = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0) / values.length;
const deviation = (values: readonly number[]): number => {
  const centre = mean(values);
  return Math.sqrt(mean(values.map((v) => (v - centre) ** 2)));
};

it('dropout drops a share of `rate` and scales what it keeps', () => {
  const values = trained(tfl.layers.dropout({ rate: 0.3, seed: 5 }), tf.ones([100, 200]));
  expect(new Set(values)).toEqual(new Set([0, Math.fround(1 / 0.7)]));
  expect(values.filter((v) => v === 0).length / values.length).toBeCloseTo(0.3, 1.7);
  // No row is the copy of another one.
  expect(new Set(Array.from({ length: 100 }, (_, row) => values.slice(row * 200, row * 200 + 200).join())).size).toBe(100);
});

it('dropout honours noiseShape, and spatial dropout drops whole features', () => {
  const rows = trained(tfl.layers.dropout({ rate: 0.5, noiseShape: [100, 1] }), tf.ones([100, 7]));
  for (let row = 0; row < 100; row++) expect(new Set(rows.slice(row * 7, row * 7 + 7)).size).toBe(1);
  expect(new Set(rows)).toEqual(new Set([0, 2]));
  const features = trained(tfl.layers.spatialDropout1d({ rate: 0.5 }), tf.ones([20, 5, 3]));
  for (let n = 0; n < 20; n++)
    for (let c = 0; c < 3; c++) expect(new Set([0, 1, 2, 3, 4].map((t) => features[(n * 5 + t) * 3 + c])).size).toBe(1);
});

it.each([
  [{}, (n: number, at: number, c: number) => (n * 6 + at) * 3 + c],
  [{ dataFormat: 'channelsFirst' }, (n: number, at: number, c: number) => (n * 3 + c) * 6 + at],
])('spatial dropout of images drops whole channels, with %o', (config, place) => {
  registerLayers();
  const layer = new (stockClass('SpatialDropout2D'))({ rate: 0.5, ...config });
  const values = trained(layer, tf.ones('dataFormat' in config ? [20, 3, 2, 3] : [20, 2, 3, 3]));
  for (let n = 0; n < 20; n++)
    for (let c = 0; c < 3; c++) expect(new Set(Array.from({ length: 6 }, (_, at) => values[place(n, at, c)])).size).toBe(1);
  expect(new Set(values)).toEqual(new Set([0, 2]));
});

it('noise has the deviation that the layer says', () => {
  const added = trained(tfl.layers.gaussianNoise({ stddev: 0.5 }), tf.fill([100, 200], 3));
  expect(mean(added)).toBeCloseTo(3, 1.5);
  expect(deviation(added)).toBeCloseTo(0.5, 1.5);
  const multiplied = trained(tfl.layers.gaussianDropout({ rate: 0.2 }), tf.fill([100, 200], 2));
  expect(mean(multiplied)).toBeCloseTo(2, 1.5);
  expect(deviation(multiplied)).toBeCloseTo(2 * Math.sqrt(0.25), 1.5);
});

it('rates of 0 and 1 need no numbers', () => {
  expect(trained(tfl.layers.dropout({ rate: 0 }), tf.ones([3]))).toEqual([1, 1, 1]);
  expect(trained(tfl.layers.dropout({ rate: 1 }), tf.ones([3]))).toEqual([0, 0, 0]);
});

it('nothing can be drawn outside of a step, and steps do not nest', () => {
  const randomness = new Randomness();
  const key = { seed: 1, round: 0, replica: 0, microBatch: 0 };
  expect(() => randomness.stream()).toThrow('outside of a replica step');
  expect(() => randomness.during(key, () => randomness.during(key, () => 1))).toThrow('inside another one');
});
