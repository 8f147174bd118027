import * as tf from '@tensorflow/tfjs-core';
import { afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { startBackend } from '../../backends/start-backend.js';
import { batchOf, loadedEngine, sequential, type Loaded } from '../../run.fixture.js';
import { CONV_KERNEL, type ConvAttrs } from '../convolution/conv-wasm.js';
import { convMaxPool, type ConvPoolAttrs, type ConvPoolInputs } from './conv-pool-wasm.js';
import { heapOf, type Heap } from '../../backends/wasm/heap.js';
import { fewSet } from '../../backends/wasm/sparse.js';

vi.mock('../../backends/wasm/sparse.js', { spy: true });
beforeAll(() => startBackend('wasm', {}));

const wave = (i: number, seed: number): number => Math.fround(Math.sin(i * 12.9898 + seed * 78.233) * 0.7);
const values = (shape: readonly number[], seed: number, of = (i: number) => wave(i, seed)): tf.Tensor =>
  tf.tensor(
    Float32Array.from({ length: tf.util.sizeFromShape([...shape]) }, (_, i) => of(i)),
    [...shape],
  );

interface Case {
  /** [n, h, w, c] */
  readonly x: readonly [number, number, number, number];
  /** [i, j, c, k] */
  readonly filter: readonly [number, number, number, number];
  readonly strides?: number;
  readonly pad?: ConvAttrs['pad'];
  readonly activation?: ConvAttrs['activation'];
  readonly bias?: boolean;
  readonly pool?: readonly [number, number];
  readonly poolStrides?: readonly [number, number];
  /** Elements of x. */
  readonly of?: (i: number) => number;
}

type Result = Readonly<Record<'y' | 'x' | 'filter' | 'bias', Float32Array>>;

const GUARD = 1234.5;

/** y and the gradients, with a guard behind all scratch memory. */
function compute(shape: Case, run: (inputs: ConvPoolInputs, attrs: ConvPoolAttrs) => tf.Tensor): Result {
  const heap = heapOf(tf.backend());
  const floats = (): Float32Array => (tf.backend() as unknown as { wasm: { HEAPF32: Float32Array } }).wasm.HEAPF32;
  const scratch = heap.scratch.bind(heap);
  const guards = new Map<string, number>();
  const spy = vi.spyOn(heap, 'scratch').mockImplementation((...[name, bytes]: Parameters<Heap['scratch']>) => {
    const address = scratch(name, bytes + 4);
    guards.set(name, (address + bytes) / 4);
    floats()[(address + bytes) / 4] = GUARD;
    return address;
  });
  const { strides = 1, pad = 'valid', activation = 'relu', pool = [2, 2], poolStrides = pool } = shape;
  const attrs: ConvPoolAttrs = { strides: [strides, strides], pad, activation, poolSize: pool, poolStrides };
  const computed = () => {
    const [x, filter] = [values(shape.x, 1, shape.of), values(shape.filter, 2)];
    const given = shape.bias === false ? [x, filter] : [x, filter, values([shape.filter[3]], 3)];
    const read = (tensor: tf.Tensor | undefined): Float32Array =>
      tensor ? (tensor.dataSync() as Float32Array).slice() : new Float32Array();
    let y: Float32Array = new Float32Array();
    const { grads } = tf.valueAndGrads((...[x, filter, bias]: tf.Tensor[]) => {
      const out = run({ x: x!, filter: filter!, ...(bias ? { bias } : {}) }, attrs);
      y = read(out);
      return tf.sum(tf.mul(out, values(out.shape, 5)));
    })(given);
    const [dx, dFilter, dBias] = grads;
    return { y, x: read(dx), filter: read(dFilter), bias: read(dBias) };
  };
  try {
    const result = tf.tidy(computed);
    for (const [name, at] of guards) expect(floats()[at], `behind ${name}`).toBe(GUARD);
    return result;
  } finally {
    spy.mockRestore();
  }
}

const fused = (shape: Case): Result => compute(shape, (inputs, attrs) => convMaxPool(inputs, attrs, true));

/** The convolution, then the pooling of tf.js with our gradient. */
const apart = (shape: Case): Result =>
  compute(shape, (inputs, { poolSize, poolStrides, strides, pad, activation }) => {
    const conv: tf.Tensor4D = tf.engine().runKernel(CONV_KERNEL, { ...inputs }, { strides, pad, activation });
    return tf.maxPool(conv, [...poolSize], [...poolStrides], 'valid');
  });

function expectBits(name: string, got: Float32Array, want: Float32Array): void {
  expect(got).toHaveLength(want.length);
  for (let i = 0; i < want.length; i++) if (!Object.is(got[i], want[i])) expect.fail(`${name} ${i}: ${got[i]} for ${want[i]}`);
}

function expectClose(name: string, got: Float32Array, want: Float32Array): void {
  const largest = want.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  expect(got).toHaveLength(want.length);
  for (let i = 0; i < want.length; i++)
    if (!(Math.abs(got[i]! - want[i]!) <= 1e-5 * largest)) expect.fail(`${name} ${i}: ${got[i]} for ${want[i]}`);
}

const CASES: readonly (readonly [string, Case])[] = [
  ['one channel, as the first of the CNN', { x: [3, 28, 28, 1], filter: [3, 3, 1, 32], of: (i) => (i % 5 === 0 ? wave(i, 1) : 0) }],
  ['one channel, all pixels set', { x: [5, 12, 11, 1], filter: [3, 2, 1, 20] }],
  ['windows that leave a row and a column out', { x: [9, 13, 13, 32], filter: [3, 3, 32, 64] }],
  ['without relu', { x: [4, 13, 12, 16], filter: [3, 3, 16, 32], activation: 'linear' }],
  ['without bias', { x: [4, 13, 12, 8], filter: [3, 3, 8, 24], bias: false }],
  ['three channels to three', { x: [4, 15, 14, 3], filter: [3, 3, 3, 3] }],
  ['four channels', { x: [4, 11, 11, 4], filter: [2, 3, 4, 4], activation: 'linear', bias: false }],
  ['twenty channels', { x: [2, 18, 17, 20], filter: [3, 3, 20, 20] }],
  ['windows of 3 × 3', { x: [3, 14, 13, 8], filter: [3, 3, 8, 20], pool: [3, 3] }],
  ['windows of 3 × 2, and steps between them', { x: [3, 19, 18, 8], filter: [3, 3, 8, 7], pool: [3, 2], poolStrides: [4, 3] }],
  ['windows of 2 × 2, and steps between them', { x: [3, 19, 18, 8], filter: [3, 3, 8, 16], poolStrides: [3, 4] }],
  ['windows of one pixel', { x: [3, 9, 9, 8], filter: [3, 3, 8, 8], pool: [1, 1] }],
  ['windows of 15 × 17', { x: [2, 17, 20, 3], filter: [2, 2, 3, 5], pool: [15, 17] }],
  ['a convolution of stride 2', { x: [4, 23, 22, 8], filter: [3, 3, 8, 32], strides: 2 }],
  ['a padded convolution', { x: [4, 11, 11, 16], filter: [3, 3, 16, 32], pad: 'same' }],
  ['a padded convolution of stride 2', { x: [4, 21, 20, 3], filter: [4, 4, 3, 8], pad: 'same', strides: 2, activation: 'linear' }],
  ['one image', { x: [1, 28, 28, 1], filter: [3, 3, 1, 32] }],
  ['images larger than what is taken together', { x: [3, 44, 43, 8], filter: [3, 3, 8, 32] }],
];

describe('a convolution with the pooling behind it in one kernel', () => {
  it.each(CASES)('has the bits of the two apart, and their lists: %s', (_, shape) => {
    const [got, want] = [fused, apart].map((run) => {
      vi.mocked(fewSet).mockClear();
      const result = run(shape);
      return { ...result, lists: vi.mocked(fewSet).mock.results.map(({ value }: { value?: unknown }) => value) };
    });
    for (const name of ['y', 'x', 'filter'] as const) expectBits(name, got![name], want![name]);
    expectClose('bias', got!.bias, want!.bias);
    expect(got!.lists).toEqual(want!.lists);
    expect(Math.max(...want!.filter)).toBeGreaterThan(0.1);
  });

  it.each([
    ['an infinity', Infinity, 'relu'],
    ['an infinity', -Infinity, 'linear'],
    ['something that is not a number', NaN, 'linear'],
  ] as const)('hides no value: %s (%d, %s)', (_, odd, activation) => {
    const shape: Case = { x: [4, 13, 13, 8], filter: [3, 3, 8, 32], activation, of: (i) => (i === 1500 ? odd : wave(i, 1)) };
    const [got, want] = [fused(shape), apart(shape)];
    for (const name of ['x', 'filter'] as const) expectBits(name, got[name], want[name]);
    expect([...got.y, ...got.filter].some((value) => !Number.isFinite(value))).toBe(true);
    if (!Number.isNaN(odd)) expectBits('y', got.y, want.y);
  });

  it('gives NaN where a window has one, and no gradient behind relu', () => {
    // One filter that takes over its pixel: windows of two rows, NaN first or last in them.
    const x = tf.tensor([1, NaN, 2, 3, NaN, 4], [1, 3, 2, 1]);
    const attrs: ConvPoolAttrs = { strides: [1, 1], pad: 'valid', activation: 'relu', poolSize: [1, 2], poolStrides: [1, 2] };
    const { value, grad } = tf.valueAndGrad((x: tf.Tensor) => convMaxPool({ x, filter: tf.ones([1, 1, 1, 1]) }, attrs, true))(x);
    expect([...value.dataSync()]).toEqual([NaN, 3, NaN]);
    expect([...grad.dataSync()]).toEqual([0, 0, 0, 1, 0, 0]);
  });

  it('gives the gradient to the first largest value of a window', () => {
    const shape: Case = { x: [3, 12, 13, 1], filter: [1, 1, 1, 6], activation: 'linear', bias: false, of: (i) => ((i * 7919) % 7) - 3 };
    for (const pool of [
      [2, 2],
      [3, 2],
    ] as const) {
      const [got, want] = [fused({ ...shape, pool }), apart({ ...shape, pool })];
      for (const name of ['y', 'x', 'filter'] as const) expectBits(name, got[name], want[name]);
    }
  });
});

type Model = Parameters<typeof loadedEngine>[0]['model'];

const open: Loaded[] = [];
afterEach(() => open.splice(0).forEach(({ engine }) => engine.dispose()));

async function load(model: Model): Promise<Loaded> {
  const loaded = await loadedEngine({ model });
  open.push(loaded);
  return loaded;
}

/** The kernels that a step, or an evaluation, runs. */
function kernelsOf(act: () => void): string[] {
  const spy = vi.spyOn(tf.engine(), 'runKernel');
  act();
  const names = spy.mock.calls.map(([name]) => name);
  spy.mockRestore();
  return names;
}

const FUSED = 'PacelineConvMaxPool';
const image = ['Reshape', { target_shape: [28, 28, 1], batch_input_shape: [null, 784] }] as const;
const conv = (config: object = {}) => ['Conv2D', { filters: 4, kernel_size: 3, activation: 'relu', ...config }] as const;
const pool = (config: object = {}) => ['MaxPooling2D', { pool_size: [2, 2], ...config }] as const;
const end = [['Flatten'], ['Dense', { units: 10 }]] as const;
const step = ({ engine, layout }: Loaded, count = 3) => {
  const out = new Float32Array(layout.totalLength);
  return { out, sums: engine.step({ round: 0, replica: 0, batches: [batchOf(count)], out }) };
};

describe('a model', () => {
  it('takes them together while training and evaluating, and scores the same in both', async () => {
    const loaded = await load('cnn');
    let scores: readonly number[][] = [];
    const names = kernelsOf(() => (scores = [step(loaded).sums.metricSums, loaded.engine.evaluate(batchOf(3)).metricSums]));
    expect(names.filter((name) => name === FUSED)).toHaveLength(4);
    expect(names).not.toContain(CONV_KERNEL);
    expect(names).not.toContain(tf.MaxPool);
    expect(scores[0]).toEqual(scores[1]);
  });

  it('keeps the number of tensors over steps and evaluations, and the layer that leaks is named', async () => {
    const loaded = await load('cnn');
    const both = (): void => void [step(loaded, 2), loaded.engine.evaluate(batchOf(2))];
    both();
    const before = loaded.engine.memory();
    for (let i = 0; i < 30; i++) both();
    expect(loaded.engine.memory()).toEqual(before);
    const { kept } = loaded.engine.trace({ round: 0, replica: 0, batches: [batchOf(2)], out: new Float32Array(loaded.layout.totalLength) });
    expect(kept).toEqual([]);
  });

  it.each([
    ['overlapping windows', sequential(image, conv(), pool({ strides: [1, 2] }), ...end)],
    ['padded windows', sequential(image, conv(), pool({ padding: 'same' }), ...end)],
    ['windows of 256 cells', sequential(image, conv(), pool({ pool_size: 16 }), ...end)],
    ['another activation', sequential(image, conv({ activation: 'tanh' }), pool(), ...end)],
    ['a layer between', sequential(image, conv(), ['Dropout', { rate: 0.1 }], pool(), ...end)],
    ['average pooling', sequential(image, conv(), ['AveragePooling2D', { pool_size: 2 }], ...end)],
    ['channels first', sequential(image, conv(), pool({ data_format: 'channels_first', pool_size: [1, 1] }), ...end)],
  ])('leaves them apart: %s', async (_, model) => {
    const loaded = await load(model);
    expect(kernelsOf(() => step(loaded))).not.toContain(FUSED);
  });

  it('that is a graph leaves them apart: what the convolution gives may go elsewhere too', async () => {
    const node = (class_name: string, name: string, config: object, ...from: readonly string[]) => ({
      class_name,
      config: { name, ...config },
      inbound_nodes: from.length === 0 ? [] : [from.map((source) => [source, 0, 0, {}])],
    });
    const layers = [
      node('InputLayer', 'in', { batch_input_shape: [null, 28, 28, 1] }),
      node('Conv2D', 'conv', { filters: 4, kernel_size: 3 }, 'in'),
      node('MaxPooling2D', 'pool', { pool_size: [2, 2] }, 'conv'),
      node('GlobalAveragePooling2D', 'of_pool', {}, 'pool'),
      node('GlobalAveragePooling2D', 'of_conv', {}, 'conv'),
      node('Concatenate', 'both', {}, 'of_pool', 'of_conv'),
      node('Dense', 'out', { units: 10 }, 'both'),
    ];
    const config = { layers, input_layers: [['in', 0, 0]], output_layers: [['out', 0, 0]] };
    const loaded = await load({ topology: { class_name: 'Model', config } } as Model);
    const names = kernelsOf(() => step(loaded));
    expect(names).not.toContain(FUSED);
    expect(names).toContain(CONV_KERNEL);
  });
});
