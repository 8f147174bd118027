/**
 * Products with thin factors, for PowerSGD. A matrix lies row by row; of its first row `head` elements are missing and count as 0, and so does what its last row
 * lacks. Columns of P and Q lie one after the other. Sums are float64, and each is taken in the order of src/low-rank-references.ts: products of two float32 are
 * exact there, so lanes are sums that do not meet.
 */
import { Add, put1, put4, Put } from './codec-blocks';

const ZERO: v128 = i64x2.splat(0);

/** The first and the second two of four float32, as float64. */
function low2(x: v128): v128 {
  return f64x2.promote_low_f32x4(x);
}

function high2(x: v128): v128 {
  return f64x2.promote_low_f32x4(i8x16.shuffle(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
}

/** n float32 at `src` as float64 at `dst`. */
function widen(src: usize, dst: usize, n: u32): void {
  while (n >= 4) {
    const x = v128.load(src);
    v128.store(dst, low2(x));
    v128.store(dst, high2(x), 16);
    src += 16;
    dst += 32;
    n -= 4;
  }
  while (n) {
    store<f64>(dst, <f64>load<f32>(src));
    src += 4;
    dst += 8;
    n--;
  }
}

/** Of a row that is not whole: from column `from` on, `n` elements at `x`. */
function dotOf(x: usize, wide: usize, from: u32, n: u32): f64 {
  let sum: f64 = 0;
  wide += (<usize>from) << 3;
  while (n) {
    sum += <f64>load<f32>(x) * load<f64>(wide);
    x += 4;
    wide += 8;
    n--;
  }
  return sum;
}

/** Eight whole rows times a column of Q as float64: two rows in each sum, so every row is added up from its first element on. */
function timesRows(x: usize, columns: u32, wide: usize, p: usize): void {
  const stride = (<usize>columns) << 2;
  const x1 = x + stride;
  const x2 = x1 + stride;
  const x3 = x2 + stride;
  const x4 = x3 + stride;
  const x5 = x4 + stride;
  const x6 = x5 + stride;
  const x7 = x6 + stride;
  let sum0 = ZERO;
  let sum1 = ZERO;
  let sum2 = ZERO;
  let sum3 = ZERO;
  let at: usize = 0;
  let rest = columns;
  while (rest >= 4) {
    const q0 = v128.load64_splat(wide);
    const q1 = v128.load64_splat(wide, 8);
    const q2 = v128.load64_splat(wide, 16);
    const q3 = v128.load64_splat(wide, 24);
    sum0 = four(sum0, v128.load(x + at), v128.load(x1 + at), q0, q1, q2, q3);
    sum1 = four(sum1, v128.load(x2 + at), v128.load(x3 + at), q0, q1, q2, q3);
    sum2 = four(sum2, v128.load(x4 + at), v128.load(x5 + at), q0, q1, q2, q3);
    sum3 = four(sum3, v128.load(x6 + at), v128.load(x7 + at), q0, q1, q2, q3);
    wide += 32;
    at += 16;
    rest -= 4;
  }
  while (rest) {
    const q = v128.load64_splat(wide);
    sum0 = one(sum0, x + at, x1 + at, q);
    sum1 = one(sum1, x2 + at, x3 + at, q);
    sum2 = one(sum2, x4 + at, x5 + at, q);
    sum3 = one(sum3, x6 + at, x7 + at, q);
    wide += 8;
    at += 4;
    rest--;
  }
  store4(p, sum0, sum1);
  store4(p + 16, sum2, sum3);
}

/** Four columns of two rows. */
function four(sum: v128, a: v128, b: v128, q0: v128, q1: v128, q2: v128, q3: v128): v128 {
  const first = i8x16.shuffle(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const second = i8x16.shuffle(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  sum = f64x2.add(sum, f64x2.mul(low2(first), q0));
  sum = f64x2.add(sum, f64x2.mul(high2(first), q1));
  sum = f64x2.add(sum, f64x2.mul(low2(second), q2));
  return f64x2.add(sum, f64x2.mul(high2(second), q3));
}

function one(sum: v128, a: usize, b: usize, q: v128): v128 {
  return f64x2.add(sum, f64x2.mul(low2(v128.load32_lane(b, v128.load32_zero(a), 1)), q));
}

/** Four float64 as float32. */
function store4(at: usize, low: v128, high: v128): void {
  v128.store(at, pair(low, high));
}

function pair(low: v128, high: v128): v128 {
  const a = f32x4.demote_f64x2_zero(low);
  const b = f32x4.demote_f64x2_zero(high);
  return i8x16.shuffle(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
}

/** P = M · Q. Each group of rows is multiplied by all columns of Q while it is in the cache. @param scratch 8 · columns · rank bytes, written over */
export function lowRankTimes(
  matrix: usize,
  q: usize,
  p: usize,
  rows: u32,
  columns: u32,
  rank: u32,
  head: u32,
  length: u32,
  scratch: usize,
): void {
  widen(q, scratch, columns * rank);
  const wideStride = (<usize>columns) << 3;
  const stride = (<usize>rows) << 2;
  let from = head;
  while (length) {
    const isGroup = from == 0 && length >= columns << 3;
    const n = isGroup ? columns << 3 : min(columns - from, length);
    let wide = scratch;
    let out = p;
    for (let k: u32 = 0; k < rank; k++) {
      if (isGroup) timesRows(matrix, columns, wide, out);
      else store<f32>(out, <f32>dotOf(matrix, wide, from, n));
      wide += wideStride;
      out += stride;
    }
    matrix += (<usize>n) << 2;
    p += isGroup ? 32 : 4;
    length -= n;
    from = 0;
  }
}

/** Sums of columns are added up for so many rows before the next columns are: what these rows have is in the cache. */
const PANEL: u32 = 32;

/** sums += value · x, of a row that is not whole. */
function addRow(x: usize, value: f64, sums: usize, n: u32): void {
  if (value == 0) return;
  while (n) {
    store<f64>(sums, load<f64>(sums) + <f64>load<f32>(x) * value);
    x += 4;
    sums += 8;
    n--;
  }
}

/** Sixteen columns of whole rows, added to their sums row by row. */
function addColumns16(x: usize, stride: usize, p: usize, rows: u32, sums: usize): void {
  let s0 = v128.load(sums);
  let s1 = v128.load(sums, 16);
  let s2 = v128.load(sums, 32);
  let s3 = v128.load(sums, 48);
  let s4 = v128.load(sums, 64);
  let s5 = v128.load(sums, 80);
  let s6 = v128.load(sums, 96);
  let s7 = v128.load(sums, 112);
  while (rows) {
    const value = <f64>load<f32>(p);
    if (value != 0) {
      const by = f64x2.splat(value);
      const a = v128.load(x);
      const b = v128.load(x, 16);
      const c = v128.load(x, 32);
      const d = v128.load(x, 48);
      s0 = f64x2.add(s0, f64x2.mul(low2(a), by));
      s1 = f64x2.add(s1, f64x2.mul(high2(a), by));
      s2 = f64x2.add(s2, f64x2.mul(low2(b), by));
      s3 = f64x2.add(s3, f64x2.mul(high2(b), by));
      s4 = f64x2.add(s4, f64x2.mul(low2(c), by));
      s5 = f64x2.add(s5, f64x2.mul(high2(c), by));
      s6 = f64x2.add(s6, f64x2.mul(low2(d), by));
      s7 = f64x2.add(s7, f64x2.mul(high2(d), by));
    }
    x += stride;
    p += 4;
    rows--;
  }
  v128.store(sums, s0);
  v128.store(sums, s1, 16);
  v128.store(sums, s2, 32);
  v128.store(sums, s3, 48);
  v128.store(sums, s4, 64);
  v128.store(sums, s5, 80);
  v128.store(sums, s6, 96);
  v128.store(sums, s7, 112);
}

function addColumns4(x: usize, stride: usize, p: usize, rows: u32, sums: usize): void {
  let s0 = v128.load(sums);
  let s1 = v128.load(sums, 16);
  while (rows) {
    const value = <f64>load<f32>(p);
    if (value != 0) {
      const by = f64x2.splat(value);
      const a = v128.load(x);
      s0 = f64x2.add(s0, f64x2.mul(low2(a), by));
      s1 = f64x2.add(s1, f64x2.mul(high2(a), by));
    }
    x += stride;
    p += 4;
    rows--;
  }
  v128.store(sums, s0);
  v128.store(sums, s1, 16);
}

function addColumn(x: usize, stride: usize, p: usize, rows: u32, sums: usize): void {
  let sum = load<f64>(sums);
  while (rows) {
    const value = <f64>load<f32>(p);
    if (value != 0) sum += <f64>load<f32>(x) * value;
    x += stride;
    p += 4;
    rows--;
  }
  store<f64>(sums, sum);
}

function squareOf(p: usize, n: u32): f64 {
  let square: f64 = 0;
  while (n) {
    const value = <f64>load<f32>(p);
    square += value * value;
    p += 4;
    n--;
  }
  return square;
}

/** Whole rows, added to the sums of all columns. */
function addRows(x: usize, columns: u32, p: usize, rows: u32, sums: usize): void {
  const stride = (<usize>columns) << 2;
  while (columns >= 16) {
    addColumns16(x, stride, p, rows, sums);
    x += 64;
    sums += 128;
    columns -= 16;
  }
  while (columns >= 4) {
    addColumns4(x, stride, p, rows, sums);
    x += 16;
    sums += 32;
    columns -= 4;
  }
  while (columns) {
    addColumn(x, stride, p, rows, sums);
    x += 4;
    sums += 8;
    columns--;
  }
}

/** Q = Mᵀ · P, over the length of each column of P. Each panel of rows is added to the sums of all columns of P. @param scratch 8 · columns · rank bytes, written over */
export function lowRankTransposedTimes(
  matrix: usize,
  p: usize,
  q: usize,
  rows: u32,
  columns: u32,
  rank: u32,
  head: u32,
  length: u32,
  scratch: usize,
): void {
  memory.fill(scratch, 0, ((<usize>columns) << 3) * rank);
  const wideStride = (<usize>columns) << 3;
  const stride = (<usize>rows) << 2;
  let from = head;
  let at = p;
  while (length) {
    const panel = from == 0 ? min(length / columns, PANEL) : 0;
    const n = panel > 0 ? panel * columns : min(columns - from, length);
    let sums = scratch;
    let column = at;
    for (let k: u32 = 0; k < rank; k++) {
      if (panel > 0) addRows(matrix, columns, column, panel, sums);
      else addRow(matrix, <f64>load<f32>(column), sums + ((<usize>from) << 3), n);
      sums += wideStride;
      column += stride;
    }
    matrix += (<usize>n) << 2;
    at += (<usize>max(panel, 1)) << 2;
    length -= n;
    from = 0;
  }
  while (rank) {
    const square = squareOf(p, rows);
    for (let i: u32 = 0; i < columns; i++) {
      const sum = load<f64>(scratch + ((<usize>i) << 3));
      store<f32>(q + ((<usize>i) << 2), square > 0 ? <f32>(sum / square) : 0);
    }
    p += stride;
    q += (<usize>columns) << 2;
    scratch += wideStride;
    rank--;
  }
}

/**
 * Four of a row of P · Qᵀ of rank 1: a product in float32 has the bits of the exact one, rounded. The reference adds it to 0, so an exact −0 becomes +0, and one
 * that is too small for float32 does not.
 */
function outer4(q: v128, by: v128): v128 {
  const product = f32x4.mul(q, by);
  const zero = f32x4.splat(0);
  return v128.bitselect(f32x4.add(product, zero), product, v128.or(f32x4.eq(q, zero), f32x4.eq(by, zero)));
}

function outerRow<How>(value: f32, q: usize, out: usize, n: u32): void {
  const by = f32x4.splat(value);
  while (n >= 8) {
    put4<How>(out, outer4(v128.load(q), by));
    put4<How>(out + 16, outer4(v128.load(q, 16), by));
    q += 32;
    out += 32;
    n -= 8;
  }
  while (n) {
    put1<How>(out, f32x4.extract_lane(outer4(v128.load32_zero(q), by), 0));
    q += 4;
    out += 4;
    n--;
  }
}

/** A row of P · Qᵀ, from one column on. @param p element of the row in the first column of P @param wide that column in the first of Q, as float64 */
function productRow<How>(p: usize, stride: usize, wide: usize, wideStride: usize, rank: u32, out: usize, n: u32): void {
  while (n >= 8) {
    let s0 = ZERO;
    let s1 = ZERO;
    let s2 = ZERO;
    let s3 = ZERO;
    let from = p;
    let q = wide;
    for (let k: u32 = 0; k < rank; k++) {
      const by = f64x2.splat(<f64>load<f32>(from));
      s0 = f64x2.add(s0, f64x2.mul(v128.load(q), by));
      s1 = f64x2.add(s1, f64x2.mul(v128.load(q, 16), by));
      s2 = f64x2.add(s2, f64x2.mul(v128.load(q, 32), by));
      s3 = f64x2.add(s3, f64x2.mul(v128.load(q, 48), by));
      from += stride;
      q += wideStride;
    }
    put4<How>(out, pair(s0, s1));
    put4<How>(out + 16, pair(s2, s3));
    wide += 64;
    out += 32;
    n -= 8;
  }
  while (n) {
    let sum: f64 = 0;
    let from = p;
    let q = wide;
    for (let k: u32 = 0; k < rank; k++) {
      sum += <f64>load<f32>(from) * load<f64>(q);
      from += stride;
      q += wideStride;
    }
    put1<How>(out, <f32>sum);
    wide += 8;
    out += 4;
    n--;
  }
}

function product<How>(p: usize, q: usize, out: usize, rows: u32, columns: u32, rank: u32, head: u32, length: u32, scratch: usize): void {
  const stride = (<usize>rows) << 2;
  if (rank > 1) widen(q, scratch, columns * rank);
  let from = head;
  while (length) {
    const n = min(columns - from, length);
    if (rank == 1) outerRow<How>(load<f32>(p), q + ((<usize>from) << 2), out, n);
    else productRow<How>(p, stride, scratch + ((<usize>from) << 3), (<usize>columns) << 3, rank, out, n);
    out += (<usize>n) << 2;
    length -= n;
    p += 4;
    from = 0;
  }
}

/** P · Qᵀ. @param scratch 8 · columns · rank bytes, written over */
export function lowRankProduct(
  p: usize,
  q: usize,
  out: usize,
  rows: u32,
  columns: u32,
  rank: u32,
  head: u32,
  length: u32,
  scratch: usize,
): void {
  product<Put>(p, q, out, rows, columns, rank, head, length, scratch);
}

export function addLowRankProduct(
  p: usize,
  q: usize,
  out: usize,
  rows: u32,
  columns: u32,
  rank: u32,
  head: u32,
  length: u32,
  scratch: usize,
): void {
  product<Add>(p, q, out, rows, columns, rank, head, length, scratch);
}
