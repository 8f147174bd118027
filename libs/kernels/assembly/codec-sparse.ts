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

/** Where the last place that was read ends; 0: what is there is none. */
let placeEnd: usize = 0;

/** Elements left out before the next one. Most distances are one byte. */
function distanceAt(at: usize, end: usize): u64 {
  if (at < end) {
    const byte = <u64>load<u8>(at);
    if (byte < 128) {
      placeEnd = at + 1;
      return byte;
    }
  }
  return longDistanceAt(at, end);
}

function longDistanceAt(at: usize, end: usize): u64 {
  let distance: u64 = 0;
  let shift: u64 = 0;
  placeEnd = 0;
  while (at < end && shift <= 28) {
    const byte = <u64>load<u8>(at);
    at++;
    distance |= (byte & 127) << shift;
    // The last digit of more than one is not 0.
    if (byte == 0 && shift > 0) return 0;
    if (byte < 128) {
      placeEnd = at;
      return distance;
    }
    shift += 7;
  }
  return 0;
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
    next += distanceAt(at, end);
    if (placeEnd == 0 || next >= n) return 0;
    at = placeEnd;
    store<u32>(dst + ((<usize>next) << 2), load<u32>(values));
    values += 4;
    next++;
  }
  return <u32>(at == end);
}

/** The sum of 16 bytes. */
function sumOfBytes(bytes: v128): u64 {
  const fours = i32x4.extadd_pairwise_i16x8_u(i16x8.extadd_pairwise_i8x16_u(bytes));
  return <u64>(i32x4.extract_lane(fours, 0) + i32x4.extract_lane(fours, 1) + i32x4.extract_lane(fours, 2) + i32x4.extract_lane(fours, 3));
}

/** 1 when so many bytes are the places of `count` of n elements, as `gather` writes them behind the values. */
export function arePlaces(places: usize, bytes: u32, count: u32, n: u32): u32 {
  const end = places + bytes;
  // Places ascend: the last one is the largest.
  let next: u64 = 0;
  while (count) {
    if (count >= 16 && places + 16 <= end) {
      const each = v128.load(places);
      if (i8x16.bitmask(each) == 0) {
        next += 16 + sumOfBytes(each);
        places += 16;
        count -= 16;
        continue;
      }
    }
    next += 1 + distanceAt(places, end);
    if (placeEnd == 0) return 0;
    places = placeEnd;
    count--;
  }
  return <u32>(places == end && next <= n);
}

/** += 0 to four elements, where one of them is -0: hardly ever. */
function addZeros4(at: usize): void {
  const x = v128.load(at);
  if (v128.any_true(i32x4.eq(x, i32x4.splat(0x80000000)))) v128.store(at, f32x4.add(x, f32x4.splat(0)));
}

/** += 0 from one element to another: -0 becomes +0. */
function addZeros(dst: usize, from: u32, to: u32): void {
  let at = dst + ((<usize>from) << 2);
  const end = dst + ((<usize>to) << 2);
  if (to - from < 4) {
    for (; at < end; at += 4) store<f32>(at, load<f32>(at) + 0);
    return;
  }
  const negative = i32x4.splat(0x80000000);
  for (; at + 64 <= end; at += 64) {
    const first = v128.or(i32x4.eq(v128.load(at), negative), i32x4.eq(v128.load(at, 16), negative));
    const second = v128.or(i32x4.eq(v128.load(at, 32), negative), i32x4.eq(v128.load(at, 48), negative));
    if (v128.any_true(v128.or(first, second))) for (let each = at; each < at + 64; each += 16) addZeros4(each);
  }
  for (; at + 16 <= end; at += 16) addZeros4(at);
  // Once more for some of them: nothing more happens to these.
  if (at < end) addZeros4(end - 16);
}

/** dst += what `scatter` writes of values and places that are good. */
export function addScattered(values: usize, places: usize, bytes: u32, count: u32, dst: usize, n: u32): void {
  const end = places + bytes;
  let next: u32 = 0;
  for (let i: u32 = 0; i < count; i++) {
    const place = next + <u32>distanceAt(places, end);
    if (placeEnd == 0 || place >= n) return;
    places = placeEnd;
    addZeros(dst, next, place);
    const at = dst + ((<usize>place) << 2);
    store<f32>(at, load<f32>(at) + load<f32>(values));
    values += 4;
    next = place + 1;
  }
  addZeros(dst, next, n);
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

/** dst += what `scatterDrawn` writes. */
export function addDrawn(src: usize, dst: usize, n: u32, k: u32, key: u32): void {
  let next: u32 = 0;
  for (let j: u32 = 0; j < k; j++) {
    const place = drawn(j, n, k, key);
    addZeros(dst, next, place);
    const at = dst + ((<usize>place) << 2);
    store<f32>(at, load<f32>(at) + load<f32>(src + ((<usize>j) << 2)));
    next = place + 1;
  }
  addZeros(dst, next, n);
}
