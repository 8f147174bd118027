import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { afterEach, expect, it } from 'vitest';
import { batchOf, bitsOf, loadedEngine, sequential, type Loaded } from '../run.fixture.js';

let loaded: Loaded;
const kept: tf.Tensor[] = [];
afterEach(() => {
  for (const tensor of kept.splice(0)) tensor.dispose();
  loaded.engine.dispose();
});

type Call = (inputs: tf.Tensor | tf.Tensor[], kwargs: object) => tf.Tensor;

/** Replaces the call of a layer by one that does `more` with what comes out. */
function plant(layerName: string, more: (output: tf.Tensor) => tf.Tensor): void {
  const { layers } = (loaded.engine as unknown as { model: { layers: tfl.layers.Layer[] } }).model;
  const layer = layers.find(({ name }) => name === layerName) as unknown as { call: Call };
  const call = layer.call.bind(layer);
  layer.call = (inputs, kwargs) => more(call(inputs, kwargs));
}

async function load(): Promise<Float32Array> {
  const model = sequential(
    ['InputLayer', { batch_input_shape: [null, 784] }],
    ['Dense', { units: 16, activation: 'relu', name: 'first' }],
    ['BatchNormalization', { name: 'norm' }],
    ['Dropout', { rate: 0.5, name: 'drop' }],
    ['Dense', { units: 10, name: 'second' }],
  );
  loaded = await loadedEngine({ model, globalBatch: 16, replicas: 1 });
  return new Float32Array(loaded.layout.totalLength);
}

const requestOf = (out: Float32Array) => ({ round: 3, replica: 0, batches: [batchOf(8)], out });

it('a step that leaves nothing is traced with nothing kept, and with the same bits', async () => {
  const out = await load();
  const sums = loaded.engine.step(requestOf(out));
  const plain = Buffer.from(bitsOf(out));
  const before = loaded.engine.memory();
  expect(loaded.engine.trace(requestOf(out.fill(7)))).toEqual({ result: sums, kept: [] });
  expect(bitsOf(out).equals(plain)).toBe(true);
  expect(loaded.engine.memory()).toEqual(before);
});

it('names the layer and the operation whose tensors stay', async () => {
  const out = await load();
  plant('second', (output) => {
    kept.push(tf.keep(tf.square(output)));
    return output;
  });
  const { tensors } = loaded.engine.memory();
  const { kept: found } = loaded.engine.trace(requestOf(out));
  expect(found).toEqual([{ layer: 'second (Dense)', op: 'Square', tensors: 1, buffers: 0, bytes: 8 * 10 * 4 }]);
  expect(loaded.engine.memory().tensors).toBe(tensors + 1);
});

it('names the layer whose gradient keeps a tensor', async () => {
  const out = await load();
  const leaky = tf.customGrad((x: unknown) => ({
    value: tf.clone(x as tf.Tensor),
    gradFunc: (dy: tf.Tensor) => {
      kept.push(tf.keep(tf.neg(dy)));
      return dy;
    },
  }));
  plant('drop', (output) => leaky(output));
  const [most] = loaded.engine.trace(requestOf(out)).kept;
  expect(most).toMatchObject({ layer: 'drop (Dropout)', tensors: 1, bytes: 8 * 16 * 4 });
  expect(most!.op).toMatch(/^gradient of /);
});

it('names the operation that leaves values in the backend which no tensor names', async () => {
  const out = await load();
  const data: object[] = [];
  const leaky = tf.customGrad((x: unknown) => {
    data.push(tf.backend().write(new Float32Array(4), [4], 'float32'));
    return { value: tf.clone(x as tf.Tensor), gradFunc: (dy: tf.Tensor) => dy };
  });
  plant('norm', (output) => leaky(output));
  const { kept: found } = loaded.engine.trace(requestOf(out));
  for (const dataId of data) tf.backend().disposeData(dataId);
  expect(found).toEqual([{ layer: 'norm (BatchNormalization)', op: 'a custom operation', tensors: 0, buffers: 1, bytes: 0 }]);
});

it('leaves tf.js as it was, also when a step fails', async () => {
  const out = await load();
  const own = Object.keys(tf.engine());
  const wrong = { ...batchOf(2), targets: [Float32Array.of(3, 10)] };
  expect(() => loaded.engine.trace({ ...requestOf(out), batches: [wrong] })).toThrow('label 10');
  expect(Object.keys(tf.engine())).toEqual(own);
  loaded.engine.step(requestOf(out));
});
