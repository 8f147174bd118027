/**
 * The loops over parameters that are no formula of one element, as AssemblyScript (its compiler makes WebAssembly of it; it is not TypeScript). The
 * others are written by elementwise-kernels.mjs.
 *
 * Pointers are byte offsets into the imported shared memory, counts are float32 elements. Loops count lines down and advance one address per array:
 * V8 then keeps one induction variable for each.
 */

export * from './checksum';
export { largestMagnitude } from './codec-blocks';
export { isQuantized, isSigns } from './codec-checks';
export * from './codec-dense';
export { addLevels, fromLevels, isLevels, toLevels } from './codec-levels';
export * from './codec-sparse';
export * from './elementwise';
export * from './low-rank';

const LINE: usize = 64;

export function copy(dst: usize, src: usize, n: u32): void {
  memory.copy(dst, src, (<usize>n) << 2);
}

/** 1 when no element is NaN or infinite: their exponent bits are all ones, and no other magnitude is as large. */
export function allFinite(src: usize, n: u32): u32 {
  const exponent = i32x4.splat(0x7f800000);
  let most0 = i32x4.splat(0);
  let most1 = i32x4.splat(0);
  let lines = <usize>n >> 4;
  while (lines) {
    most0 = i32x4.max_s(most0, v128.and(v128.load(src), exponent));
    most1 = i32x4.max_s(most1, v128.and(v128.load(src, 16), exponent));
    most0 = i32x4.max_s(most0, v128.and(v128.load(src, 32), exponent));
    most1 = i32x4.max_s(most1, v128.and(v128.load(src, 48), exponent));
    src += LINE;
    lines--;
  }
  if (v128.any_true(i32x4.eq(i32x4.max_s(most0, most1), exponent))) return 0;
  const end = src + ((<usize>n & 15) << 2);
  while (src < end) {
    if ((load<u32>(src) & 0x7f800000) == 0x7f800000) return 0;
    src += 4;
  }
  return 1;
}

/** dst += src; 1 when no sum is NaN or infinite. One pass where add and allFinite take two. */
export function addFinite(dst: usize, src: usize, n: u32): u32 {
  const exponent = i32x4.splat(0x7f800000);
  let most0 = i32x4.splat(0);
  let most1 = i32x4.splat(0);
  let lines = <usize>n >> 4;
  while (lines) {
    const x0 = f32x4.add(v128.load(dst), v128.load(src));
    const x1 = f32x4.add(v128.load(dst, 16), v128.load(src, 16));
    const x2 = f32x4.add(v128.load(dst, 32), v128.load(src, 32));
    const x3 = f32x4.add(v128.load(dst, 48), v128.load(src, 48));
    v128.store(dst, x0);
    v128.store(dst, x1, 16);
    v128.store(dst, x2, 32);
    v128.store(dst, x3, 48);
    most0 = i32x4.max_s(most0, i32x4.max_s(v128.and(x0, exponent), v128.and(x2, exponent)));
    most1 = i32x4.max_s(most1, i32x4.max_s(v128.and(x1, exponent), v128.and(x3, exponent)));
    dst += LINE;
    src += LINE;
    lines--;
  }
  let most: u32 = v128.any_true(i32x4.eq(i32x4.max_s(most0, most1), exponent)) ? 0x7f800000 : 0;
  const end = src + ((<usize>n & 15) << 2);
  while (src < end) {
    const x = load<f32>(dst) + load<f32>(src);
    store<f32>(dst, x);
    most = max(most, reinterpret<u32>(x) & 0x7f800000);
    dst += 4;
    src += 4;
  }
  return <u32>(most != 0x7f800000);
}

/**
 * Σ x² in float64. Element i goes to lane i mod 8; the lanes are added as ((0+1)+(2+3)) + ((4+5)+(6+7)).
 * Squares of float32 are exact in float64, so only the additions round.
 */
export function sumOfSquares(src: usize, n: u32): f64 {
  let s01 = f64x2.splat(0);
  let s23 = f64x2.splat(0);
  let s45 = f64x2.splat(0);
  let s67 = f64x2.splat(0);
  let groups = <usize>n >> 3;
  while (groups) {
    const lo = v128.load(src);
    const hi = v128.load(src, 16);
    const x01 = f64x2.promote_low_f32x4(lo);
    const x23 = f64x2.promote_low_f32x4(v128.shuffle<u64>(lo, lo, 1, 1));
    const x45 = f64x2.promote_low_f32x4(hi);
    const x67 = f64x2.promote_low_f32x4(v128.shuffle<u64>(hi, hi, 1, 1));
    s01 = f64x2.add(s01, f64x2.mul(x01, x01));
    s23 = f64x2.add(s23, f64x2.mul(x23, x23));
    s45 = f64x2.add(s45, f64x2.mul(x45, x45));
    s67 = f64x2.add(s67, f64x2.mul(x67, x67));
    src += 32;
    groups--;
  }
  const rest = n & 7;
  if (rest > 0) s01 = f64x2.add(s01, f64x2(square(src, 0), rest > 1 ? square(src, 1) : 0));
  if (rest > 2) s23 = f64x2.add(s23, f64x2(square(src, 2), rest > 3 ? square(src, 3) : 0));
  if (rest > 4) s45 = f64x2.add(s45, f64x2(square(src, 4), rest > 5 ? square(src, 5) : 0));
  if (rest > 6) s67 = f64x2.add(s67, f64x2(square(src, 6), 0));
  const low = horizontal(s01) + horizontal(s23);
  const high = horizontal(s45) + horizontal(s67);
  return low + high;
}

function square(src: usize, index: usize): f64 {
  const x = <f64>load<f32>(src + (index << 2));
  return x * x;
}

function horizontal(x: v128): f64 {
  return f64x2.extract_lane(x, 0) + f64x2.extract_lane(x, 1);
}
