/** Encodings of gradients that send some elements: the largest ones with their places, and ones that are drawn under a key. As in codec-dense.ts. */
import { HASH_STEP, hash } from './codec-blocks';

const MAGNITUDE: u32 = 0x7fffffff;

/** Counts of elements by bits `shift` and up of their magnitude, of those whose bits `above` and up are `prefix`. */
function histogram(src: usize, n: u32, bins: usize, binCount: u32, shift: u32, above: u32, prefix: u32): void {
  memory.fill(bins, 0, (<usize>binCount) << 2);
  const mask = binCount - 1;
  if (above > 30) return histogramOfAll(src, n, bins, binCount, shift);
  const magnitude = i32x4.splat(MAGNITUDE);
  const wanted = i32x4.splat(prefix);
  let fours = n >> 2;
  while (fours) {
    let hits = <u32>i32x4.bitmask(i32x4.eq(i32x4.shr_u(v128.and(v128.load(src), magnitude), above), wanted));
    while (hits) {
      const x = load<u32>(src + ((<usize>ctz(hits)) << 2)) & MAGNITUDE;
      const at = bins + ((<usize>((x >> shift) & mask)) << 2);
      store<u32>(at, load<u32>(at) + 1);
      hits &= hits - 1;
    }
    src += 16;
    fours--;
  }
  for (let i: u32 = 0; i < (n & 3); i++) {
    const x = load<u32>(src + ((<usize>i) << 2)) & MAGNITUDE;
    if (x >> above != prefix) continue;
    const at = bins + ((<usize>((x >> shift) & mask)) << 2);
    store<u32>(at, load<u32>(at) + 1);
  }
}

/** Neighbours are counted in turn in two histograms: an element that has the bin of the one before need not wait for its count. */
function histogramOfAll(src: usize, n: u32, bins: usize, binCount: u32, shift: u32): void {
  const others = bins + ((<usize>binCount) << 2);
  memory.fill(others, 0, (<usize>binCount) << 2);
  for (let twos = n >> 1; twos > 0; twos--) {
    const a = bins + ((<usize>((load<u32>(src) & MAGNITUDE) >> shift)) << 2);
    store<u32>(a, load<u32>(a) + 1);
    const b = others + ((<usize>((load<u32>(src, 4) & MAGNITUDE) >> shift)) << 2);
    store<u32>(b, load<u32>(b) + 1);
    src += 8;
  }
  if (n & 1) {
    const a = bins + ((<usize>((load<u32>(src) & MAGNITUDE) >> shift)) << 2);
    store<u32>(a, load<u32>(a) + 1);
  }
  for (let at: usize = 0; at < (<usize>binCount) << 2; at += 16)
    v128.store(bins + at, i32x4.add(v128.load(bins + at), v128.load(others + at)));
}

let stillWanted: u32 = 0;

/** The highest bin with which `stillWanted` elements are reached; `stillWanted` is then what is wanted of that bin. */
function binOf(bins: usize, binCount: u32): u32 {
  let bin = binCount - 1;
  while (true) {
    const count = load<u32>(bins + ((<usize>bin) << 2));
    if (count >= stillWanted || bin == 0) return bin;
    stillWanted -= count;
    bin--;
  }
}

/**
 * Bits of the magnitude of the k-th largest element, 1 ≤ k ≤ n. NaN is larger than infinity. `equalWanted` says how many elements with that
 * magnitude are among the k. 16 KiB at `scratch` are overwritten.
 */
export function kthMagnitude(src: usize, n: u32, k: u32, scratch: usize): u32 {
  stillWanted = k;
  histogram(src, n, scratch, 2048, 20, 31, 0);
  const high = binOf(scratch, 2048);
  histogram(src, n, scratch, 1024, 10, 20, high);
  const middle = (high << 10) | binOf(scratch, 1024);
  histogram(src, n, scratch, 1024, 0, 10, middle);
  return (middle << 10) | binOf(scratch, 1024);
}

export function equalWanted(): u32 {
  return stillWanted;
}

/** Elements whose magnitude has at least these bits. */
export function countFrom(src: usize, n: u32, least: u32): u32 {
  const magnitude = i32x4.splat(MAGNITUDE);
  const bound = i32x4.splat(least);
  let counts = i32x4.splat(0);
  let fours = n >> 2;
  while (fours) {
    counts = i32x4.sub(counts, i32x4.ge_s(v128.and(v128.load(src), magnitude), bound));
    src += 16;
    fours--;
  }
  let count: u32 =
    i32x4.extract_lane(counts, 0) + i32x4.extract_lane(counts, 1) + i32x4.extract_lane(counts, 2) + i32x4.extract_lane(counts, 3);
  for (let i: u32 = 0; i < (n & 3); i++) count += <u32>((load<u32>(src + ((<usize>i) << 2)) & MAGNITUDE) >= least);
  return count;
}

function putDistance(at: usize, distance: u32): usize {
  while (distance > 127) {
    store<u8>(at, <u8>(distance | 128));
    at++;
    distance >>= 7;
  }
  store<u8>(at, <u8>distance);
  return at + 1;
}

/** Writes the elements above `bits`, and the first `equal` ones at it, as `count` of them; returns the bytes written. */
export function gather(src: usize, dst: usize, n: u32, count: u32, bits: u32, equal: u32): u32 {
  store<u32>(dst, count);
  let values = dst + 4;
  let at = values + ((<usize>count) << 2);
  const magnitude = i32x4.splat(MAGNITUDE);
  const bound = i32x4.splat(bits);
  let next: u32 = 0;
  let i: u32 = 0;
  while (i < n) {
    let hits: u32 = 0;
    if (n - i >= 4) hits = <u32>i32x4.bitmask(i32x4.ge_s(v128.and(v128.load(src + ((<usize>i) << 2)), magnitude), bound));
    else for (let j: u32 = 0; j < n - i; j++) hits |= (<u32>((load<u32>(src + ((<usize>(i + j)) << 2)) & MAGNITUDE) >= bits)) << j;
    while (hits) {
      const element = i + <u32>ctz(hits);
      hits &= hits - 1;
      const x = load<u32>(src + ((<usize>element) << 2));
      if ((x & MAGNITUDE) == bits) {
        if (equal == 0) continue;
        equal--;
      }
      store<u32>(values, x);
      values += 4;
      at = putDistance(at, element - next);
      next = element + 1;
    }
    i += 4;
  }
  return <u32>(at - dst);
}

/** 1 when the bytes are what `gather` writes for n elements. dst is zero but for them; what it holds after 0 is open. */
export function scatter(src: usize, bytes: u32, dst: usize, n: u32): u32 {
  if (bytes < 4) return 0;
  const end = src + bytes;
  const count = load<u32>(src);
  if (count > n || <u64>bytes < 4 + 5 * <u64>count) return 0;
  memory.fill(dst, 0, (<usize>n) << 2);
  let values = src + 4;
  let at = values + ((<usize>count) << 2);
  let next: u64 = 0;
  for (let i: u32 = 0; i < count; i++) {
    let distance: u64 = 0;
    let shift: u64 = 0;
    while (true) {
      if (at >= end || shift > 28) return 0;
      const byte = <u64>load<u8>(at);
      at++;
      distance |= (byte & 127) << shift;
      // The last digit of more than one is not 0.
      if (byte == 0 && shift > 0) return 0;
      if (byte < 128) break;
      shift += 7;
    }
    next += distance;
    if (next >= n) return 0;
    store<u32>(dst + ((<usize>next) << 2), load<u32>(values));
    values += 4;
    next++;
  }
  return <u32>(at == end);
}

/** 0 in dst where `sent` is not 0. */
export function clearSent(dst: usize, sent: usize, n: u32): void {
  const zero = f32x4.splat(0);
  while (n >= 4) {
    v128.store(dst, v128.andnot(v128.load(dst), f32x4.ne(v128.load(sent), zero)));
    dst += 16;
    sent += 16;
    n -= 4;
  }
  while (n) {
    if (load<f32>(sent) != 0) store<f32>(dst, 0);
    dst += 4;
    sent += 4;
    n--;
  }
}

/** Element of stratum j of k: [j·n/k, (j+1)·n/k), one chosen by the hash. */
function drawn(j: u32, n: u32, k: u32, key: u32): u32 {
  const from = <u32>((<u64>j * n) / k);
  const to = <u32>(((<u64>j + 1) * n) / k);
  return from + <u32>((<u64>hash(key + j * HASH_STEP) * (to - from)) >> 32);
}

/** One element of each of k strata; times the elements of its stratum, where `isScaled` is not 0. */
export function gatherDrawn(src: usize, dst: usize, n: u32, k: u32, key: u32, isScaled: u32): void {
  for (let j: u32 = 0; j < k; j++) {
    const x = load<f32>(src + ((<usize>drawn(j, n, k, key)) << 2));
    store<f32>(dst + ((<usize>j) << 2), isScaled ? x * <f32>sizeOf(j, n, k) : x);
  }
}

/** Elements of stratum j. */
function sizeOf(j: u32, n: u32, k: u32): u32 {
  return <u32>(((<u64>j + 1) * n) / k) - <u32>((<u64>j * n) / k);
}

export function scatterDrawn(src: usize, dst: usize, n: u32, k: u32, key: u32): void {
  memory.fill(dst, 0, (<usize>n) << 2);
  for (let j: u32 = 0; j < k; j++) store<u32>(dst + ((<usize>drawn(j, n, k, key)) << 2), load<u32>(src + ((<usize>j) << 2)));
}
