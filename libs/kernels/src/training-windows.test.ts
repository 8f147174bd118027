/**
 * Convolutions by windows, alone and with max pooling in the same pass, against loops in TypeScript that round every operation: bit for bit, over shapes that end
 * within every tile, panel and unrolled loop, with numbers that hide mistakes badly. Guards around each result.
 */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { EDGE_BYTES, fusesMultiplyAdd, instantiateTrainingKernels, POOLED_TILE_BYTES_PER_K, type TrainingVariant } from './training.js';
import type { PlainMemory } from './webassembly.js';

const { Memory } = (globalThis as unknown as { WebAssembly: { Memory: new (size: { initial: number }) => PlainMemory } }).WebAssembly;
const memory = new Memory({ initial: 128 });
const heap = new Float32Array(memory.buffer);
const bytes = new Uint8Array(memory.buffer);
const GUARD = 1234.5;
const wave = (i: number, seed: number): number => Math.fround(Math.sin(i * 12.9898 + seed * 78.233) * 0.7);

interface Shape {
  readonly images: number;
  readonly h: number;
  readonly w: number;
  readonly c: number;
  readonly filterH: number;
  readonly filterW: number;
  readonly strideH: number;
  readonly strideW: number;
  readonly n: number;
  readonly poolH: number;
  readonly poolW: number;
  readonly relu: boolean;
  readonly withPlaces: boolean;
  /** One element of the image in so many is set, the others are 0. */
  readonly everyOne: number;
  /** An element of the image, and what it is. */
  readonly odd: number;
}

const shapes: fc.Arbitrary<Shape> = fc.record({
  images: fc.integer({ min: 1, max: 3 }),
  h: fc.integer({ min: 5, max: 12 }),
  w: fc.integer({ min: 5, max: 12 }),
  c: fc.constantFrom(1, 2, 3, 4, 5, 8, 9, 16, 17),
  filterH: fc.integer({ min: 1, max: 3 }),
  filterW: fc.integer({ min: 1, max: 4 }),
  strideH: fc.integer({ min: 1, max: 2 }),
  strideW: fc.integer({ min: 1, max: 2 }),
  n: fc.integer({ min: 1, max: 35 }),
  poolH: fc.integer({ min: 2, max: 3 }),
  poolW: fc.integer({ min: 2, max: 3 }),
  relu: fc.boolean(),
  withPlaces: fc.boolean(),
  everyOne: fc.constantFrom(1, 2, 40, 1000),
  odd: fc.constantFrom(0, -0, 1.5, 2e-45, -1e-40, 3e38, Infinity, -Infinity, NaN),
});

/** Hands out the memory from the start, with a guard behind and before each part. */
function places() {
  let top = 256;
  const guards: number[] = [];
  return {
    take: (floats: number): number => {
      heap[top] = GUARD;
      const at = top + 4;
      top = at + Math.ceil(floats / 4) * 4;
      heap[at + floats] = GUARD;
      guards.push(at - 4, at + floats);
      top += 4;
      return at * 4;
    },
    areWhole: (): boolean => guards.every((at) => heap[at] === GUARD),
  };
}

function laidOut(variant: TrainingVariant, shape: Shape) {
  const { images, h, w, c, filterH, filterW, strideH, strideW, n } = shape;
  const kernels = instantiateTrainingKernels(memory, variant);
  const { take, areWhole } = places();
  const [p, q] = [Math.floor((h - filterH) / strideH) + 1, Math.floor((w - filterW) / strideW) + 1];
  const [run, depth] = [filterW * c, filterH * filterW * c];
  const [x, filter, bias] = [take(images * h * w * c), take(depth * n), take(n)];
  for (let i = 0; i < images * h * w * c; i++) heap[x / 4 + i] = i % shape.everyOne === 0 ? wave(i, 1) : 0;
  heap[x / 4 + ((images * h * w * c) >> 1)] = shape.odd;
  for (let i = 0; i < depth * n; i++) heap[filter / 4 + i] = wave(i, 2);
  for (let i = 0; i < n; i++) heap[bias / 4 + i] = wave(i, 3);
  const panelBytes = (depth + 1) * 32;
  const [packed, edge] = [take((panelBytes / 4) * Math.ceil(n / 8)), take(EDGE_BYTES / 4)];
  kernels.packBias(bias, n, packed, panelBytes);
  kernels.packPlain(filter, n * 4, depth, n, packed + 32, panelBytes);
  const rowBytes = w * c * 4;
  return { kernels, take, areWhole, p, q, run, depth, x, filter, bias, packed, edge, rowBytes, jump: rowBytes - run * 4 };
}

type Laid = ReturnType<typeof laidOut>;

function convolve(laid: Laid, shape: Shape): number {
  const { kernels, take, p, q, run, x, packed, edge, rowBytes, jump } = laid;
  const { images, h, c, filterH, strideH, strideW, n, relu } = shape;
  const [table, out] = [take(images * p * q), take(images * p * q * n)];
  kernels.tabulateWindows(table, x, images, p, q, h * rowBytes, strideH * rowBytes, strideW * c * 4);
  kernels.multiplyWindows(table, images * p * q, filterH, run, jump, packed, n, out, n * 4, relu ? 1 : 0, edge);
  return out;
}

/** One output of the convolution, each operation rounded. */
function element(laid: Laid, shape: Shape, image: number, row: number, column: number, filter: number): number {
  const { h, w, c, filterH, strideH, strideW, n, relu } = shape;
  let sum = heap[laid.bias / 4 + filter]!;
  for (let i = 0; i < filterH; i++) {
    for (let l = 0; l < laid.run; l++) {
      const a = heap[laid.x / 4 + ((image * h + row * strideH + i) * w + column * strideW) * c + l]!;
      sum = Math.fround(sum + Math.fround(a * heap[laid.filter / 4 + (i * laid.run + l) * n + filter]!));
    }
  }
  return relu && sum < 0 ? 0 : sum;
}

function expectBits(got: ArrayLike<number>, want: ArrayLike<number>, what: string): void {
  for (let i = 0; i < want.length; i++) if (!Object.is(got[i], want[i])) expect.fail(`${what} ${i}: ${got[i]} for ${want[i]}`);
}

it('a convolution has the bits of its definition', () => {
  fc.assert(
    fc.property(shapes, (shape) => {
      const laid = laidOut('plain', shape);
      const out = convolve(laid, shape) / 4;
      expect(laid.areWhole()).toBe(true);
      const { images, n } = shape;
      const want: number[] = [];
      for (let image = 0; image < images; image++)
        for (let row = 0; row < laid.p; row++)
          for (let column = 0; column < laid.q; column++)
            for (let filter = 0; filter < n; filter++) want.push(element(laid, shape, image, row, column, filter));
      expectBits(heap.subarray(out, out + want.length), want, 'element');
    }),
    { numRuns: 120 },
  );
});

const variants: TrainingVariant[] = fusesMultiplyAdd() ? ['plain', 'relaxed'] : ['plain'];

it.each(variants)(
  'a convolution that pools its tiles has the bits of the two behind each other, and nothing beside them is written, %s',
  (variant) => {
    fc.assert(
      fc.property(shapes, (shape) => {
        const laid = laidOut(variant, shape);
        const { kernels, take, p, q, run, depth, x, packed, edge, rowBytes, jump } = laid;
        const { images, h, c, filterH, strideH, strideW, n, poolH, poolW, relu, withPlaces } = shape;
        fc.pre(p >= 2 && q >= 2);
        const [pooledP, pooledQ] = [Math.floor((p - 2) / poolH) + 1, Math.floor((q - 2) / poolW) + 1];
        const values = images * pooledP * pooledQ * n;
        const [table, y, at] = [take(images * pooledP * pooledQ), take(values), take(Math.ceil(values / 4))];
        const tile = take((depth * POOLED_TILE_BYTES_PER_K) / 4);
        bytes.fill(9, at, at + values);
        const [down, right] = [strideH * rowBytes, strideW * c * 4];
        kernels.tabulateWindows(table, x, images, pooledP, pooledQ, h * rowBytes, poolH * down, poolW * right);
        // oxfmt-ignore
        kernels.multiplyPooledWindows(table, images * pooledP * pooledQ, right, down, filterH, run, jump, packed, n, y,
        withPlaces ? at : 0, relu ? 1 : 0, tile, edge);
        const [wantY, wantAt] = [take(values), take(Math.ceil(values / 4))];
        bytes.fill(9, wantAt, wantAt + values);
        const whole = convolve(laid, shape);
        kernels.maxPool(whole, wantY, withPlaces ? wantAt : 0, images, p, q, n, pooledP, pooledQ, 2, 2, poolH, poolW);
        expect(laid.areWhole()).toBe(true);
        expectBits(heap.subarray(y / 4, y / 4 + values), heap.subarray(wantY / 4, wantY / 4 + values), 'value');
        expectBits(bytes.subarray(at, at + values), bytes.subarray(wantAt, wantAt + values), 'place');
      }),
      { numRuns: 250 },
    );
  },
);
