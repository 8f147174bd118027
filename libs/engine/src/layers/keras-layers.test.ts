/** Layers and activations of Keras that tf.js has not, or has otherwise: values and slopes by their definitions, on both backends. */
import * as tf from '@tensorflow/tfjs-core';
import type { ModelTopology } from '@paceline/spec';
import { beforeAll, describe, expect, it } from 'vitest';
import { startBackend, type StartedBackend } from '../backends/start-backend.js';
import { buildModel } from '../model/build-model.js';
import { planTopology } from '../topology/plan-topology.js';

type Config = Record<string, unknown>;
const X = [-4, -3.5, -1, -0.25, 0, 0.05, 0.2, 0.75, 1, 2, 3.5, 7];

/** The layer alone on rows of this shape, weights zero. */
function layerOf(class_name: string, config: Config, shape: readonly number[], version = '3.15.1') {
  const topology = {
    class_name: 'Sequential',
    keras_version: version,
    config: { layers: [{ class_name, config: { ...config, batch_input_shape: [null, ...shape] } }] },
  } as ModelTopology;
  return buildModel(planTopology(topology, 'm'), 'm', true);
}

/** y and dy/dx of a layer without weights at X. */
function graphOf(class_name: string, config: Config, version?: string): { y: number[]; slope: number[] } {
  const { model } = layerOf(class_name, config, [X.length], version);
  const at = (x: tf.Tensor): tf.Tensor => model.apply(x, { training: true }) as tf.Tensor;
  return tf.tidy(() => {
    const x = tf.tensor2d([X]);
    const grad = tf.grad((input: tf.Tensor) => tf.sum(at(input)));
    return { y: [...at(x).dataSync()], slope: [...grad(x).dataSync()] };
  });
}

const close = (got: readonly number[], want: readonly number[]): void =>
  got.forEach((value, i) => expect(value, `at ${X[i]}`).toBeCloseTo(want[i]!, 4));

describe.each(['wasm', 'cpu'] as const)('on %s', (name) => {
  let backend: StartedBackend;
  beforeAll(async () => {
    backend = await startBackend(name);
    backend.activate();
  });

  it('Masking gives the steps that are masked neither a value nor a slope', () => {
    const { model } = layerOf('Masking', { mask_value: 3 }, [4, 2]);
    const steps = tf.tensor3d([
      [
        [1, 2],
        [3, 3],
        [3, 4],
        [0, 0],
      ],
    ]);
    const grad = tf.grad((x: tf.Tensor) => tf.sum(tf.square(model.apply(x, { training: true }) as tf.Tensor)));
    expect([...(model.apply(steps) as tf.Tensor).dataSync()]).toEqual([1, 2, 0, 0, 3, 4, 0, 0]);
    expect([...grad(steps).dataSync()]).toEqual([2, 4, 0, 0, 6, 8, 0, 0]);
  });

  it('a causal Conv1D sees what came before, with holes too', () => {
    const stepsOf = (config: Config): number[] => {
      const { model, weights } = layerOf('Conv1D', { filters: 1, kernel_size: 3, padding: 'causal', use_bias: false, ...config }, [4, 1]);
      weights[0]!.variable!.write(tf.tensor3d([1, 10, 100], [3, 1, 1]));
      expect(model.outputs[0]!.shape.slice(1)).toEqual([config['strides'] === 2 ? 2 : 4, 1]);
      return [...tf.tidy(() => model.apply(tf.tensor3d([1, 2, 3, 4], [1, 4, 1])) as tf.Tensor).dataSync()];
    };
    expect(stepsOf({})).toEqual([100, 210, 321, 432]);
    expect(stepsOf({ strides: 2 })).toEqual([100, 321]);
    expect(stepsOf({ dilation_rate: 2 })).toEqual([100, 200, 310, 420]);
  });

  const relu = (slope: number, threshold: number, max: number) => (x: number) =>
    x >= max ? max : x >= threshold ? x : slope * (x - threshold);
  it.each<[Config, (x: number) => number]>([
    [{ negative_slope: 0.25 }, relu(0.25, 0, Infinity)],
    [{ threshold: 0.5 }, relu(0, 0.5, Infinity)],
    [{ negative_slope: 0.1, threshold: 0.5, max_value: 2.5 }, relu(0.1, 0.5, 2.5)],
    [{ max_value: 6, negative_slope: 0, threshold: 0 }, relu(0, 0, 6)],
  ])('ReLU %o is that of Keras', (config, f) => {
    const { y, slope } = graphOf('ReLU', config);
    close(y, X.map(f));
    const h = 1e-4;
    const kinks = [0, config['threshold'] ?? 0];
    X.forEach((x, i) => {
      if (!kinks.includes(x)) expect(slope[i], `at ${x}`).toBeCloseTo((f(x + h) - f(x - h)) / (2 * h), 3);
    });
  });

  it.each([1, 0.4])('ELU with alpha %d is that of Keras', (alpha) => {
    const { y, slope } = graphOf('ELU', { alpha });
    close(
      y,
      X.map((x) => (x < 0 ? alpha * (Math.exp(x) - 1) : x)),
    );
    X.forEach((x, i) => {
      if (x !== 0) expect(slope[i], `at ${x}`).toBeCloseTo(x < 0 ? alpha * Math.exp(x) : 1, 4);
    });
  });

  it('ThresholdedReLU has a gradient, LeakyReLU the slope of Keras', () => {
    const { y, slope } = graphOf('ThresholdedReLU', { theta: 0.5 });
    close(
      y,
      X.map((x) => (x > 0.5 ? x : 0)),
    );
    close(
      slope,
      X.map((x) => (x > 0.5 ? 1 : 0)),
    );
    close(
      graphOf('LeakyReLU', { negative_slope: 0.1 }).y,
      X.map((x) => (x < 0 ? 0.1 * x : x)),
    );
    close(
      graphOf('LeakyReLU', {}).y,
      X.map((x) => (x < 0 ? 0.3 * x : x)),
    );
  });

  const hard = (x: number): number => Math.min(6, Math.max(0, x + 3)) / 6;
  const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));
  const ACTIVATIONS: Readonly<Record<string, (x: number) => number>> = {
    silu: (x) => x * sigmoid(x),
    swish: (x) => x * sigmoid(x),
    hard_sigmoid: hard,
    hard_silu: (x) => x * hard(x),
    hard_swish: (x) => x * hard(x),
    leaky_relu: (x) => (x < 0 ? 0.2 * x : x),
    exponential: Math.exp,
    celu: (x) => (x < 0 ? Math.exp(x) - 1 : x),
    hard_tanh: (x) => Math.max(-1, Math.min(1, x)),
    tanh_shrink: (x) => x - Math.tanh(x),
    log_sigmoid: (x) => -Math.log1p(Math.exp(-x)),
    squareplus: (x) => (x + Math.sqrt(x * x + 4)) / 2,
    softsign: (x) => x / (1 + Math.abs(x)),
    mish: (x) => x * Math.tanh(Math.log1p(Math.exp(x))),
  };
  it.each(Object.entries(ACTIVATIONS))('%s is that of Keras 3, and so is its slope', (activation, f) => {
    const { y, slope } = graphOf('Activation', { activation });
    y.forEach((value, i) => expect(Math.abs(value - f(X[i]!)), `at ${X[i]}`).toBeLessThan(1e-5 * Math.max(1, Math.abs(f(X[i]!)))));
    const h = 1e-5;
    const kinks: readonly number[] = [-1, 0, 1];
    X.forEach((x, i) => {
      const want = (f(x + h) - f(x - h)) / (2 * h);
      if (!kinks.includes(x)) expect(Math.abs(slope[i]! - want), `slope at ${x}`).toBeLessThan(1e-4 * Math.max(1, Math.abs(want)));
    });
  });

  it('hard_sigmoid stays that of tf.js in a topology of tf.js or Keras 2', () => {
    close(
      graphOf('Activation', { activation: 'hard_sigmoid' }, '2.15.0').y,
      X.map((x) => Math.min(1, Math.max(0, 0.2 * x + 0.5))),
    );
  });

  it.each([
    ['GlobalAveragePooling1D', [2, 3], [1, 3], [2.5, 3.5, 4.5]],
    ['GlobalMaxPooling1D', [2, 3], [1, 3], [4, 5, 6]],
    ['GlobalAveragePooling2D', [2, 1, 3], [1, 1, 3], [2.5, 3.5, 4.5]],
    ['GlobalMaxPooling2D', [2, 1, 3], [1, 1, 3], [4, 5, 6]],
    ['GlobalMaxPooling2D', [3, 2, 1], [3, 1, 1], [2, 4, 6]],
  ])('%s of %j with keepdims leaves %j', (name, shape, kept, want) => {
    const config = name.endsWith('2D') && kept[0] === 3 ? { data_format: 'channels_first' } : {};
    const { model } = layerOf(name, { keepdims: true, ...config }, shape);
    const got = model.apply(tf.reshape(tf.range(1, 7), [1, ...shape])) as tf.Tensor;
    expect([got.shape, model.outputs[0]!.shape]).toEqual([
      [1, ...kept],
      [null, ...kept],
    ]);
    expect([...got.dataSync()]).toEqual(want);
  });

  it.each([
    ['same', 2, 3],
    ['valid', 3, 4],
    ['valid', 3, 2],
    ['same', 1, 5],
  ])('Conv1DTranspose with padding %s, strides %d and a kernel of %d spreads each step by its formula', (padding, strides, size) => {
    const { model, weights } = layerOf('Conv1DTranspose', { filters: 2, kernel_size: size, strides, padding }, [4, 3]);
    const values = (shape: number[], seed: number): tf.Tensor =>
      tf.sin(tf.mul(seed, tf.reshape(tf.range(1, 1 + tf.util.sizeFromShape(shape)), shape)));
    const [x, kernel, bias] = [values([1, 4, 3], 1), values([size, 2, 3], 2), values([2], 3)];
    weights.forEach(({ variable }, i) => variable!.write([kernel, bias][i]!));
    const steps = padding === 'same' ? 4 * strides : 4 * strides + Math.max(size - strides, 0);
    const before = padding === 'same' ? Math.floor(Math.max(size - strides, 0) / 2) : 0;
    const [given, weight, added] = [x, kernel, bias].map((one) => one.arraySync()) as [number[][][], number[][][], number[]];
    const want = Array.from({ length: steps }, (_, at) =>
      added.map((own, filter) => {
        let sum = own;
        for (let step = 0; step < 4; step++) {
          const place = weight[at + before - step * strides]?.[filter];
          if (place) sum += place.reduce((total, one, channel) => total + one * given[0]![step]![channel]!, 0);
        }
        return sum;
      }),
    ).flat();
    const got = model.apply(x) as tf.Tensor;
    expect([got.shape, model.outputs[0]!.shape]).toEqual([
      [1, steps, 2],
      [null, steps, 2],
    ]);
    got.dataSync().forEach((value, i) => expect(value).toBeCloseTo(want[i]!, 5));
  });

  it.each([
    [{ mean: [1, -2], variance: [4, 0] }, (x: number, i: number) => (x - [1, -2][i % 2]!) / [2, 1e-7][i % 2]!],
    [{ mean: [1, -2], variance: [4, 9], invert: true }, (x: number, i: number) => [1, -2][i % 2]! + x * [2, 3][i % 2]!],
    [{ mean: 3, variance: 4, axis: [] }, (x: number) => (x - 3) / 2],
    [
      { mean: [[1], [2], [3]], variance: [[1], [4], [9]], axis: [1, 2] },
      (x: number, i: number) => (x - [1, 2, 3][i >> 1]!) / [1, 2, 3][i >> 1]!,
    ],
  ])('Normalization with %o', (config, of) => {
    const { model } = layerOf('Normalization', config, [3, 2]);
    const got = (model.apply(tf.reshape(tf.range(0, 6), [1, 3, 2])) as tf.Tensor).dataSync();
    got.forEach((value, i) => expect(value / (of(i, i) || 1)).toBeCloseTo(of(i, i) === 0 ? 0 : 1, 5));
  });

  it.each([
    [{ mean: null, variance: null }, 'adapt the layer'],
    [{}, 'adapt it'],
    [{ mean: [1, 2, 3], variance: [1, 2, 3] }, 'its input is [3, 2]'],
    [{ mean: [[1, 2], [3]], variance: [[1, 2], [3]], axis: [1, 2] }, 'Normalization'],
    [{ mean: [1, 2], variance: 1 }, 'the same shape'],
  ])('Normalization with %o is refused', (config, message) => {
    expect(() => layerOf('Normalization', config, [3, 2])).toThrow(message);
  });

  it.each([
    ['bilinear', 7, 3],
    ['bilinear', 2, 9],
    ['nearest', 7, 3],
    ['nearest', 3, 8],
  ])('Resizing, %s, samples at the centres of pixels', async (interpolation, height, width) => {
    const image = tf.sin(tf.reshape(tf.range(0, 2 * 4 * 5 * 3), [2, 4, 5, 3])) as tf.Tensor4D;
    const { model } = layerOf('Resizing', { height, width, interpolation }, [4, 5, 3]);
    const got = model.apply(image) as tf.Tensor;
    expect(got.shape).toEqual([2, height, width, 3]);
    const resize = interpolation === 'nearest' ? tf.image.resizeNearestNeighbor : tf.image.resizeBilinear;
    const want = await resize(image, [height, width], false, true).data();
    got.dataSync().forEach((value, i) => expect(value).toBeCloseTo(want[i]!, 5));
    const turned = layerOf('Resizing', { height, width, interpolation, data_format: 'channels_first' }, [3, 4, 5]).model;
    const back = tf.transpose(turned.apply(tf.transpose(image, [0, 3, 1, 2])) as tf.Tensor, [0, 2, 3, 1]);
    expect(back.dataSync()).toEqual(got.dataSync());
  });

  it('Resizing makes no image whose matrix would have gigabytes', () => {
    expect(() => layerOf('Resizing', { height: 1, width: 1e7 }, [1, 28, 1])).toThrow('at most 599186');
  });

  it('Subtract takes the second from the first', () => {
    const on = (name: string, ...from: string[]) => ({
      class_name: name === 'out' ? 'Subtract' : 'InputLayer',
      config: name === 'out' ? { name } : { name, batch_input_shape: [null, 2] },
      inbound_nodes: from.length === 0 ? [] : [from.map((one) => [one, 0, 0, {}])],
    });
    const of = (...from: string[]) => {
      const config = {
        layers: [on('a'), on('b'), on('out', ...from)],
        input_layers: [
          ['a', 0, 0],
          ['b', 0, 0],
        ],
        output_layers: [['out', 0, 0]],
      };
      return buildModel(planTopology({ class_name: 'Model', config } as ModelTopology, 'm'), 'm', true).model;
    };
    const got = of('a', 'b').apply([tf.tensor2d([[5, 1]]), tf.tensor2d([[2, 3]])]) as tf.Tensor;
    expect([...got.dataSync()]).toEqual([3, -2]);
    expect(() => of('a', 'b', 'a')).toThrow('on two tensors');
  });

  it('CenterCrop cuts the middle out, as it is', () => {
    const { model } = layerOf('CenterCrop', { height: 2, width: 3 }, [5, 4, 1]);
    const image = tf.reshape(tf.range(0, 20), [1, 5, 4, 1]);
    expect([...(model.apply(image) as tf.Tensor).dataSync()]).toEqual([4, 5, 6, 8, 9, 10]);
  });

  it.each(['valid', 'same'])('a dilated DepthwiseConv2D with padding %s is what tf.js computes forwards', (padding) => {
    const config = { kernel_size: [3, 2], dilation_rate: [2, 3], depth_multiplier: 2, use_bias: false, padding };
    const { model, weights } = layerOf('DepthwiseConv2D', config, [9, 8, 2]);
    const ramp = (shape: number[]): tf.Tensor => tf.sin(tf.reshape(tf.range(0, tf.util.sizeFromShape(shape)), shape));
    const [x, filter] = [ramp([2, 9, 8, 2]) as tf.Tensor4D, ramp([3, 2, 2, 2]) as tf.Tensor4D];
    weights[0]!.variable!.write(filter);
    const got = model.apply(x) as tf.Tensor;
    const want = tf.depthwiseConv2d(x, filter, 1, padding as 'valid', 'NHWC', [2, 3]);
    expect(got.shape).toEqual(want.shape);
    expect(model.outputs[0]!.shape.slice(1)).toEqual(want.shape.slice(1));
    const values = want.dataSync();
    got.dataSync().forEach((value, i) => expect(value).toBeCloseTo(values[i]!, 4));
  });

  it('SeparableConv2D starts its pointwise kernel as it says', () => {
    const { weights } = layerOf(
      'SeparableConv2D',
      { filters: 3, kernel_size: 2, depthwise_initializer: 'ones', pointwise_initializer: 'zeros' },
      [4, 4, 2],
    );
    expect(weights.map(({ initializer }) => initializer.className)).toEqual(['Ones', 'Zeros', 'Zeros']);
  });
});
