/** Whether bytes are those that an encoder writes, where other bytes would be decoded as well. */
import { BLOCK } from './codec-blocks';

/** Positive or +0, or not finite: what encoders write as a step or a magnitude. */
export function isMagnitude(x: f32): bool {
  const bits = reinterpret<u32>(x);
  return bits >> 31 == 0 || (bits & 0x7fffffff) > 0x7f800000;
}

/** The largest step whose largest number is finite, by bits: what is sent of the largest float32. */
function largestStep(bits: u32): f32 {
  return f32.MAX_VALUE / <f32>(((<i32>1) << (bits - 1)) - 1);
}

/** Not 0 in lanes with a number that no encoder writes: the lowest one, which has no counterpart. */
function lowest16(bytes: v128, bits: u32): v128 {
  if (bits == 8) return i8x16.eq(bytes, i8x16.splat(-128));
  if (bits == 4) {
    const low = i8x16.eq(v128.and(bytes, i8x16.splat(0x0f)), i8x16.splat(0x08));
    return v128.or(low, i8x16.eq(v128.and(bytes, i8x16.splat(-16)), i8x16.splat(-128)));
  }
  // Of two bits: the upper one without the lower one.
  const upper = v128.and(i8x16.shr_u(bytes, 1), i8x16.splat(0x55));
  return v128.andnot(upper, bytes);
}

/** 1 when the bytes are what `quantize` may write for n elements. */
export function isQuantized(src: usize, n: u32, bits: u32): u32 {
  const group: u32 = 128 / bits;
  const most = largestStep(bits);
  let steps = src;
  let at = src + ((<usize>((n + BLOCK - 1) / BLOCK)) << 2);
  while (n) {
    const count = min(n, BLOCK);
    const step = load<f32>(steps);
    if (!isMagnitude(step) || (step > most && step < Infinity)) return 0;
    const isEmpty = !(step > 0 && step < Infinity);
    steps += 4;
    let lowest = i32x4.splat(0);
    let all = i32x4.splat(0);
    for (let groups = (count + group - 1) / group; groups; groups--) {
      const bytes = v128.load(at);
      lowest = v128.or(lowest, lowest16(bytes, bits));
      all = v128.or(all, bytes);
      at += 16;
    }
    if (v128.any_true(lowest) || (isEmpty && v128.any_true(all))) return 0;
    // What fills the last group is 0.
    const rest = count % group;
    for (let j: u32 = rest; rest > 0 && j < group; j++) {
      const part = (<u32>load<u8>(at - 16 + (j & 15)) >> ((j >> 4) * bits)) & ((1 << bits) - 1);
      if (part != 0) return 0;
    }
    n -= count;
  }
  return 1;
}

/** 1 when the bytes are what `toSigns` may write for n elements. */
export function isSigns(src: usize, n: u32): u32 {
  const blocks = (n + BLOCK - 1) / BLOCK;
  for (let b: u32 = 0; b < blocks; b++) if (!isMagnitude(load<f32>(src + ((<usize>b) << 2)))) return 0;
  const rest = n & 7;
  return rest == 0 || <u32>load<u8>(src + ((<usize>blocks) << 2) + (n >> 3)) >> rest == 0 ? 1 : 0;
}
