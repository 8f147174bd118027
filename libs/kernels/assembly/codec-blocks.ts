/** What the encodings of gradients share: blocks, random bits, the largest magnitude, and how elements are put or added. */

/** Elements that share a step or a magnitude. */
export const BLOCK: u32 = 512;
export const HASH_STEP: u32 = 0x9e3779b9;
const HASH_1: u32 = 0x21f0aaad;
const HASH_2: u32 = 0x735a2d97;

export function hash(x: u32): u32 {
  x = (x ^ (x >> 16)) * HASH_1;
  x = (x ^ (x >> 15)) * HASH_2;
  return x ^ (x >> 15);
}

/** One round of `hash`, for rounding at random: neither its low nor its high bits follow from those of another element of the block. */
export function shortHash(x: u32): u32 {
  x = (x ^ (x >> 16)) * HASH_1;
  return x ^ (x >> 15);
}

export function shortHash4(x: v128): v128 {
  x = i32x4.mul(v128.xor(x, i32x4.shr_u(x, 16)), i32x4.splat(HASH_1));
  return v128.xor(x, i32x4.shr_u(x, 15));
}

/** The largest magnitude; NaN where there is one, as its bits are larger than those of infinity. */
export function largestMagnitude(src: usize, n: u32): f32 {
  const magnitude = i32x4.splat(0x7fffffff);
  let most0 = i32x4.splat(0);
  let most1 = i32x4.splat(0);
  let most2 = i32x4.splat(0);
  let most3 = i32x4.splat(0);
  let lines = n >> 4;
  while (lines) {
    most0 = i32x4.max_s(most0, v128.and(v128.load(src), magnitude));
    most1 = i32x4.max_s(most1, v128.and(v128.load(src, 16), magnitude));
    most2 = i32x4.max_s(most2, v128.and(v128.load(src, 32), magnitude));
    most3 = i32x4.max_s(most3, v128.and(v128.load(src, 48), magnitude));
    src += 64;
    lines--;
  }
  most0 = i32x4.max_s(most0, most2);
  most1 = i32x4.max_s(most1, most3);
  n &= 15;
  let eights = n >> 3;
  while (eights) {
    most0 = i32x4.max_s(most0, v128.and(v128.load(src), magnitude));
    most1 = i32x4.max_s(most1, v128.and(v128.load(src, 16), magnitude));
    src += 32;
    eights--;
  }
  most0 = i32x4.max_s(most0, most1);
  let most = max(
    max(i32x4.extract_lane(most0, 0), i32x4.extract_lane(most0, 1)),
    max(i32x4.extract_lane(most0, 2), i32x4.extract_lane(most0, 3)),
  );
  let rest = n & 7;
  while (rest) {
    most = max(most, load<i32>(src) & 0x7fffffff);
    src += 4;
    rest--;
  }
  return reinterpret<f32>(most);
}

/** How a decoder writes its elements: in place of what is at `dst`, or added to it. The compiler makes a function of each. */
export class Put {}
export class Add {}

export function put4<How>(dst: usize, x: v128): void {
  v128.store(dst, idof<How>() == idof<Add>() ? f32x4.add(v128.load(dst), x) : x);
}

export function put1<How>(dst: usize, x: f32): void {
  store<f32>(dst, idof<How>() == idof<Add>() ? load<f32>(dst) + x : x);
}
