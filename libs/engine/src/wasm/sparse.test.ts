import * as tf from '@tensorflow/tfjs-core';
import { beforeAll, describe, expect, it } from 'vitest';
import { startBackend } from '../backend.js';
import { heapOf } from './heap.js';
import { fewSet } from './sparse.js';

beforeAll(() => startBackend('wasm', {}));

const wave = (i: number, seed: number): number => Math.fround(Math.sin(i * 12.9898 + seed * 78.233) * 0.7);
/** One element in `every` is set. */
const values = (shape: number[], seed: number, every = 1): tf.Tensor =>
  tf.tensor(
    Float32Array.from({ length: tf.util.sizeFromShape(shape) }, (_, i) => (i % every === 0 ? wave(i, seed) : 0)),
    shape,
  );
const kernel = (name: string, inputs: tf.NamedTensorMap, attrs: object): tf.Tensor =>
  tf.engine().runKernel(name, inputs, attrs as tf.NamedAttrMap);

/** What the JavaScript backend makes of the same. */
async function onCpu(compute: () => tf.Tensor): Promise<Float32Array> {
  await tf.setBackend('cpu');
  const result = compute().dataSync() as Float32Array;
  await tf.setBackend('wasm');
  return result;
}

const isListed = (a: tf.Tensor, columns: number, b: tf.Tensor): boolean => {
  const heap = heapOf(tf.backend());
  return fewSet(heap, heap.address(a), a.size, columns, heap.address(b), b.size) !== undefined;
};

describe('an operand that is mostly zeros', () => {
  it.each([
    ['x·w', { transposeA: false, x: [96, 70] }, [70, 40]],
    ['xᵀ·w', { transposeA: true, x: [70, 96] }, [70, 40]],
  ])('%s is the product of the JavaScript backend', async (_, { transposeA, x }, w) => {
    const product = (): tf.Tensor => tf.matMul(values(x, 1, 5) as tf.Tensor2D, values(w, 2) as tf.Tensor2D, transposeA, false);
    expect(isListed(values(x, 1, 5), 40, values(w, 2))).toBe(true);
    expectClose(product().dataSync() as Float32Array, await onCpu(product));
  });

  it.each([
    ['valid', 1, 16],
    ['same', 1, 8],
    ['valid', 2, 24],
    ['same', 2, 32],
  ] as const)(
    'the gradients of a convolution, %s, stride %i, %i channels, are those of the JavaScript backend',
    async (pad, strides, c) => {
      const [inputShape, filterShape, k] = [[5, 13, 12, c], [3, 2, c, 20], 20] as const;
      const info = tf.backend_util.computeConv2DInfo([...inputShape] as never, [...filterShape] as never, strides, 1, pad);
      const shared = { strides, pad, dataFormat: 'NHWC', dimRoundingMode: undefined };
      const dy = (): tf.Tensor => values([5, info.outHeight, info.outWidth, k], 3, 7);
      const filter = (): tf.Tensor =>
        kernel(tf.Conv2DBackpropFilter, { x: values([...inputShape], 1), dy: dy() }, { ...shared, filterShape });
      const input = (): tf.Tensor =>
        kernel(tf.Conv2DBackpropInput, { dy: dy(), filter: values([...filterShape], 2) }, { ...shared, inputShape });
      if (dy().size >= 4096) expect(isListed(dy(), c, values([...filterShape], 2))).toBe(true);
      expectClose(filter().dataSync() as Float32Array, await onCpu(filter));
      expectClose(input().dataSync() as Float32Array, await onCpu(input));
    },
  );

  it.each([
    ['valid', 1, 1],
    ['same', 2, 3],
  ] as const)('the filter of a convolution over blank images, %s, stride %i, %i channels, has the same', async (pad, strides, c) => {
    const [inputShape, filterShape] = [
      [6, 30, 29, c],
      [3, 3, c, 24],
    ];
    const info = tf.backend_util.computeConv2DInfo(inputShape as never, filterShape as never, strides, 1, pad);
    const dyShape = [6, info.outHeight, info.outWidth, 24];
    const attrs = { strides, pad, dataFormat: 'NHWC', dimRoundingMode: undefined, filterShape };
    const filter = (): tf.Tensor => kernel(tf.Conv2DBackpropFilter, { x: values(inputShape, 1, 5), dy: values(dyShape, 3) }, attrs);
    expect(isListed(values(inputShape, 1, 5), 24, values(dyShape, 3))).toBe(true);
    expectClose(filter().dataSync() as Float32Array, await onCpu(filter));
  });

  it('hides no infinity behind a zero', () => {
    const x = values([100, 64], 1, 4);
    const w = values([64, 32], 2).dataSync() as Float32Array;
    w[33] = Infinity; // of the second row: column 1 of x is 0 everywhere
    const product = tf.matMul(x as tf.Tensor2D, tf.tensor2d(w, [64, 32])).dataSync();
    expect(isListed(x, 32, tf.tensor2d(w, [64, 32]))).toBe(false);
    expect([...product].filter(Number.isNaN)).toHaveLength(100);
  });
});

it.each([
  ['half of it is set', [100, 64], 2, 32],
  ['it is small', [10, 64], 10, 32],
  ['the columns are not eight at a time', [100, 64], 10, 12],
])('is taken as it is where %s', (_, shape, every, columns) => {
  expect(isListed(values(shape, 1, every), columns, values([shape[1]!, columns], 2))).toBe(false);
});

function expectClose(got: Float32Array, want: Float32Array): void {
  const largest = want.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  expect(largest).toBeGreaterThan(0.1);
  expect(got).toHaveLength(want.length);
  for (let i = 0; i < want.length; i++)
    if (!(Math.abs(got[i]! - want[i]!) < 1e-5 * largest)) expect.fail(`element ${i}: ${got[i]} for ${want[i]}`);
}
