/** What the encodings of gradients share: blocks, random bits, the largest magnitude. */

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

export function hash4(x: v128): v128 {
  x = i32x4.mul(v128.xor(x, i32x4.shr_u(x, 16)), i32x4.splat(HASH_1));
  x = i32x4.mul(v128.xor(x, i32x4.shr_u(x, 15)), i32x4.splat(HASH_2));
  return v128.xor(x, i32x4.shr_u(x, 15));
}

/** The largest magnitude; NaN where there is one. */
export function largestMagnitude(src: usize, n: u32): f32 {
  let most = f32x4.splat(0);
  let fours = <usize>n >> 2;
  while (fours) {
    most = f32x4.max(most, f32x4.abs(v128.load(src)));
    src += 16;
    fours--;
  }
  let one = max(
    max(f32x4.extract_lane(most, 0), f32x4.extract_lane(most, 1)),
    max(f32x4.extract_lane(most, 2), f32x4.extract_lane(most, 3)),
  );
  let rest = n & 3;
  while (rest) {
    one = max(one, abs(load<f32>(src)));
    src += 4;
    rest--;
  }
  return one;
}
