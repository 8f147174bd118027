/**
 * Gradients of 2-D convolutions by their filter and by their input, as products with windows (conv-windows.ts), dense or by lists of what is
 * set. The gradient of the output comes in bands of whole images: all at once where it lies in memory, a few images at a time where each
 * band is made when it is wanted (conv-pool-kernels.ts). The bits do not depend on the bands: every sum goes on where the last one ended.
 */
import { ProductMode, TILE_BYTES_PER_K } from '@paceline/kernels';
import { frameOf, windowsOf, type Info, type Windows } from './conv-windows.js';
import type { Heap } from '../../backends/wasm/heap.js';
import { packedBytes, panelBytes, PANEL_HEAD_BYTES } from '../../backends/wasm/products.js';
import { beginOf, fewSet, roomForLists, type Floats } from '../../backends/wasm/sparse.js';

const FLOAT = 4;
/** Output pixels whose gradients are packed at once for the gradient of the filter. */
const BLOCK_OF_PIXELS = 384;
/** The same where they are listed: what they meet of the image stays in the first-level cache. */
const BLOCK_OF_LISTED_PIXELS = 128;

/** What a product by lists keeps for each row of a filter. */
const GATHERED_ROW_BYTES = 12;

/** A few images and the gradients of their outputs, [images, p, q, k]. */
export interface Band {
  readonly first: number;
  readonly images: number;
  readonly address: number;
}

/** dy [n, p, q, k] of a convolution. */
export interface OutputGradient {
  /** Where its elements that are not zero lie. */
  readonly floats: Floats;
  /** In the order of the images; a band is valid until the next one is asked for. */
  bands(): Iterable<Band>;
}

/** All of it lies at `address`. */
export function wholeGradient({ batchSize, outHeight, outWidth, outChannels }: Info, address: number): OutputGradient {
  const elements = batchSize * outHeight * outWidth * outChannels;
  return { floats: { address, stored: elements, elements }, bands: () => [{ first: 0, images: batchSize, address }] };
}

/** dW[i, j, c, k] = Σ over n, p, q of x[n, p·s + i − top, q·s + j − left, c] · dy[n, p, q, k], written `to` where it is asked for. */
export function backpropFilter(heap: Heap, info: Info, x: number, dy: OutputGradient, to: number): void {
  const windows = windowsOf(heap, info, x);
  if (backpropFilterListed(heap, info, windows, dy, to)) return;
  const [run, k] = [info.filterWidth * info.inChannels, info.outChannels];
  const most = Math.min(windows.count, BLOCK_OF_PIXELS);
  const packed = heap.scratch('packed', packedBytes(most, k));
  const tile = heap.scratch('tile', most * TILE_BYTES_PER_K);
  const { kernels, edge } = heap;
  for (const { at, count, address } of blocksOf(info, dy, BLOCK_OF_PIXELS)) {
    kernels.packBias(0, k, packed, panelBytes(count));
    kernels.packPlain(address, k * FLOAT, count, k, packed + PANEL_HEAD_BYTES, panelBytes(count));
    for (let row = 0; row < info.filterHeight; row++) {
      const into = to + row * run * k * FLOAT;
      const [table, mode] = [windows.table + at * FLOAT, at > 0 ? ProductMode.Add : ProductMode.Bias] as const;
      kernels.multiplyColumns(table, count, row * windows.rowBytes, run, packed, k, into, k * FLOAT, mode, tile, edge);
    }
  }
}

/**
 * By lists of what is set in dy, or else in x; true when one of them was mostly zeros, and it is done.
 *
 *   dy   dWᵀ[k, i, j, c] = the k columns of dy · the pixels of x that they meet, turned around in the end
 *   x    dW[i, j, c, k] = the columns of the windows · the pixels of dy
 */
function backpropFilterListed(heap: Heap, info: Info, windows: Windows, dy: OutputGradient, to: number): boolean {
  const x: Floats = { address: windows.base, stored: windows.floats, elements: windows.floats };
  const ofDy = fewSet(heap, dy.floats, info.inChannels, x);
  if (ofDy !== undefined) {
    byListsOfDy(heap, info, windows, dy, ofDy, to);
    return true;
  }
  const ofX = fewSet(heap, x, info.outChannels, dy.floats);
  if (ofX !== undefined) byListsOfX(heap, info, windows, dy, ofX, to);
  return ofX !== undefined;
}

function byListsOfDy(heap: Heap, info: Info, windows: Windows, dy: OutputGradient, set: number, to: number): void {
  const { inChannels: c, outChannels: k, filterHeight, filterWidth } = info;
  const { kernels } = heap;
  const depth = filterHeight * filterWidth * c;
  const most = Math.min(windows.count, BLOCK_OF_LISTED_PIXELS);
  const { entries, starts } = roomForLists(heap, Math.min(set, most * k), k);
  const rows = heap.scratch('rows', most * FLOAT);
  const sums = heap.scratch('transposed', k * depth * FLOAT);
  const zeros = beginOf(heap, undefined, c);
  for (const { at, count, address } of blocksOf(info, dy, BLOCK_OF_LISTED_PIXELS)) {
    kernels.tabulate(rows, address, k * FLOAT, count);
    kernels.listColumns(rows, 0, count, k, windows.table + at * FLOAT, entries, starts);
    for (let cell = 0; cell < filterHeight * filterWidth; cell++) {
      const pixel = Math.floor(cell / filterWidth) * windows.rowBytes + (cell % filterWidth) * c * FLOAT;
      kernels.multiplyListed(starts, k, pixel, c, at === 0 ? zeros : 0, sums + cell * c * FLOAT, depth * FLOAT);
    }
  }
  kernels.transpose(sums, k, depth, to);
}

function byListsOfX(heap: Heap, info: Info, windows: Windows, dy: OutputGradient, set: number, to: number): void {
  const { inChannels: c, outChannels: k, outHeight: p, outWidth: q, filterHeight, filterWidth, strideHeight, strideWidth } = info;
  const { kernels } = heap;
  const run = filterWidth * c;
  const imageBytes = (windows.floats / info.batchSize) * FLOAT;
  const height = imageBytes / windows.rowBytes;
  const listed = p + Math.floor((filterHeight - 1) / strideHeight);
  // An element of x is met at most once by each cell in a row of the filter.
  const most = Math.min(set * filterWidth, height * run * q);
  const { entries, starts } = roomForLists(heap, most, run * strideHeight * listed);
  const zeros = beginOf(heap, undefined, k);
  const [step, pixel] = [strideWidth * c * FLOAT, k * FLOAT];
  const rows = Math.ceil(BLOCK_OF_LISTED_PIXELS / q);
  for (const { n, address } of imagesOf(info, dy)) {
    const image = windows.base + n * imageBytes;
    kernels.listWindows(image, windows.rowBytes, height, run, q, step, strideHeight, listed, pixel, entries, starts);
    for (let at = 0; at < p; at += rows) {
      const [count, begin] = [Math.min(rows, p - at), n === 0 && at === 0 ? zeros : 0] as const;
      kernels.multiplyListedWindows(starts, run, strideHeight, listed, filterHeight, at, count, address, q * pixel, k, begin, to);
    }
  }
}

/** Some pixels of dy, by their number in the batch. */
interface Block {
  readonly at: number;
  readonly count: number;
  readonly address: number;
}

/** Bands cut into blocks of at most so many pixels. */
function* blocksOf({ outHeight, outWidth, outChannels }: Info, dy: OutputGradient, most: number): Generator<Block> {
  const pixels = outHeight * outWidth;
  for (const { first, images, address } of dy.bands()) {
    for (let at = 0; at < images * pixels; at += most)
      yield { at: first * pixels + at, count: Math.min(most, images * pixels - at), address: address + at * outChannels * FLOAT };
  }
}

/** dx[n, p·s + i − top, q·s + j − left, c] += Σ over k of dy[n, p, q, k] · filter[i, j, c, k] */
export function backpropInput(heap: Heap, info: Info, dy: OutputGradient, filter: number, dx: number): void {
  const { inChannels: c, outChannels: k, outHeight: p, outWidth: q, filterHeight, filterWidth, inHeight, inWidth } = info;
  const { kernels, edge } = heap;
  const cellBytes = packedBytes(k, c);
  const cells = filterHeight * filterWidth;
  const set = fewSet(heap, dy.floats, c, { address: filter, stored: cells * c * k, elements: cells * c * k });
  const lists = set === undefined ? undefined : roomForLists(heap, Math.min(set, p * q * k), p * q);
  const packed = heap.scratch('packed', cells * cellBytes);
  for (let cell = 0; cell < cells; cell++) {
    const [from, to] = [filter + cell * c * k * FLOAT, packed + cell * cellBytes];
    if (lists) kernels.transpose(from, c, k, to);
    else kernels.packTransposed(from, k * FLOAT, k, c, to + PANEL_HEAD_BYTES, panelBytes(k));
  }
  const isGathered = lists !== undefined && info.strideHeight === 1 && info.strideWidth === 1;
  const table = heap.scratch('table', Math.max(p * q * FLOAT, filterHeight * GATHERED_ROW_BYTES));
  const frame = frameOf(info);
  const rowBytes = frame.width * c * FLOAT;
  const imageBytes = inHeight * inWidth * c * FLOAT;
  const image = frame.isBare ? 0 : heap.scratch('image', frame.height * rowBytes);
  for (const { n, address: from } of imagesOf(info, dy)) {
    const into = frame.isBare ? dx + n * imageBytes : image;
    if (!isGathered) kernels.fillZero(into, frame.height * rowBytes);
    const [h, w] = [info.strideHeight, info.strideWidth];
    if (isGathered) {
      const { entries, starts } = lists;
      kernels.listPixels(from, p, q, k, c * FLOAT, cellBytes, entries, starts);
      kernels.gatherListed(starts, p, q, packed, cellBytes, filterHeight, filterWidth, into, frame.height, frame.width, c, table);
    } else if (lists) {
      kernels.listRows(from, k * FLOAT, p * q, k, c * FLOAT, lists.entries, lists.starts);
      kernels.spreadListed(lists.starts, p, q, packed, cellBytes, filterHeight, filterWidth, into, rowBytes, c, h, w);
    } else kernels.spreadWindows(table, from, p, q, k, packed, cellBytes, filterHeight, filterWidth, into, rowBytes, c, h, w, edge);
    if (frame.isBare) continue;
    const inner = image + info.padInfo.top * rowBytes + info.padInfo.left * c * FLOAT;
    kernels.copyRows(inner, rowBytes, dx + n * imageBytes, inWidth * c * FLOAT, inHeight, inWidth * c * FLOAT);
  }
}

function* imagesOf({ outHeight, outWidth, outChannels }: Info, dy: OutputGradient): Generator<{ n: number; address: number }> {
  const bytes = outHeight * outWidth * outChannels * FLOAT;
  for (const { first, images, address } of dy.bands())
    for (let i = 0; i < images; i++) yield { n: first + i, address: address + i * bytes };
}
