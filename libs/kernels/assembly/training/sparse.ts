/**
 * Products whose left operand is mostly zeros: C = A·B where only the elements of A that are not zero are looked at. Images on a blank
 * background are such operands, and so is the gradient behind max pooling and relu.
 *
 * A is listed first: 8 bytes for every element that is not zero, u32 (which row of B: an offset, or an address) and f32 (the element).
 * starts[i] is the address of the first of list i, and starts[lists] the end of the last. B is not packed: rows of n floats, n a multiple of 8.
 *
 * An element of C adds up in the order of k, as in the dense products, and what is left out is x·0 = ±0, which changes no sum that
 * began at +0: the bits are those of the dense product as long as B is finite (0·∞ is NaN; whoever calls this looks first), up to the sign of a
 * zero where a sum begins at −0 (a bias), or a fused multiply-add underflows.
 * Strides and offsets are in bytes, counts in floats.
 */
import { listed2, listed4, listed8 } from './micro-kernels';

/** How many of n floats are not zero. */
export function countNonZero(x: usize, n: u32): u32 {
  const zero = f32x4.splat(0);
  let a = i32x4.splat(0);
  let b = a;
  let blocks = n >> 4;
  while (blocks) {
    a = i32x4.sub(a, i32x4.add(f32x4.ne(v128.load(x), zero), f32x4.ne(v128.load(x, 16), zero)));
    b = i32x4.sub(b, i32x4.add(f32x4.ne(v128.load(x, 32), zero), f32x4.ne(v128.load(x, 48), zero)));
    x += 64;
    blocks--;
  }
  const sums = i32x4.add(a, b);
  let count = i32x4.extract_lane(sums, 0) + i32x4.extract_lane(sums, 1) + i32x4.extract_lane(sums, 2) + i32x4.extract_lane(sums, 3);
  let rest = n & 15;
  while (rest) {
    count += i32(load<f32>(x) != 0);
    x += 4;
    rest--;
  }
  return count;
}

/** 1 when none of n floats is NaN or infinite. */
export function isFinite(x: usize, n: u32): u32 {
  let a = i32x4.splat(0);
  let b = a;
  let blocks = n >> 4;
  while (blocks) {
    a = v128.or(a, v128.or(notFinite(v128.load(x)), notFinite(v128.load(x, 16))));
    b = v128.or(b, v128.or(notFinite(v128.load(x, 32)), notFinite(v128.load(x, 48))));
    x += 64;
    blocks--;
  }
  if (v128.any_true(v128.or(a, b))) return 0;
  let rest = n & 15;
  while (rest) {
    if ((load<u32>(x) & EXPONENT) == EXPONENT) return 0;
    x += 4;
    rest--;
  }
  return 1;
}

/** What a NaN or an infinity has set, and no other number has. */
const EXPONENT: u32 = 0x7f800000;

/** All bits set where it is. */
function notFinite(x: v128): v128 {
  const exponent = i32x4.splat(EXPONENT);
  return i32x4.eq(v128.and(x, exponent), exponent);
}

/** Elements that are looked at together: all zero on a blank background, hardly ever where zeros are scattered, so the branch is foreseen in both. */
const GROUP: u32 = 16;
/** Columns of the widest sums over lists. */
export const WIDE: u32 = 32;

/** A list for every row of A [rows, k]: element (r, i) at a + r·stride + 4·i; it meets the row of B at i·step. `entries` has 8 bytes to spare. */
export function listRows(a: usize, stride: usize, rows: u32, k: u32, step: u32, entries: usize, starts: usize): void {
  for (let r: u32 = 0; r < rows; r++) {
    store<u32>(starts, <u32>entries);
    starts += 4;
    entries = listRow(a + r * stride, k, 0, step, entries);
  }
  store<u32>(starts, <u32>entries);
}

/** One list, whose first element would have that offset; where it ends. */
export function listRow(from: usize, k: u32, offset: u32, step: u32, entries: usize): usize {
  let groups = k / GROUP;
  while (groups) {
    for (let set = setOf(from); set; set &= set - 1) {
      const i = <u32>ctz<i32>(set);
      store<u32>(entries, offset + i * step);
      store<f32>(entries, load<f32>(from + ((<usize>i) << 2)), 4);
      entries += 8;
    }
    from += GROUP << 2;
    offset += GROUP * step;
    groups--;
  }
  for (let left = k & (GROUP - 1); left; left--) {
    const x = load<f32>(from);
    store<u32>(entries, offset);
    store<f32>(entries, x, 4);
    entries += (<usize>(x != 0)) << 3;
    from += 4;
    offset += step;
  }
  return entries;
}

/** Which of 16 floats are not zero, a bit for each. */
function setOf(from: usize): i32 {
  const zero = f32x4.splat(0);
  const low = i16x8.narrow_i32x4_s(f32x4.ne(v128.load(from), zero), f32x4.ne(v128.load(from, 16), zero));
  const high = i16x8.narrow_i32x4_s(f32x4.ne(v128.load(from, 32), zero), f32x4.ne(v128.load(from, 48), zero));
  return i8x16.bitmask(i8x16.narrow_i16x8_s(low, high));
}

/** Whether 16 floats are zero. */
function isBlank(from: usize): bool {
  const zero = f32x4.splat(0);
  const low = v128.or(f32x4.ne(v128.load(from), zero), f32x4.ne(v128.load(from, 16), zero));
  const high = v128.or(f32x4.ne(v128.load(from, 32), zero), f32x4.ne(v128.load(from, 48), zero));
  return !v128.any_true(v128.or(low, high));
}

/**
 * A list for every column of A [rows, columns]: element (r, j) at aTable[r] + offset + 4·j; it meets the row of B at bTable[r]. Every list ends with an
 * entry of zero, which may be written over while the lists fill: nothing branches then. There is at least one row; `starts` has room for columns + 2.
 */
export function listColumns(aTable: usize, offset: usize, rows: u32, columns: u32, bTable: usize, entries: usize, starts: usize): void {
  const zero = f32x4.splat(0);
  const fours = columns & ~3;
  memory.fill(starts, 0, (<usize>(columns + 2)) << 2);
  // Counted one place later than where they are wanted: the running sum below then leaves in starts[j + 1] where list j begins.
  for (let r: u32 = 0; r < rows; r++) {
    let from = <usize>load<u32>(aTable + ((<usize>r) << 2)) + offset;
    let at = starts + 8;
    for (let j: u32 = 0; j < fours; j += 4) {
      v128.store(at, i32x4.sub(v128.load(at), f32x4.ne(v128.load(from), zero)));
      from += 16;
      at += 16;
    }
    for (let j = fours; j < columns; j++) {
      store<u32>(at, load<u32>(at) + u32(load<f32>(from) != 0));
      from += 4;
      at += 4;
    }
  }
  const first = load<u32>(bTable);
  let begin = <u32>entries;
  for (let j: u32 = 0; j <= columns; j++) {
    const place = starts + 4 + ((<usize>j) << 2);
    if (j > 0) {
      begin += load<u32>(place) << 3;
      store<u32>(begin, first);
      store<f32>(begin, 0, 4);
      begin += 8;
    }
    store<u32>(place, begin);
  }
  // Each list moves its beginning on as it fills: in the end starts[j + 1] is where the last entry of list j is.
  store<u32>(starts, <u32>entries);
  const whole = columns & ~(GROUP - 1);
  for (let r: u32 = 0; r < rows; r++) {
    const row = load<u32>(bTable + ((<usize>r) << 2));
    let from = <usize>load<u32>(aTable + ((<usize>r) << 2)) + offset;
    let at = starts + 4;
    let j: u32 = 0;
    while (j < columns) {
      const count = j < whole ? GROUP : columns - j;
      if (count == GROUP && isBlank(from)) {
        from += GROUP << 2;
        at += GROUP << 2;
      } else {
        for (let left = count; left; left--) {
          const x = load<f32>(from);
          const to = <usize>load<u32>(at);
          store<u32>(to, row);
          store<f32>(to, x, 4);
          store<u32>(at, <u32>to + (u32(x != 0) << 3));
          from += 4;
          at += 4;
        }
      }
      j += count;
    }
  }
  // The last entry of a list was written over by whatever came last, and names a row that there is.
  for (let j: u32 = 0; j < columns; j++) {
    const place = starts + 4 + ((<usize>j) << 2);
    const end = load<u32>(place);
    store<f32>(end, 0, 4);
    store<u32>(place, end + 8);
  }
}

/** C[m × n] = lists·B, list by list, from the n floats at `begin`; with begin 0 added to C. A row of B is at base + what its entry says. */
export function multiplyListed(starts: usize, m: u32, base: usize, n: u32, begin: usize, c: usize, ldc: usize): void {
  let j: u32 = 0;
  while (j < n) {
    const offset = (<usize>j) << 2;
    const width = widthOf(n - j);
    let at = starts;
    let into = c + offset;
    for (let r: u32 = 0; r < m; r++) {
      oneList(load<u32>(at), load<u32>(at, 4), base + offset, begin ? begin + offset : into, into, width);
      at += 4;
      into += ldc;
    }
    j += width;
  }
}

/**
 * The same for a B of k rows, `ldb` apart, of which 16 columns at a time are copied to `panel` (64·k bytes): its rows then lie side by side, and
 * those that are met often stay in the first-level cache. The lists name them by 64·row.
 */
export function multiplyListedPanels(
  starts: usize,
  m: u32,
  b: usize,
  ldb: usize,
  k: u32,
  n: u32,
  panel: usize,
  begin: usize,
  c: usize,
  ldc: usize,
): void {
  let j: u32 = 0;
  while (j < n) {
    const offset = (<usize>j) << 2;
    const width: u32 = n - j >= 16 ? 16 : 8;
    copyColumns(b + offset, ldb, k, width, panel);
    multiplyListed(starts, m, panel, width, begin ? begin + offset : 0, c + offset, ldc);
    j += width;
  }
}

function copyColumns(from: usize, stride: usize, rows: u32, width: u32, to: usize): void {
  const bytes = (<usize>width) << 2;
  while (rows--) {
    for (let at: usize = 0; at < bytes; at += 32) {
      v128.store(to + at, v128.load(from + at));
      v128.store(to + at, v128.load(from + at, 16), 16);
    }
    from += stride;
    to += 64;
  }
}

/** Columns that are taken at once. */
export function widthOf(left: u32): u32 {
  return left >= WIDE ? WIDE : left >= 16 ? 16 : 8;
}

function oneList(entries: usize, end: usize, b: usize, begin: usize, c: usize, width: u32): void {
  if (width == WIDE) listed8(entries, end, b, begin, c);
  else if (width == 16) listed4(entries, end, b, begin, c);
  else listed2(entries, end, b, begin, c);
}

/**
 * The windows of a convolution over one image of h rows, as lists of what is set: for each of the `run` floats in a row of a window, and each row of the
 * image, what it meets there in the q windows side by side, `step` bytes from one to the next. Rows that the windows below each other meet stand behind
 * each other: strideH times t of them, first + i·strideH in place i; those from h on are empty. An entry names by offset a pixel of the output, `pixel`
 * bytes each, as if row i of it belonged to place i. starts: run · strideH · t + 1.
 */
export function listWindows(
  x: usize,
  rowBytes: usize,
  h: u32,
  run: u32,
  q: u32,
  step: usize,
  strideH: u32,
  t: u32,
  pixel: u32,
  entries: usize,
  starts: usize,
): void {
  for (let j: u32 = 0; j < run; j++) {
    for (let first: u32 = 0; first < strideH; first++) {
      let offset: u32 = 0;
      for (let i: u32 = 0; i < t; i++) {
        store<u32>(starts, <u32>entries);
        starts += 4;
        const row = first + i * strideH;
        if (row < h) entries = listOne(x + row * rowBytes + ((<usize>j) << 2), q, step, offset, pixel, entries);
        offset += q * pixel;
      }
    }
  }
  store<u32>(starts, <u32>entries);
}

function listOne(from: usize, q: u32, step: usize, offset: u32, pixel: u32, entries: usize): usize {
  const whole = step == 4 ? q & ~(GROUP - 1) : 0;
  let s: u32 = 0;
  while (s < q) {
    const count = s < whole ? GROUP : q - s;
    if (count == GROUP && step == 4 && isBlank(from)) {
      from += GROUP << 2;
      offset += GROUP * pixel;
    } else {
      for (let left = count; left; left--) {
        const value = load<f32>(from);
        store<u32>(entries, offset);
        store<f32>(entries, value, 4);
        entries += (<usize>(value != 0)) << 3;
        from += step;
        offset += pixel;
      }
    }
    s += count;
  }
  return entries;
}

/** C[filterH · run, n] = those lists · n floats for each pixel of the output at b, its `rows` rows from `from` on; begins as multiplyListed. */
export function multiplyListedWindows(
  starts: usize,
  run: u32,
  strideH: u32,
  t: u32,
  filterH: u32,
  from: u32,
  rows: u32,
  b: usize,
  rowBytes: usize,
  n: u32,
  begin: usize,
  c: usize,
): void {
  const row = (<usize>n) << 2;
  const list = (<usize>(strideH * t)) << 2;
  let k: u32 = 0;
  while (k < n) {
    const offset = (<usize>k) << 2;
    const width = widthOf(n - k);
    let into = c + offset;
    for (let i: u32 = 0; i < filterH; i++) {
      const down = i / strideH;
      let at = starts + ((<usize>((i % strideH) * t + down + from)) << 2);
      const base = b + offset - down * rowBytes;
      for (let j: u32 = 0; j < run; j++) {
        oneList(load<u32>(at), load<u32>(at + ((<usize>rows) << 2)), base, begin ? begin + offset : into, into, width);
        at += list;
        into += row;
      }
    }
    k += width;
  }
}

/**
 * The transpose of a convolution for one image, as spreadWindows: dx[p·strideH + i, q·strideW + j, ·] += list(p, q)·filter[i, j]ᵀ.
 * filter: for every cell the rows [depth of dy, n] that the lists name by offset.
 */
export function spreadListed(
  starts: usize,
  p: u32,
  q: u32,
  filter: usize,
  cellBytes: usize,
  filterH: u32,
  filterW: u32,
  dx: usize,
  rowBytes: usize,
  n: u32,
  strideH: u32,
  strideW: u32,
): void {
  const pixel = (<usize>n) << 2;
  for (let i: u32 = 0; i < filterH; i++) {
    for (let j: u32 = 0; j < filterW; j++) {
      for (let r: u32 = 0; r < p; r++) {
        const into = dx + (r * strideH + i) * rowBytes + j * pixel;
        multiplyListed(starts + ((<usize>(r * q)) << 2), q, filter, n, 0, into, strideW * pixel);
      }
      filter += cellBytes;
    }
  }
}

/** to[j, i] = from[i, j] */
export function transpose(from: usize, rows: u32, columns: u32, to: usize): void {
  const stride = (<usize>rows) << 2;
  for (let i: u32 = 0; i < rows; i++) {
    let at = to + ((<usize>i) << 2);
    for (let j: u32 = 0; j < columns; j++) {
      store<f32>(at, load<f32>(from));
      from += 4;
      at += stride;
    }
  }
}
