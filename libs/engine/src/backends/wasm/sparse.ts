/**
 * When a product may leave the zeros of its left operand out (kernels: assembly/training/sparse.ts): the bits are the same up to the
 * sign of a zero, so this only decides about time. Images on a blank background are mostly zeros (MNIST: 81 %), and so is the gradient behind max pooling and relu
 * (one pixel in four at most).
 */
import type { Heap } from './heap.js';

const FLOAT = 4;
const ENTRY_BYTES = 8;
/** A list needs a load for every product where a packed tile needs one for five: over this share the dense product is faster. */
const MOST_SET = 0.35;
/** Fewer elements are not worth the look. */
const LEAST_ELEMENTS = 4096;
/** Columns of B are taken 16 or 8 at a time. */
const LEAST_COLUMNS = 8;

/** Values of an operand. Of its elements only some may be stored: the others are zero then. */
export interface Floats {
  readonly address: number;
  readonly stored: number;
  readonly elements: number;
}

/** Elements of A that are set when they are few, and `b` is finite: 0·∞ and 0·NaN must be found by the dense product; else undefined. */
export function fewSet({ kernels }: Heap, a: Floats, columns: number, b: Floats): number | undefined {
  if (a.elements < LEAST_ELEMENTS || columns % LEAST_COLUMNS !== 0) return undefined;
  const set = kernels.countNonZero(a.address, a.stored);
  return set <= a.elements * MOST_SET && kernels.isFinite(b.address, b.stored) ? set : undefined;
}

/** Room for the entries, with one more for each list, and the beginnings of lists. */
export function roomForLists(heap: Heap, entries: number, lists: number): { entries: number; starts: number } {
  return { entries: heap.scratch('entries', (entries + lists) * ENTRY_BYTES), starts: heap.scratch('starts', (lists + 2) * FLOAT) };
}

/** n floats to begin sums from: the bias, or zeros. */
export function beginOf(heap: Heap, bias: number | undefined, n: number): number {
  if (bias) return bias;
  const zeros = heap.scratch('begin', n * FLOAT);
  heap.kernels.fillZero(zeros, n * FLOAT);
  return zeros;
}
