/**
 * Matrix products over the heap of the tf.js wasm backend: C = A·B (+ bias, relu), float32.
 *
 * B is packed first: panels of 8 columns, each 8 floats of bias followed by 8 floats for every k, padded with zeros. A is not
 * copied: a table of addresses says where its rows (or, for a transposed A, its columns) begin. The same loops therefore
 * serve plain products, products with a transposed operand, and convolutions, whose rows are windows of an image.
 * Strides and offsets are in bytes, counts in floats.
 */
import {
  rows1Add,
  rows1Bias,
  rows2Add,
  rows2Bias,
  rows3Add,
  rows3Bias,
  rows4Add,
  rows4Bias,
  tile1Add,
  tile1Bias,
  tile2Add,
  tile2Bias,
  tile3Add,
  tile3Bias,
  tile4Add,
  tile4Bias,
  windows1,
  windows2,
  windows3,
  windows4,
} from './micro-kernels';

const TILE: u32 = 4;
/** Bytes of A that one pass over the panels of B reads again and again: half of a second-level cache of 512 KiB. */
const BLOCK_BYTES: u32 = 1 << 18;

/** How a product begins. */
const FROM_BIAS: u32 = 0;
const ADDED: u32 = 1;

/** table[i] = base + i·stride */
export function tabulate(table: usize, base: usize, stride: usize, n: u32): void {
  while (n--) {
    store<u32>(table, <u32>base);
    base += stride;
    table += 4;
  }
}

/** Addresses of the first elements of the windows of a convolution, [images, rows, columns]. */
export function tabulateWindows(
  table: usize,
  base: usize,
  images: u32,
  rows: u32,
  columns: u32,
  imageStride: usize,
  rowStride: usize,
  columnStride: usize,
): void {
  for (let n: u32 = 0; n < images; n++) {
    for (let p: u32 = 0; p < rows; p++) {
      tabulate(table, base + n * imageStride + p * rowStride, columnStride, columns);
      table += (<usize>columns) << 2;
    }
  }
}

/** The bias of every panel; without one (0) zeros. */
export function packBias(bias: usize, n: u32, packed: usize, panelBytes: usize): void {
  for (let from: u32 = 0; from < n; from += 8) {
    if (bias && n - from >= 8) memory.copy(packed, bias + ((<usize>from) << 2), 32);
    else {
      memory.fill(packed, 0, 32);
      if (bias) memory.copy(packed, bias + ((<usize>from) << 2), (<usize>(n - from)) << 2);
    }
    packed += panelBytes;
  }
}

/** B as it lies: element (k, j) at b + k·stride + 4·j. `packed` is where the first k of the first panel goes. */
export function packPlain(b: usize, stride: usize, k: u32, n: u32, packed: usize, panelBytes: usize): void {
  const whole = n & ~7;
  for (let i: u32 = 0; i < k; i++) {
    let to = packed + ((<usize>i) << 5);
    let from = b + i * stride;
    let j: u32 = 0;
    for (; j < whole; j += 8) {
      v128.store(to, v128.load(from));
      v128.store(to, v128.load(from, 16), 16);
      from += 32;
      to += panelBytes;
    }
    if (j < n) {
      memory.fill(to, 0, 32);
      for (; j < n; j++) {
        store<f32>(to, load<f32>(from));
        from += 4;
        to += 4;
      }
    }
  }
}

/** B transposed: element (k, j) at b + j·stride + 4·k. */
export function packTransposed(b: usize, stride: usize, k: u32, n: u32, packed: usize, panelBytes: usize): void {
  for (let j: u32 = 0; j < n; j += 4) {
    const to = packed + <usize>(j >> 3) * panelBytes + ((<usize>(j & 4)) << 2);
    if (n - j >= 4) packFour(b + j * stride, stride, k, to);
    else packFew(b + j * stride, stride, k, n - j, to);
  }
  // The second half of a last panel of four columns or fewer.
  if (((n - 1) & 7) < 4) {
    let to = packed + <usize>((n - 1) >> 3) * panelBytes + 16;
    for (let i: u32 = 0; i < k; i++) {
      v128.store(to, f32x4.splat(0));
      to += 32;
    }
  }
}

function packFour(b: usize, stride: usize, k: u32, to: usize): void {
  let b0 = b;
  let b1 = b + stride;
  let b2 = b1 + stride;
  let b3 = b2 + stride;
  let left = k;
  while (left >= 4) {
    const r0 = v128.load(b0);
    const r1 = v128.load(b1);
    const r2 = v128.load(b2);
    const r3 = v128.load(b3);
    const low01 = v128.shuffle<f32>(r0, r1, 0, 4, 1, 5);
    const low23 = v128.shuffle<f32>(r2, r3, 0, 4, 1, 5);
    const high01 = v128.shuffle<f32>(r0, r1, 2, 6, 3, 7);
    const high23 = v128.shuffle<f32>(r2, r3, 2, 6, 3, 7);
    v128.store(to, v128.shuffle<f32>(low01, low23, 0, 1, 4, 5));
    v128.store(to, v128.shuffle<f32>(low01, low23, 2, 3, 6, 7), 32);
    v128.store(to, v128.shuffle<f32>(high01, high23, 0, 1, 4, 5), 64);
    v128.store(to, v128.shuffle<f32>(high01, high23, 2, 3, 6, 7), 96);
    b0 += 16;
    b1 += 16;
    b2 += 16;
    b3 += 16;
    to += 128;
    left -= 4;
  }
  while (left) {
    store<f32>(to, load<f32>(b0));
    store<f32>(to, load<f32>(b1), 4);
    store<f32>(to, load<f32>(b2), 8);
    store<f32>(to, load<f32>(b3), 12);
    b0 += 4;
    b1 += 4;
    b2 += 4;
    b3 += 4;
    to += 32;
    left--;
  }
}

function packFew(b: usize, stride: usize, k: u32, n: u32, to: usize): void {
  for (let i: u32 = 0; i < k; i++) {
    for (let j: u32 = 0; j < 4; j++) store<f32>(to + ((<usize>j) << 2), j < n ? load<f32>(b + j * stride + ((<usize>i) << 2)) : 0);
    to += 32;
  }
}

/**
 * C[m × n] = A·B for A by rows: row r at table[r] + offset. `mode` 0: from the bias; 1: added to C.
 * `edge` is scratch for a tile, 128 bytes.
 */
export function multiplyRows(
  table: usize,
  m: u32,
  offset: usize,
  k: u32,
  packed: usize,
  n: u32,
  c: usize,
  ldc: usize,
  mode: u32,
  edge: usize,
): void {
  const panelBytes = (<usize>(k + 1)) << 5;
  const block = max<u32>(4, BLOCK_BYTES / (k * 4 + 1) / TILE) * TILE;
  for (let from: u32 = 0; from < m; from += block) {
    const to = min(m, from + block);
    for (let j: u32 = 0; j < n; j += 8) {
      const panel = packed + <usize>(j >> 3) * panelBytes;
      const columns = min<u32>(8, n - j);
      for (let r = from; r < to; r += TILE) {
        const rows = min(TILE, to - r);
        const at = table + ((<usize>r) << 2);
        const into = c + r * ldc + ((<usize>j) << 2);
        if (columns == 8) tileOfRows(rows, at, offset, k, panel, into, ldc, mode);
        else {
          if (mode == ADDED) copyTile(into, ldc, edge, 32, rows, columns);
          tileOfRows(rows, at, offset, k, panel, edge, 32, mode);
          copyTile(edge, 32, into, ldc, rows, columns);
        }
      }
    }
  }
}

/**
 * A convolution: row r of A is a window at table[r], `runs` rows of `run` floats, `jump` bytes from the end of one to the next.
 * From the bias, with relu or without.
 */
export function multiplyWindows(
  table: usize,
  m: u32,
  runs: u32,
  run: u32,
  jump: usize,
  packed: usize,
  n: u32,
  c: usize,
  ldc: usize,
  relu: u32,
  edge: usize,
): void {
  const panelBytes = (<usize>(runs * run + 1)) << 5;
  const block = max<u32>(4, BLOCK_BYTES / (runs * run * 4 + 1) / TILE) * TILE;
  for (let from: u32 = 0; from < m; from += block) {
    const to = min(m, from + block);
    for (let j: u32 = 0; j < n; j += 8) {
      const panel = packed + <usize>(j >> 3) * panelBytes;
      const columns = min<u32>(8, n - j);
      for (let r = from; r < to; r += TILE) {
        const rows = min(TILE, to - r);
        const at = table + ((<usize>r) << 2);
        const into = c + r * ldc + ((<usize>j) << 2);
        if (columns == 8) tileOfWindows(rows, at, runs, run, jump, panel, into, ldc, relu);
        else {
          tileOfWindows(rows, at, runs, run, jump, panel, edge, 32, relu);
          copyTile(edge, 32, into, ldc, rows, columns);
        }
      }
    }
  }
}

/**
 * C[m × n] = A·B for A by columns: element (r, k) at table[k] + offset + 4·r. A is packed a tile of rows at a time into `tile`,
 * 16·k bytes, and used for all panels of B. `mode` 0: from the bias; 1: added to C.
 */
export function multiplyColumns(
  table: usize,
  k: u32,
  offset: usize,
  m: u32,
  packed: usize,
  n: u32,
  c: usize,
  ldc: usize,
  mode: u32,
  tile: usize,
  edge: usize,
): void {
  const panelBytes = (<usize>(k + 1)) << 5;
  for (let r: u32 = 0; r < m; r += TILE) {
    const rows = min(TILE, m - r);
    packTile(table, offset + ((<usize>r) << 2), k, rows, tile);
    let panel = packed;
    for (let j: u32 = 0; j < n; j += 8) {
      const columns = min<u32>(8, n - j);
      const into = c + r * ldc + ((<usize>j) << 2);
      if (columns == 8) tileOfColumns(rows, tile, k, panel, into, ldc, mode);
      else {
        if (mode == ADDED) copyTile(into, ldc, edge, 32, rows, columns);
        tileOfColumns(rows, tile, k, panel, edge, 32, mode);
        copyTile(edge, 32, into, ldc, rows, columns);
      }
      panel += panelBytes;
    }
  }
}

function packTile(table: usize, offset: usize, k: u32, rows: u32, tile: usize): void {
  if (rows == TILE) {
    while (k) {
      const from = <usize>load<u32>(table) + offset;
      v128.store(tile, v128.load(from));
      table += 4;
      tile += 16;
      k--;
    }
    return;
  }
  while (k) {
    let from = <usize>load<u32>(table) + offset;
    for (let r: u32 = 0; r < rows; r++) {
      store<f32>(tile, load<f32>(from));
      from += 4;
      tile += 4;
    }
    table += 4;
    k--;
  }
}

function tileOfRows(rows: u32, table: usize, offset: usize, k: u32, b: usize, c: usize, ldc: usize, mode: u32): void {
  if (mode == FROM_BIAS) {
    if (rows == 4) rows4Bias(table, offset, k, b, c, ldc);
    else if (rows == 3) rows3Bias(table, offset, k, b, c, ldc);
    else if (rows == 2) rows2Bias(table, offset, k, b, c, ldc);
    else rows1Bias(table, offset, k, b, c, ldc);
  } else {
    if (rows == 4) rows4Add(table, offset, k, b, c, ldc);
    else if (rows == 3) rows3Add(table, offset, k, b, c, ldc);
    else if (rows == 2) rows2Add(table, offset, k, b, c, ldc);
    else rows1Add(table, offset, k, b, c, ldc);
  }
}

function tileOfWindows(rows: u32, table: usize, runs: u32, run: u32, jump: usize, b: usize, c: usize, ldc: usize, relu: u32): void {
  if (rows == 4) windows4(table, runs, run, jump, b, c, ldc);
  else if (rows == 3) windows3(table, runs, run, jump, b, c, ldc);
  else if (rows == 2) windows2(table, runs, run, jump, b, c, ldc);
  else windows1(table, runs, run, jump, b, c, ldc);
  if (relu) reluTile(c, ldc, rows);
}

function reluTile(c: usize, ldc: usize, rows: u32): void {
  const zero = f32x4.splat(0);
  while (rows--) {
    v128.store(c, f32x4.pmax(v128.load(c), zero));
    v128.store(c, f32x4.pmax(v128.load(c, 16), zero), 16);
    c += ldc;
  }
}

function tileOfColumns(rows: u32, tile: usize, k: u32, b: usize, c: usize, ldc: usize, mode: u32): void {
  if (mode == FROM_BIAS) {
    if (rows == 4) tile4Bias(tile, k, b, c, ldc);
    else if (rows == 3) tile3Bias(tile, k, b, c, ldc);
    else if (rows == 2) tile2Bias(tile, k, b, c, ldc);
    else tile1Bias(tile, k, b, c, ldc);
  } else {
    if (rows == 4) tile4Add(tile, k, b, c, ldc);
    else if (rows == 3) tile3Add(tile, k, b, c, ldc);
    else if (rows == 2) tile2Add(tile, k, b, c, ldc);
    else tile1Add(tile, k, b, c, ldc);
  }
}

function copyTile(from: usize, fromStride: usize, to: usize, toStride: usize, rows: u32, columns: u32): void {
  for (let r: u32 = 0; r < rows; r++) {
    for (let j: u32 = 0; j < columns; j++) store<f32>(to + ((<usize>j) << 2), load<f32>(from + ((<usize>j) << 2)));
    from += fromStride;
    to += toStride;
  }
}

/**
 * The transpose of a convolution for one image: dx[p·strideH + i, q·strideW + j, ·] += dy[p, q, ·]·filter[i, j]ᵀ, cell by cell of the filter.
 * packed: a set of panels (k = depth of dy, n = depth of dx) per cell. `rowBytes` is a row of dx, which must hold all windows.
 */
export function spreadWindows(
  table: usize,
  dy: usize,
  p: u32,
  q: u32,
  depth: u32,
  packed: usize,
  cellBytes: usize,
  filterH: u32,
  filterW: u32,
  dx: usize,
  rowBytes: usize,
  n: u32,
  strideH: u32,
  strideW: u32,
  edge: usize,
): void {
  const pixel = (<usize>n) << 2;
  tabulate(table, dy, (<usize>depth) << 2, p * q);
  for (let i: u32 = 0; i < filterH; i++) {
    for (let j: u32 = 0; j < filterW; j++) {
      for (let r: u32 = 0; r < p; r++) {
        const into = dx + (r * strideH + i) * rowBytes + j * pixel;
        multiplyRows(table + ((<usize>(r * q)) << 2), q, 0, depth, packed, n, into, strideW * pixel, ADDED, edge);
      }
      packed += cellBytes;
    }
  }
}
