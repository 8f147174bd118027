/** Matrix products on the heap: C = op(A)·op(B) + bias, row-major float32, in blocks that stay in the cache, or by lists where A is mostly zeros. */
import { LISTED_ROW_BYTES, ProductMode, TILE_BYTES_PER_K } from '@paceline/kernels';
import type { Heap } from './heap.js';
import { beginOf, fewSet, roomForLists } from './sparse.js';

const FLOAT = 4;
const PANEL = 8;
/** Rows of a transposed A that are taken at once: its pieces then stay in the first-level cache (26 GFLOPS without, 35 with). */
const BLOCK_OF_COLUMNS = 384;

export interface Product {
  /** Address of A: [m, k], or [k, m] with transposeA. */
  readonly a: number;
  readonly transposeA?: boolean;
  /** Address of B: [k, n], or [n, k] with transposeB. */
  readonly b: number;
  readonly transposeB?: boolean;
  readonly m: number;
  readonly n: number;
  readonly k: number;
  /** Address of C: [m, n]. */
  readonly c: number;
  /** Address of [n] floats. */
  readonly bias?: number | undefined;
  /** C += instead of C =; without bias. */
  readonly accumulate?: boolean;
  /** Floats from one row to the next as A, B and C lie in memory, where they are parts of wider matrices. */
  readonly strides?: { readonly a: number; readonly b: number; readonly c: number } | undefined;
}

/** Bytes of the packed form of B [k, n]. */
export const packedBytes = (k: number, n: number): number => Math.ceil(n / PANEL) * panelBytes(k);
export const panelBytes = (k: number): number => (k + 1) * PANEL * FLOAT;
/** Where the first k of the first panel goes: after the bias. */
export const PANEL_HEAD_BYTES = PANEL * FLOAT;

export function multiply(heap: Heap, product: Product): void {
  if (!product.strides && multiplyListed(heap, product)) return;
  const { a, m, n, k, c } = product;
  const { a: rowOfA, c: rowOfC } = product.strides ?? { a: product.transposeA ? m : k, c: n };
  const { kernels, edge } = heap;
  const block = product.transposeA ? Math.min(k, BLOCK_OF_COLUMNS) : k;
  const packed = heap.scratch('packed', packedBytes(block, n));
  const table = heap.scratch('table', Math.max(m, k) * FLOAT);
  const mode = product.accumulate ? ProductMode.Add : ProductMode.Bias;
  if (!product.transposeA) {
    pack(heap, product, 0, k, packed);
    kernels.tabulate(table, a, rowOfA * FLOAT, m);
    kernels.multiplyRows(table, m, 0, k, packed, n, c, rowOfC * FLOAT, mode, edge);
    return;
  }
  const tile = heap.scratch('tile', block * TILE_BYTES_PER_K);
  kernels.tabulate(table, a, rowOfA * FLOAT, k);
  for (let from = 0; from < k; from += block) {
    const count = Math.min(block, k - from);
    pack(heap, product, from, count, packed);
    kernels.multiplyColumns(table + from * FLOAT, count, 0, m, packed, n, c, rowOfC * FLOAT, from > 0 ? ProductMode.Add : mode, tile, edge);
  }
}

/** True when A is mostly zeros, and the product is done. */
function multiplyListed(heap: Heap, { a, transposeA, b, transposeB, m, n, k, c, bias, accumulate }: Product): boolean {
  const set = transposeB
    ? undefined
    : fewSet(heap, { address: a, stored: m * k, elements: m * k }, n, { address: b, stored: k * n, elements: k * n });
  if (set === undefined) return false;
  const { kernels } = heap;
  const { entries, starts } = roomForLists(heap, set, m);
  const row = n * FLOAT;
  if (transposeA) {
    const [ofA, ofB] = [heap.scratch('table', k * FLOAT), heap.scratch('rows', k * FLOAT)];
    kernels.tabulate(ofA, a, m * FLOAT, k);
    kernels.tabulate(ofB, 0, LISTED_ROW_BYTES, k);
    kernels.listColumns(ofA, 0, k, m, ofB, entries, starts);
  } else kernels.listRows(a, k * FLOAT, m, k, LISTED_ROW_BYTES, entries, starts);
  const panel = heap.scratch('packed', k * LISTED_ROW_BYTES);
  kernels.multiplyListedPanels(starts, m, b, row, k, n, panel, accumulate ? 0 : beginOf(heap, bias, n), c, row);
  return true;
}

function pack({ kernels }: Heap, request: PackRequest, from: number, count: number, packed: number): void {
  const { b, transposeB, n, k, bias } = request;
  const row = request.strides?.b ?? (transposeB ? k : n);
  const bytes = panelBytes(count);
  kernels.packBias(bias ?? 0, n, packed, bytes);
  if (transposeB) kernels.packTransposed(b + from * FLOAT, row * FLOAT, count, n, packed + PANEL_HEAD_BYTES, bytes);
  else kernels.packPlain(b + from * row * FLOAT, row * FLOAT, count, n, packed + PANEL_HEAD_BYTES, bytes);
}

/** B [k, n] packed once for many products. */
export interface PackedMatrix {
  readonly address: number;
  readonly k: number;
  readonly n: number;
}

export interface PackRequest {
  readonly b: number;
  readonly transposeB?: boolean;
  readonly k: number;
  readonly n: number;
  readonly bias?: number | undefined;
  readonly strides?: { readonly b: number } | undefined;
}

/** Valid until the next call that asks for the same scratch memory: `multiply` does not. */
export function packMatrix(heap: Heap, request: PackRequest): PackedMatrix {
  const { k, n } = request;
  const address = heap.scratch('weights', packedBytes(k, n));
  pack(heap, request, 0, k, address);
  return { address, k, n };
}

/** C[m, n] = A[m, k] · packed + bias, or C += A · packed. */
export function multiplyPacked(heap: Heap, a: number, m: number, { address, k, n }: PackedMatrix, c: number, accumulate: boolean): void {
  const table = heap.scratch('table', m * FLOAT);
  heap.kernels.tabulate(table, a, k * FLOAT, m);
  const mode = accumulate ? ProductMode.Add : ProductMode.Bias;
  heap.kernels.multiplyRows(table, m, 0, k, address, n, c, n * FLOAT, mode, heap.edge);
}
