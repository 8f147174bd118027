import * as tf from '@tensorflow/tfjs-core';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { startBackend } from '../start-backend.js';
import { heapOf, type Heap } from './heap.js';
import { fewSet } from './sparse.js';

vi.mock('./sparse.js', { spy: true });
beforeAll(() => startBackend('wasm', {}));

const wave = (i: number, seed: number): number => Math.fround(Math.sin(i * 12.9898 + seed * 78.233) * 0.7);
const everySo = (many: number) => (i: number) => i % many === 0;
const values = (shape: readonly number[], seed: number, isSet: (i: number) => boolean = () => true): tf.Tensor =>
  tf.tensor(
    Float32Array.from({ length: tf.util.sizeFromShape([...shape]) }, (_, i) => (isSet(i) ? wave(i, seed) : 0)),
    [...shape],
  );
/** The same with another last element. */
const endingWith = (last: number, tensor: tf.Tensor): tf.Tensor => {
  const floats = tensor.dataSync() as Float32Array;
  return tf.tensor(floats.with(-1, last), tensor.shape);
};
const kernel = (name: string, inputs: tf.NamedTensorMap, attrs: object): tf.Tensor =>
  tf.engine().runKernel(name, inputs, attrs as tf.NamedAttrMap);

type Compute = () => tf.Tensor;

/** What the JavaScript backend makes of the same. */
async function onCpu(compute: Compute): Promise<Float32Array> {
  await tf.setBackend('cpu');
  const result = compute().dataSync() as Float32Array;
  await tf.setBackend('wasm');
  return result;
}

/** What the products of this engine make of the same that leave no zeros out. */
function densely(compute: Compute): Float32Array {
  vi.mocked(fewSet).mockReturnValue(undefined);
  try {
    return compute().dataSync() as Float32Array;
  } finally {
    vi.mocked(fewSet).mockReset();
  }
}

const GUARD = 1234.5;

interface AsItComes {
  readonly got: Float32Array;
  /** How many operands were taken by lists, and the entries that there was room for. */
  readonly lists: number;
  readonly room: number;
}

/** With a guard behind all scratch memory. */
function asItComes(compute: Compute): AsItComes {
  const heap = heapOf(tf.backend());
  const floats = (): Float32Array => (tf.backend() as unknown as { wasm: { HEAPF32: Float32Array } }).wasm.HEAPF32;
  const scratch = heap.scratch.bind(heap);
  const guards = new Map<string, number>();
  let room = 0;
  const spy = vi.spyOn(heap, 'scratch').mockImplementation((...[name, bytes]: Parameters<Heap['scratch']>) => {
    const address = scratch(name, bytes + 4);
    guards.set(name, (address + bytes) / 4);
    floats()[(address + bytes) / 4] = GUARD;
    if (name === 'entries') room = bytes / 8;
    return address;
  });
  vi.mocked(fewSet).mockClear();
  const got = compute().dataSync() as Float32Array;
  spy.mockRestore();
  for (const [name, at] of guards) expect(floats()[at], `behind ${name}`).toBe(GUARD);
  return { got, lists: vi.mocked(fewSet).mock.results.filter(({ value }) => value !== undefined).length, room };
}

function expectBitsOfDense(compute: Compute): AsItComes {
  const result = asItComes(compute);
  expect(result.lists).toBe(1);
  expectBits(result.got, densely(compute));
  return result;
}

interface Convolution {
  readonly inputShape: readonly [number, number, number, number];
  readonly filterShape: readonly [number, number, number, number];
  readonly dyShape: readonly [number, number, number, number];
  ofFilter(x: tf.Tensor, dy: tf.Tensor): tf.Tensor;
  ofInput(dy: tf.Tensor, filter: tf.Tensor): tf.Tensor;
}

function convolution(
  inputShape: Convolution['inputShape'],
  filterShape: Convolution['filterShape'],
  pad: 'valid' | 'same' = 'valid',
  strides = 1,
): Convolution {
  const { outShape } = tf.backend_util.computeConv2DInfo([...inputShape], [...filterShape], strides, 1, pad);
  const shared = { strides, pad, dataFormat: 'NHWC', dimRoundingMode: undefined };
  return {
    inputShape,
    filterShape,
    dyShape: outShape,
    ofFilter: (x, dy) => kernel(tf.Conv2DBackpropFilter, { x, dy }, { ...shared, filterShape }),
    ofInput: (dy, filter) => kernel(tf.Conv2DBackpropInput, { dy, filter }, { ...shared, inputShape }),
  };
}

const matMul = (a: tf.Tensor, b: tf.Tensor, transposeA = false): tf.Tensor => tf.matMul(a as tf.Tensor2D, b as tf.Tensor2D, transposeA);

describe('an operand that is mostly zeros gives the bits of the dense product', () => {
  it.each([
    ['x·w', false, [96, 70]],
    ['xᵀ·w', true, [70, 96]],
  ])('in %s', async (_, transposeA, x) => {
    const product = (): tf.Tensor => matMul(values(x, 1, everySo(5)), values([70, 40], 2), transposeA);
    expectBitsOfDense(product);
    expectClose(densely(product), await onCpu(product));
  });

  it.each([
    ['valid', 1, 16],
    ['same', 1, 8],
    ['valid', 2, 24],
    ['same', 2, 32],
  ] as const)('in the gradients of a convolution, %s, stride %i, %i channels', async (pad, strides, c) => {
    const { inputShape, filterShape, dyShape, ofFilter, ofInput } = convolution([6, 13, 12, c], [3, 2, c, 20], pad, strides);
    const dy = (): tf.Tensor => values(dyShape, 3, everySo(7));
    const filter = (): tf.Tensor => ofFilter(values(inputShape, 1), dy());
    const input = (): tf.Tensor => ofInput(dy(), values(filterShape, 2));
    for (const gradient of [filter, input]) {
      expectBitsOfDense(gradient);
      expectClose(densely(gradient), await onCpu(gradient));
    }
  });

  it.each([
    ['columns in steps of 32, 16 and 8', [12, 9, 8, 56], [3, 3, 56, 9], 'valid'],
    ['two steps of 32 under a frame of zeros', [4, 7, 9, 64], [3, 2, 64, 21], 'same'],
    ['a filter as large as the image but for a pixel', [27, 6, 5, 32], [5, 4, 32, 40], 'valid'],
    ['a filter larger than the image', [11, 4, 3, 40], [7, 5, 40, 33], 'same'],
    ['one row', [4, 1, 70, 8], [1, 5, 8, 17], 'valid'],
    ['one pixel to the filter', [2, 9, 9, 48], [1, 1, 48, 32], 'same'],
  ] as const)('in the gradients of a convolution whose pixels are added up at once: %s', (_, x, filterShape, pad) => {
    const { inputShape, dyShape, ofFilter, ofInput } = convolution(x, filterShape, pad);
    for (const isSet of [everySo(7), (i: number) => i % 11 === 3 || i < 60, () => false]) {
      const dy = values(dyShape, 3, isSet);
      for (const odd of [1.5, 2e-45, -0, 3e38]) {
        expectBitsOfDense(() => ofInput(endingWith(odd, dy), endingWith(odd, values(filterShape, 2))));
        expectBitsOfDense(() => ofFilter(endingWith(odd, values(inputShape, 1)), endingWith(odd, dy)));
      }
      // What is not finite in the gradient itself is listed like any other element.
      expectBitsOfDense(() => ofInput(endingWith(-Infinity, dy), values(filterShape, 2)));
      expectBitsOfDense(() => ofInput(endingWith(NaN, dy), values(filterShape, 2)));
    }
  });

  it.each([
    ['valid', 1, 1],
    ['same', 2, 3],
    ['valid', 3, 2],
    ['valid', 4, 1],
  ] as const)('in the filter of a convolution over blank images, %s, stride %i, %i channels', async (pad, strides, c) => {
    const { inputShape, dyShape, ofFilter } = convolution([6, 30, 29, c], [3, 3, c, 24], pad, strides);
    const filter = (): tf.Tensor => ofFilter(values(inputShape, 1, everySo(5)), values(dyShape, 3));
    expectBitsOfDense(filter);
    expectClose(densely(filter), await onCpu(filter));
  });
});

/** 128 pixels of a gradient are listed at once, or one image: what is set may all lie in one of them, or fill it. Each list has one entry to spare. */
describe('the room for lists is enough, and no larger than what is listed at once,', () => {
  it.each([
    ['within one block', 100, 100 * 20 + 20],
    ['in all of two blocks', 256, 128 * 20 + 20],
  ])('for a gradient that is set %s', (_, pixels, entries) => {
    const { inputShape, dyShape, ofFilter } = convolution([7, 13, 12, 8], [3, 2, 8, 20]);
    const dy = values(dyShape, 3, (i) => i < pixels * 20);
    expect(expectBitsOfDense(() => ofFilter(values(inputShape, 1), dy)).room).toBe(entries);
  });

  it.each([
    ['in one row, where each element meets three windows', (i: number) => i >= 2 && i < 27, 25 * 3 + 3 * 30],
    ['at the end of each row', (i: number) => i % 29 > 22, 3 * 30 * 27 + 3 * 30],
    ['in all of the first of them', (i: number) => i < 30 * 29, 3 * 30 * 27 + 3 * 30],
  ])('for images that are set %s', (_, isSet, entries) => {
    const { inputShape, dyShape, ofFilter } = convolution([6, 30, 29, 1], [3, 3, 1, 24]);
    const x = values(inputShape, 1, isSet);
    expect(expectBitsOfDense(() => ofFilter(x, values(dyShape, 3))).room).toBe(entries);
  });

  it('for images whose rows do not fill the last step down', () => {
    const { inputShape, dyShape, ofFilter } = convolution([8, 5, 201, 1], [3, 3, 1, 24], 'valid', 2);
    const x = values(inputShape, 1, (i) => i < 6 * 201);
    expect(expectBitsOfDense(() => ofFilter(x, values(dyShape, 3))).room).toBe(3 * 5 * 100 + 3 * 2 * 3);
  });

  it('for a gradient that is set in all of some images', () => {
    const { filterShape, dyShape, ofInput } = convolution([24, 3, 3, 8], [3, 2, 8, 200]);
    const dy = values(dyShape, 3, (i) => i < 7 * 2 * 200);
    expect(expectBitsOfDense(() => ofInput(dy, values(filterShape, 2))).room).toBe(2 * 200 + 2);
  });
});

describe('no infinity hides behind a zero', () => {
  const { inputShape, filterShape, dyShape, ofFilter, ofInput } = convolution([6, 13, 12, 16], [3, 2, 16, 24]);
  it.each<[string, Compute]>([
    ['of a product', () => matMul(values([100, 64], 1, everySo(4)), endingWith(Infinity, values([64, 32], 2)))],
    ['of dy, in the gradient of a filter', () => ofFilter(endingWith(Infinity, values(inputShape, 1)), values(dyShape, 3, everySo(7)))],
    ['of x, in the gradient of a filter', () => ofFilter(values(inputShape, 1, everySo(5)), endingWith(NaN, values(dyShape, 3)))],
    ['of dy, in the gradient of an input', () => ofInput(values(dyShape, 3, everySo(7)), endingWith(Infinity, values(filterShape, 2)))],
  ])('%s', (_, compute) => {
    const { got, lists } = asItComes(compute);
    expect(got.some(Number.isNaN)).toBe(true);
    expectBits(got, densely(compute));
    expect(lists).toBe(0);
  });
});

it.each([
  ['half of it is set', [100, 64], 2, 32],
  ['it is small', [10, 64], 10, 32],
  ['the columns are not eight at a time', [100, 64], 10, 12],
] as const)('is taken as it is where %s', (_, shape, every, columns) => {
  expect(asItComes(() => matMul(values(shape, 1, everySo(every)), values([shape[1], columns], 2))).lists).toBe(0);
});

it('is taken as it is where the other operand is transposed', () => {
  const product = (): tf.Tensor =>
    tf.matMul(values([100, 64], 1, everySo(10)) as tf.Tensor2D, values([32, 64], 2) as tf.Tensor2D, false, true);
  expect(asItComes(product).lists).toBe(0);
});

function expectBits(got: Float32Array, want: Float32Array): void {
  expect(got).toHaveLength(want.length);
  for (let i = 0; i < want.length; i++) if (!Object.is(got[i], want[i])) expect.fail(`element ${i}: ${got[i]} for ${want[i]}`);
}

function expectClose(got: Float32Array, want: Float32Array): void {
  const largest = want.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  expect(largest).toBeGreaterThan(0.1);
  expect(got).toHaveLength(want.length);
  for (let i = 0; i < want.length; i++)
    if (!(Math.abs(got[i]! - want[i]!) < 1e-5 * largest)) expect.fail(`element ${i}: ${got[i]} for ${want[i]}`);
}
