/**
 * A convolution and the max pooling behind it by windows of 2 × 2: the four windows of the image that a pooled value comes from are one tile, and
 * its four rows are pooled while they are in the cache. What no pooled value comes from (a last row or column) is never computed. The bits
 * are those of multiplyWindows and maxPool behind each other. Strides are in bytes, counts in floats.
 */
import { tile4Bias, windows4 } from './micro-kernels';
import { storeFirstLargest } from './places';

/** Bytes of the image that one pass over the panels of the filter reads again and again: half of a second-level cache of 512 KiB. */
const BLOCK_BYTES: u32 = 1 << 18;
const CELLS: u32 = 4;
/** Rows of a window with fewer floats are gathered, and used for all panels: the loop over each would end before it has begun. */
const SHORT_RUN: u32 = 16;

/** Where things lie in `edge`: the tile, the addresses of its windows, and pooled values with their places where columns are left over. */
const ADDRESSES: usize = 128;
const VALUES: usize = 144;
const PLACES: usize = 176;

/**
 * y[m, n] = the largest of four windows: of those at table[r], `right` and `below` of it, and both. `places` has a byte for every value: which was the first
 * largest; with 0 none are written. `tile` is 32 bytes for each float of a window, `edge` 192 bytes of scratch. The rest as multiplyWindows.
 */
export function multiplyPooledWindows(
  table: usize,
  m: u32,
  right: usize,
  below: usize,
  runs: u32,
  run: u32,
  jump: usize,
  packed: usize,
  n: u32,
  y: usize,
  places: usize,
  relu: u32,
  tile: usize,
  edge: usize,
): void {
  if (run < SHORT_RUN) {
    shortWindows(table, m, right, below, runs, run, jump, packed, n, y, places, relu, tile, edge);
    return;
  }
  const panelBytes = (<usize>(runs * run + 1)) << 5;
  const block = max<u32>(1, BLOCK_BYTES / (runs * run * 4 + 1) / CELLS);
  for (let from: u32 = 0; from < m; from += block) {
    const to = min(m, from + block);
    for (let j: u32 = 0; j < n; j += 8) {
      const panel = packed + <usize>(j >> 3) * panelBytes;
      const columns = min<u32>(8, n - j);
      for (let r = from; r < to; r++) {
        const a = load<u32>(table + ((<usize>r) << 2));
        store<u32>(edge, a, ADDRESSES);
        store<u32>(edge, a + right, ADDRESSES + 4);
        store<u32>(edge, a + below, ADDRESSES + 8);
        store<u32>(edge, a + below + right, ADDRESSES + 12);
        windows4(edge + ADDRESSES, runs, run, jump, panel, edge, 32);
        const at = r * n + j;
        poolTile(edge, y + ((<usize>at) << 2), places ? places + at : 0, columns, relu);
      }
    }
  }
}

/** Four windows whose floats are those of the four before give what those gave: on a blank background most do. */
function shortWindows(
  table: usize,
  m: u32,
  right: usize,
  below: usize,
  runs: u32,
  run: u32,
  jump: usize,
  packed: usize,
  n: u32,
  y: usize,
  places: usize,
  relu: u32,
  tile: usize,
  edge: usize,
): void {
  const depth = runs * run;
  const panelBytes = (<usize>(depth + 1)) << 5;
  const row = (<usize>n) << 2;
  let now = tile;
  let before = tile + ((<usize>depth) << 4);
  for (let r: u32 = 0; r < m; r++) {
    gather(load<u32>(table + ((<usize>r) << 2)), right, below, runs, run, jump, now);
    if (r > 0 && isEqual(now, before, depth)) {
      memory.copy(y, y - row, row);
      if (places) memory.copy(places, places - n, n);
    } else {
      let panel = packed;
      for (let j: u32 = 0; j < n; j += 8) {
        tile4Bias(now, depth, panel, edge, 32);
        poolTile(edge, y + ((<usize>j) << 2), places ? places + j : 0, min<u32>(8, n - j), relu);
        panel += panelBytes;
      }
      const other = before;
      before = now;
      now = other;
    }
    y += row;
    if (places) places += n;
  }
}

/** A tile of four rows: four floats for every k. */
function gather(a: usize, right: usize, below: usize, runs: u32, run: u32, jump: usize, to: usize): void {
  const both = below + right;
  while (runs--) {
    for (let left = run; left; left--) {
      store<f32>(to, load<f32>(a));
      store<f32>(to, load<f32>(a + right), 4);
      store<f32>(to, load<f32>(a + below), 8);
      store<f32>(to, load<f32>(a + both), 12);
      a += 4;
      to += 16;
    }
    a += jump;
  }
}

/** Whether two tiles have the same bits. */
function isEqual(a: usize, b: usize, depth: u32): bool {
  while (depth--) {
    if (v128.any_true(v128.xor(v128.load(a), v128.load(b)))) return false;
    a += 16;
    b += 16;
  }
  return true;
}

function poolTile(tile: usize, y: usize, places: usize, columns: u32, relu: u32): void {
  if (columns == 8) {
    poolFour(tile, y, places, relu);
    poolFour(tile + 16, y + 16, places ? places + 4 : 0, relu);
    return;
  }
  poolFour(tile, tile + VALUES, tile + PLACES, relu);
  poolFour(tile + 16, tile + VALUES + 16, tile + PLACES + 4, relu);
  for (let i: u32 = 0; i < columns; i++) {
    store<f32>(y + ((<usize>i) << 2), load<f32>(tile + VALUES + ((<usize>i) << 2)));
    if (places) store<u8>(places + i, load<u8>(tile + PLACES + i));
  }
}

function poolFour(tile: usize, y: usize, places: usize, relu: u32): void {
  let x0 = v128.load(tile);
  let x1 = v128.load(tile, 32);
  let x2 = v128.load(tile, 64);
  let x3 = v128.load(tile, 96);
  if (relu) {
    const zero = f32x4.splat(0);
    x0 = f32x4.pmax(x0, zero);
    x1 = f32x4.pmax(x1, zero);
    x2 = f32x4.pmax(x2, zero);
    x3 = f32x4.pmax(x3, zero);
  }
  v128.store(y, f32x4.max(f32x4.max(x0, x1), f32x4.max(x2, x3)));
  if (places) storeFirstLargest(places, x0, x1, x2, x3);
}
