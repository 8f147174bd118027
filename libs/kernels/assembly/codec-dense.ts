/**
 * Encodings of gradients that keep every element: half precision, whole numbers with a step per block, signs. What each byte means is written beside the
 * plain TypeScript of src/codec-references.ts. Random bits are a hash of (key + element): the same elements under the same key are the same bytes.
 *
 * A decoder is written once and compiled twice: it puts its elements, or adds them to what is there.
 */
import { Add, BLOCK, HASH_STEP, largestMagnitude, Put, put1, put4, shortHash, shortHash4 } from './codec-blocks';

/** Blocks whose largest magnitude is smaller are zero: the reciprocal of their step would overflow. */
const LEAST: f32 = 1e-35;

// ---- half precision ----

/** Float32 bits of four elements to IEEE half precision, to nearest even. The bits are in the low half of each lane. */
function half4(x: v128): v128 {
  const sign = v128.and(x, i32x4.splat(0x80000000));
  const a = v128.xor(x, sign);
  // Below 2^-14 the sum with 0.5 has its last bit where that of the result is.
  const small = i32x4.sub(f32x4.add(a, i32x4.splat(0x3f000000)), i32x4.splat(0x3f000000));
  const odd = v128.and(i32x4.shr_u(a, 13), i32x4.splat(1));
  const normal = i32x4.shr_u(i32x4.add(i32x4.add(a, i32x4.splat(0xc8000fff)), odd), 13);
  let bits = v128.bitselect(small, normal, i32x4.lt_s(a, i32x4.splat(0x38800000)));
  const special = v128.or(i32x4.splat(0x7c00), v128.and(i32x4.gt_s(a, i32x4.splat(0x7f800000)), i32x4.splat(0x200)));
  bits = v128.bitselect(special, bits, i32x4.gt_s(a, i32x4.splat(0x477fffff)));
  return v128.or(bits, i32x4.shr_u(sign, 16));
}

function fromHalf4(h: v128): v128 {
  const magnitude = v128.and(h, i32x4.splat(0x7fff));
  const scaled = f32x4.mul(i32x4.shl(magnitude, 13), i32x4.splat(0x77800000));
  const special = v128.and(i32x4.gt_s(magnitude, i32x4.splat(0x7bff)), i32x4.splat(0x7f800000));
  return v128.or(v128.or(scaled, special), i32x4.shl(v128.and(h, i32x4.splat(0x8000)), 16));
}

/** Of eight elements whose magnitudes are 0 or those of normal numbers of half precision: from their upper halves, which are sign, exponent and seven digits, and their lower ones. */
function normal8(upper: v128, lower: v128, magnitude: v128, isZero: v128): v128 {
  const bits = v128.or(i16x8.shl(i16x8.sub(magnitude, i16x8.splat(0x3800)), 3), i16x8.shr_u(lower, 13));
  // To nearest even: up, where what is cut off and the last bit are more than half of it.
  const cut = i16x8.add(v128.and(lower, i16x8.splat(0x1fff)), v128.and(bits, i16x8.splat(1)));
  const rounded = i16x8.sub(bits, i16x8.gt_s(cut, i16x8.splat(0x1000)));
  return v128.or(v128.andnot(rounded, isZero), v128.and(upper, i16x8.splat(-32768)));
}

/** Sixteen elements for each look at whether all are normal. */
function toHalves16(src: usize, dst: usize, sixteens: u32, by: v128): void {
  const mask = i16x8.splat(0x7fff);
  const zero = i16x8.splat(0);
  while (sixteens) {
    const a = f32x4.mul(v128.load(src), by);
    const b = f32x4.mul(v128.load(src, 16), by);
    const c = f32x4.mul(v128.load(src, 32), by);
    const d = f32x4.mul(v128.load(src, 48), by);
    const upper0 = i8x16.shuffle(a, b, 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31);
    const upper1 = i8x16.shuffle(c, d, 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31);
    const magnitude0 = v128.and(upper0, mask);
    const magnitude1 = v128.and(upper1, mask);
    const isZero0 = i16x8.eq(magnitude0, zero);
    const isZero1 = i16x8.eq(magnitude1, zero);
    // How far each is above the least normal number; below it is very far, and 0 is none of these.
    const above0 = v128.andnot(i16x8.sub(magnitude0, i16x8.splat(0x3880)), isZero0);
    const above1 = v128.andnot(i16x8.sub(magnitude1, i16x8.splat(0x3880)), isZero1);
    const most = i16x8.max_u(above0, above1);
    if (v128.any_true(i16x8.gt_u(most, i16x8.splat(0x477f - 0x3880)))) {
      const first = half4(a);
      v128.store(dst, i16x8.narrow_i32x4_u(first, half4(b)));
      const third = half4(c);
      v128.store(dst, i16x8.narrow_i32x4_u(third, half4(d)), 16);
    } else {
      const lower0 = i8x16.shuffle(a, b, 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29);
      const lower1 = i8x16.shuffle(c, d, 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29);
      v128.store(dst, normal8(upper0, lower0, magnitude0, isZero0));
      v128.store(dst, normal8(upper1, lower1, magnitude1, isZero1), 16);
    }
    src += 64;
    dst += 32;
    sixteens--;
  }
}

export function toHalf(src: usize, dst: usize, n: u32, factor: f32): void {
  const by = f32x4.splat(factor);
  toHalves16(src, dst, n >> 4, by);
  src += (<usize>(n >> 4)) << 6;
  dst += (<usize>(n >> 4)) << 5;
  n &= 15;
  while (n) {
    const bits = half4(f32x4.mul(n < 4 ? few(src, n) : v128.load(src), by));
    const halves = i16x8.narrow_i32x4_u(bits, bits);
    if (n < 4) return storeFew(dst, halves, n);
    v128.store64_lane(dst, halves, 0);
    src += 16;
    dst += 8;
    n -= 4;
  }
}

/** One to three elements, and zeros. */
function few(src: usize, n: u32): v128 {
  let x = v128.load32_zero(src);
  if (n > 1) x = v128.load32_lane(src + 4, x, 1);
  return n > 2 ? v128.load32_lane(src + 8, x, 2) : x;
}

/** One to three halves. */
function storeFew(dst: usize, halves: v128, n: u32): void {
  v128.store16_lane(dst, halves, 0);
  if (n > 1) v128.store16_lane(dst + 2, halves, 1);
  if (n > 2) v128.store16_lane(dst + 4, halves, 2);
}

function decodeHalves<How>(src: usize, dst: usize, n: u32, factor: f32): void {
  const by = f32x4.splat(factor);
  // With the exponent of half precision in place of that of float32; both factors are powers of two, so one product is the same as two.
  const both = factor * reinterpret<f32>(0x77800000);
  const isOne = abs(both) < Infinity && abs(both) >= <f32>1.17549435e-38;
  const byBoth = f32x4.splat(both);
  const infinite = i16x8.splat(0x7c00);
  const kept = i32x4.splat(0x8fffe000);
  while (n >= 8) {
    const halves = v128.load(src);
    if (isOne && !v128.any_true(i16x8.eq(v128.and(halves, infinite), infinite))) {
      // Sign in the upper bits, magnitude 13 bits higher than in the half.
      put4<How>(dst, f32x4.mul(v128.and(i32x4.shl(i32x4.extend_low_i16x8_s(halves), 13), kept), byBoth));
      put4<How>(dst + 16, f32x4.mul(v128.and(i32x4.shl(i32x4.extend_high_i16x8_s(halves), 13), kept), byBoth));
    } else {
      put4<How>(dst, f32x4.mul(fromHalf4(i32x4.extend_low_i16x8_u(halves)), by));
      put4<How>(dst + 16, f32x4.mul(fromHalf4(i32x4.extend_high_i16x8_u(halves)), by));
    }
    src += 16;
    dst += 32;
    n -= 8;
  }
  let rest = n;
  while (rest) {
    put1<How>(dst, f32x4.extract_lane(fromHalf4(i32x4.splat(load<u16>(src))), 0) * factor);
    src += 2;
    dst += 4;
    rest--;
  }
}

export function fromHalf(src: usize, dst: usize, n: u32, factor: f32): void {
  decodeHalves<Put>(src, dst, n, factor);
}

export function addHalf(src: usize, dst: usize, n: u32, factor: f32): void {
  decodeHalves<Add>(src, dst, n, factor);
}

function bfloat4(x: v128): v128 {
  const odd = v128.and(i32x4.shr_u(x, 16), i32x4.splat(1));
  const rounded = i32x4.shr_u(i32x4.add(i32x4.add(x, i32x4.splat(0x7fff)), odd), 16);
  const quiet = v128.or(i32x4.shr_u(x, 16), i32x4.splat(0x40));
  return v128.bitselect(quiet, rounded, f32x4.ne(x, x));
}

export function toBfloat(src: usize, dst: usize, n: u32): void {
  let fours = <usize>n >> 2;
  while (fours) {
    const bits = bfloat4(v128.load(src));
    v128.store64_lane(dst, i16x8.narrow_i32x4_u(bits, bits), 0);
    src += 16;
    dst += 8;
    fours--;
  }
  let rest = n & 3;
  while (rest) {
    store<u16>(dst, <u16>i32x4.extract_lane(bfloat4(f32x4.splat(load<f32>(src))), 0));
    src += 4;
    dst += 2;
    rest--;
  }
}

function decodeBfloats<How>(src: usize, dst: usize, n: u32): void {
  let fours = <usize>n >> 2;
  while (fours) {
    put4<How>(dst, i32x4.shl(v128.load_ext<u16>(src), 16));
    src += 8;
    dst += 16;
    fours--;
  }
  let rest = n & 3;
  while (rest) {
    put1<How>(dst, reinterpret<f32>((<u32>load<u16>(src)) << 16));
    src += 2;
    dst += 4;
    rest--;
  }
}

export function fromBfloat(src: usize, dst: usize, n: u32): void {
  decodeBfloats<Put>(src, dst, n);
}

export function addBfloat(src: usize, dst: usize, n: u32): void {
  decodeBfloats<Add>(src, dst, n);
}

// ---- whole numbers with a step per block ----

/** Sums with it lie between 256 and 512 for numbers of 8 bits, so the last bit of each is 2^-15. */
const CENTRE: f32 = 384;
/** What is left of the bits of a sum behind its fraction, where the number is 0. */
const CENTRE_WHOLE: u32 = 0x43c00000 >> 15;

/**
 * Numbers of four elements, CENTRE_WHOLE more: rounded up where the fraction, of 15 bits, and the random bits make one. No element is NaN.
 * @param random 15 bits in each lane
 */
function whole4(x: v128, random: v128, inverse: v128): v128 {
  return i32x4.shr_u(i32x4.add(f32x4.add(f32x4.mul(x, inverse), f32x4.splat(CENTRE)), random), 15);
}

/** Numbers of two fours as 16 bits each. */
function whole8(first: v128, second: v128): v128 {
  return i16x8.sub(i16x8.narrow_i32x4_u(first, second), i16x8.splat(<i16>CENTRE_WHOLE));
}

/** Keys of the first of 16 elements, as whole16 takes them; those of the next 16 are `NEXT_16` more. */
function keysOf(key: u32): v128 {
  return i32x4(key, key + HASH_STEP, key + 2 * HASH_STEP, key + 3 * HASH_STEP);
}

const NEXT_16: u32 = 8 * HASH_STEP;

/** Of 16 elements; those at i and i + 4 share the hash of one lane, the first has its low 15 bits and the other its high ones. Numbers are cut to a byte alone. */
function bytes16(src: usize, keys: v128, inverse: v128): v128 {
  const first = shortHash4(keys);
  const second = shortHash4(i32x4.add(keys, i32x4.splat(4 * HASH_STEP)));
  const lower = i32x4.splat(0x7fff);
  const low = whole8(whole4(v128.load(src), v128.and(first, lower), inverse), whole4(v128.load(src, 16), i32x4.shr_u(first, 17), inverse));
  const high = whole8(
    whole4(v128.load(src, 32), v128.and(second, lower), inverse),
    whole4(v128.load(src, 48), i32x4.shr_u(second, 17), inverse),
  );
  return i8x16.narrow_i16x8_s(low, high);
}

/** The same, cut to ±most: numbers are few more. */
function whole16(src: usize, keys: v128, inverse: v128, most: v128): v128 {
  return i8x16.min_s(i8x16.max_s(bytes16(src, keys, inverse), i8x16.neg(most)), most);
}

/** Element i of a group, as whole16 does it. */
function whole1(x: f32, i: u32, key: u32, inverse: f32, most: i32): i32 {
  const both = shortHash(key + (((i >> 3) << 2) + (i & 3)) * HASH_STEP);
  const random = i & 4 ? both >> 17 : both & 0x7fff;
  const whole = <i32>((reinterpret<u32>(x * inverse + CENTRE) + random) >> 15) - <i32>CENTRE_WHOLE;
  return min(max(whole, -most), most);
}

/** 16 bytes hold `group` numbers: those of one position in each lane of 8 bits, lowest bits first. */
function groupOf(bits: u32): u32 {
  return 128 / bits;
}

export function quantize(src: usize, dst: usize, n: u32, bits: u32, key: u32): void {
  const most = ((<i32>1) << (bits - 1)) - 1;
  const mosts = i8x16.splat(<i8>most);
  const group = groupOf(bits);
  let steps = dst;
  let out = dst + ((<usize>((n + BLOCK - 1) / BLOCK)) << 2);
  while (n) {
    const count = min(n, BLOCK);
    const groups = (count + group - 1) / group;
    const top = largestMagnitude(src, count);
    store<f32>(steps, top < LEAST ? 0 : top / <f32>most);
    steps += 4;
    if (top >= LEAST && top < Infinity) {
      const inverse = <f32>most / top;
      pack(src, out, count, bits, key, inverse, mosts);
    } else memory.fill(out, 0, (<usize>groups) << 4);
    out += (<usize>groups) << 4;
    src += (<usize>count) << 2;
    key += (count >> 1) * HASH_STEP;
    n -= count;
  }
}

/** The groups of a block. */
function pack(src: usize, out: usize, n: u32, bits: u32, key: u32, inverse: f32, most: v128): void {
  const group = groupOf(bits);
  const inverse4 = f32x4.splat(inverse);
  let keys = keysOf(key);
  // A number of 8 bits is its byte: nothing has to be shifted, and a byte ends at 127 itself.
  const least = i8x16.splat(-127);
  while (bits == 8 && n >= 32) {
    v128.store(out, i8x16.max_s(bytes16(src, keys, inverse4), least));
    keys = i32x4.add(keys, i32x4.splat(NEXT_16));
    v128.store(out, i8x16.max_s(bytes16(src + 64, keys, inverse4), least), 16);
    keys = i32x4.add(keys, i32x4.splat(NEXT_16));
    out += 32;
    src += 128;
    key += 16 * HASH_STEP;
    n -= 32;
  }
  while (n >= group) {
    let packed = i32x4.splat(0);
    for (let part: u32 = 0; part < 8 / bits; part++) {
      // What is above the bits of a part is shifted out or written over by the next part.
      const next = whole16(src + ((<usize>part) << 6), keys, inverse4, most);
      const below: u32 = (1 << (part * bits)) - 1;
      packed = v128.bitselect(packed, i8x16.shl(next, part * bits), i8x16.splat(<u8>below));
      keys = i32x4.add(keys, i32x4.splat(NEXT_16));
    }
    v128.store(out, packed);
    out += 16;
    src += (<usize>group) << 2;
    key += (group >> 1) * HASH_STEP;
    n -= group;
  }
  if (n == 0) return;
  const mask = ((<u32>1) << bits) - 1;
  v128.store(out, i32x4.splat(0));
  for (let i: u32 = 0; i < n; i++) {
    const q = whole1(load<f32>(src + ((<usize>i) << 2)), i, key, inverse, <i32>i8x16.extract_lane_s(most, 0));
    const at = out + (i & 15);
    store<u8>(at, <u8>(<u32>load<u8>(at) | ((<u32>q & mask) << ((i >> 4) * bits))));
  }
}

function put16<How>(dst: usize, bytes: v128, step: v128): void {
  const low = i16x8.extend_low_i8x16_s(bytes);
  const high = i16x8.extend_high_i8x16_s(bytes);
  put4<How>(dst, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(low)), step));
  put4<How>(dst + 16, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(low)), step));
  put4<How>(dst + 32, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(high)), step));
  put4<How>(dst + 48, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(high)), step));
}

function decodeWholes<How>(src: usize, dst: usize, n: u32, bits: u32): void {
  const group = groupOf(bits);
  let steps = src;
  let from = src + ((<usize>((n + BLOCK - 1) / BLOCK)) << 2);
  while (n) {
    const count = min(n, BLOCK);
    const step = load<f32>(steps);
    const step4 = f32x4.splat(step);
    steps += 4;
    let rest = count;
    while (rest >= group) {
      const bytes = v128.load(from);
      if (bits == 8) put16<How>(dst, bytes, step4);
      else if (bits == 4) {
        put16<How>(dst, i8x16.shr_s(i8x16.shl(bytes, 4), 4), step4);
        put16<How>(dst + 64, i8x16.shr_s(bytes, 4), step4);
      } else {
        put16<How>(dst, i8x16.shr_s(i8x16.shl(bytes, 6), 6), step4);
        put16<How>(dst + 64, i8x16.shr_s(i8x16.shl(bytes, 4), 6), step4);
        put16<How>(dst + 128, i8x16.shr_s(i8x16.shl(bytes, 2), 6), step4);
        put16<How>(dst + 192, i8x16.shr_s(bytes, 6), step4);
      }
      from += 16;
      dst += (<usize>group) << 2;
      rest -= group;
    }
    if (rest) {
      for (let i: u32 = 0; i < rest; i++) {
        const byte = <i32>load<i8>(from + (i & 15));
        const q = (byte << (32 - ((i >> 4) + 1) * bits)) >> (32 - bits);
        put1<How>(dst + ((<usize>i) << 2), <f32>q * step);
      }
      from += 16;
      dst += (<usize>rest) << 2;
    }
    n -= count;
  }
}

export function dequantize(src: usize, dst: usize, n: u32, bits: u32): void {
  decodeWholes<Put>(src, dst, n, bits);
}

export function addQuantized(src: usize, dst: usize, n: u32, bits: u32): void {
  decodeWholes<Add>(src, dst, n, bits);
}

// ---- signs ----

/** Σ |x| of up to 512 elements: element i in lane i mod 8, the lanes added in pairs. */
function sumOfMagnitudes(src: usize, n: u32): f32 {
  let a = f32x4.splat(0);
  let b = f32x4.splat(0);
  let eights = n >> 3;
  while (eights) {
    a = f32x4.add(a, f32x4.abs(v128.load(src)));
    b = f32x4.add(b, f32x4.abs(v128.load(src, 16)));
    src += 32;
    eights--;
  }
  a = f32x4.add(a, b);
  let sum = f32x4.extract_lane(a, 0) + f32x4.extract_lane(a, 1) + (f32x4.extract_lane(a, 2) + f32x4.extract_lane(a, 3));
  let rest = n & 7;
  while (rest) {
    sum += abs(load<f32>(src));
    src += 4;
    rest--;
  }
  return sum;
}

export function toSigns(src: usize, dst: usize, n: u32): void {
  let scales = dst;
  let out = dst + ((<usize>((n + BLOCK - 1) / BLOCK)) << 2);
  while (n) {
    const count = min(n, BLOCK);
    store<f32>(scales, sumOfMagnitudes(src, count) / <f32>count);
    scales += 4;
    let eights = count >> 3;
    while (eights) {
      store<u8>(out, <u8>(i32x4.bitmask(v128.load(src)) | (i32x4.bitmask(v128.load(src, 16)) << 4)));
      src += 32;
      out++;
      eights--;
    }
    const rest = count & 7;
    if (rest) {
      let byte: u32 = 0;
      for (let i: u32 = 0; i < rest; i++) byte |= (load<u32>(src + ((<usize>i) << 2)) >> 31) << i;
      store<u8>(out, <u8>byte);
      src += (<usize>rest) << 2;
      out++;
    }
    n -= count;
  }
}

function decodeSigns<How>(src: usize, dst: usize, n: u32): void {
  let scales = src;
  let from = src + ((<usize>((n + BLOCK - 1) / BLOCK)) << 2);
  const lanes = i32x4(1, 2, 4, 8);
  const sign = i32x4.splat(0x80000000);
  while (n) {
    const count = min(n, BLOCK);
    const scale = load<f32>(scales);
    const scale4 = f32x4.splat(scale);
    scales += 4;
    let eights = count >> 3;
    while (eights) {
      const byte = <u32>load<u8>(from);
      const first = i32x4.eq(v128.and(i32x4.splat(byte), lanes), lanes);
      const second = i32x4.eq(v128.and(i32x4.splat(byte >> 4), lanes), lanes);
      put4<How>(dst, v128.xor(scale4, v128.and(first, sign)));
      put4<How>(dst + 16, v128.xor(scale4, v128.and(second, sign)));
      dst += 32;
      from++;
      eights--;
    }
    const rest = count & 7;
    if (rest) {
      const byte = <u32>load<u8>(from);
      for (let i: u32 = 0; i < rest; i++) {
        put1<How>(dst, reinterpret<f32>(reinterpret<u32>(scale) ^ (((byte >> i) & 1) << 31)));
        dst += 4;
      }
      from++;
    }
    n -= count;
  }
}

export function fromSigns(src: usize, dst: usize, n: u32): void {
  decodeSigns<Put>(src, dst, n);
}

export function addSigns(src: usize, dst: usize, n: u32): void {
  decodeSigns<Add>(src, dst, n);
}
