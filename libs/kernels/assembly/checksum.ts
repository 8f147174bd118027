/**
 * XXH3-64 of bytes, with seed 0 and the default secret, cut to its low 32 bits (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md). Equal to
 * `XXH3_64bits` of the C library; src/checksum-reference.ts has the same in plain TypeScript.
 *
 * More than 240 bytes are taken in stripes of 64, 16 of which make a block. The eight accumulators are globals of the instance: each thread has its own.
 * The secret lies in memory, because V8 makes a vector constant anew at each use (12.9 GB/s instead of 20). `useSecret` says where.
 */

const P32_1: u64 = 0x9e3779b1;
const P32_2: u64 = 0x85ebca77;
const P32_3: u64 = 0xc2b2ae3d;
const P64_1: u64 = 0x9e3779b185ebca87;
const P64_2: u64 = 0xc2b2ae3d27d4eb4f;
const P64_3: u64 = 0x165667b19e3779f9;
const P64_4: u64 = 0x85ebca77c2b2ae63;
const P64_5: u64 = 0x27d4eb2f165667c5;

const STRIPE_BYTES: u32 = 64;
const BLOCK_BYTES: u32 = 1024;
const STRIPES: u32 = 16;
const SHORT_BYTES: u32 = 240;

let secret: usize = 0;
let acc0: v128 = i64x2.splat(0);
let acc1: v128 = i64x2.splat(0);
let acc2: v128 = i64x2.splat(0);
let acc3: v128 = i64x2.splat(0);

export function useSecret(at: usize): void {
  secret = at;
}

export function checksum(src: usize, bytes: u32): u32 {
  if (bytes <= SHORT_BYTES) return <u32>ofShort(src, bytes);
  const blocks = (bytes - 1) / BLOCK_BYTES;
  checksumBegin();
  checksumBlocks(src, blocks);
  return checksumEnd(src + blocks * BLOCK_BYTES, bytes - blocks * BLOCK_BYTES, bytes);
}

// The same piece by piece, of more than 240 bytes: begin, whole blocks, end. Between two pieces the accumulators may lie in memory.

export function checksumBegin(): void {
  acc0 = i64x2(P32_3, P64_1);
  acc1 = i64x2(P64_2, P64_3);
  acc2 = i64x2(P64_4, P32_2);
  acc3 = i64x2(P64_5, P32_1);
}

/** At least one byte must follow them. */
export function checksumBlocks(src: usize, blocks: u32): void {
  while (blocks) {
    stripes(src, secret, STRIPES);
    acc0 = scrambled(acc0, 128);
    acc1 = scrambled(acc1, 144);
    acc2 = scrambled(acc2, 160);
    acc3 = scrambled(acc3, 176);
    src += BLOCK_BYTES;
    blocks--;
  }
}

/** @param rest bytes from `src` on, 1 to 1024. The 64 bytes that end there are read, those before `src` among them. */
export function checksumEnd(src: usize, rest: u32, bytes: u32): u32 {
  stripes(src, secret, (rest - 1) / STRIPE_BYTES);
  stripes(src + rest - STRIPE_BYTES, secret + 121, 1);
  let sum = <u64>bytes * P64_1;
  sum += merged(acc0, 11) + merged(acc1, 27) + merged(acc2, 43) + merged(acc3, 59);
  return <u32>avalanche(sum);
}

export function checksumSave(dst: usize): void {
  v128.store(dst, acc0);
  v128.store(dst, acc1, 16);
  v128.store(dst, acc2, 32);
  v128.store(dst, acc3, 48);
}

export function checksumLoad(src: usize): void {
  acc0 = v128.load(src);
  acc1 = v128.load(src, 16);
  acc2 = v128.load(src, 32);
  acc3 = v128.load(src, 48);
}

/**
 * Each stripe takes the secret from 8 bytes further on. A stripe adds its products to the accumulators, and its lanes to those beside them: their sums are swapped
 * once, at the end, and not stripe by stripe.
 */
function stripes(src: usize, key: usize, count: u32): void {
  let a0 = acc0;
  let a1 = acc1;
  let a2 = acc2;
  let a3 = acc3;
  let s0 = i64x2.splat(0);
  let s1 = i64x2.splat(0);
  let s2 = i64x2.splat(0);
  let s3 = i64x2.splat(0);
  while (count) {
    const d0 = v128.load(src);
    const d1 = v128.load(src, 16);
    const d2 = v128.load(src, 32);
    const d3 = v128.load(src, 48);
    const k0 = v128.xor(d0, v128.load(key));
    const k1 = v128.xor(d1, v128.load(key, 16));
    const k2 = v128.xor(d2, v128.load(key, 32));
    const k3 = v128.xor(d3, v128.load(key, 48));
    s0 = i64x2.add(s0, d0);
    s1 = i64x2.add(s1, d1);
    s2 = i64x2.add(s2, d2);
    s3 = i64x2.add(s3, d3);
    const low01 = lows(k0, k1);
    const high01 = highs(k0, k1);
    const low23 = lows(k2, k3);
    const high23 = highs(k2, k3);
    a0 = i64x2.add(a0, i64x2.extmul_low_i32x4_u(low01, high01));
    a1 = i64x2.add(a1, i64x2.extmul_high_i32x4_u(low01, high01));
    a2 = i64x2.add(a2, i64x2.extmul_low_i32x4_u(low23, high23));
    a3 = i64x2.add(a3, i64x2.extmul_high_i32x4_u(low23, high23));
    src += STRIPE_BYTES;
    key += 8;
    count--;
  }
  acc0 = i64x2.add(a0, swapped(s0));
  acc1 = i64x2.add(a1, swapped(s1));
  acc2 = i64x2.add(a2, swapped(s2));
  acc3 = i64x2.add(a3, swapped(s3));
}

function lows(a: v128, b: v128): v128 {
  return v128.shuffle<u32>(a, b, 0, 2, 4, 6);
}

function highs(a: v128, b: v128): v128 {
  return v128.shuffle<u32>(a, b, 1, 3, 5, 7);
}

function swapped(a: v128): v128 {
  return v128.shuffle<u64>(a, a, 1, 0);
}

function scrambled(acc: v128, at: usize): v128 {
  return i64x2.mul(v128.xor(v128.xor(acc, i64x2.shr_u(acc, 47)), v128.load(secret + at)), i64x2.splat(P32_1));
}

function merged(acc: v128, at: usize): u64 {
  return folded(i64x2.extract_lane(acc, 0) ^ key(at), i64x2.extract_lane(acc, 1) ^ key(at + 8));
}

/** Both halves of the product of 128 bits, one upon the other. */
function folded(a: u64, b: u64): u64 {
  const aLow = a & 0xffffffff;
  const bLow = b & 0xffffffff;
  const aHigh = a >> 32;
  const bHigh = b >> 32;
  const low = aLow * bLow;
  const middle = aHigh * bLow;
  const cross = (low >> 32) + (middle & 0xffffffff) + aLow * bHigh;
  const high = (middle >> 32) + (cross >> 32) + aHigh * bHigh;
  return high ^ ((cross << 32) | (low & 0xffffffff));
}

function avalanche(x: u64): u64 {
  const y = (x ^ (x >> 37)) * 0x165667919e3779f9;
  return y ^ (y >> 32);
}

/** The avalanche of XXH64. */
function avalanche64(x: u64): u64 {
  const y = (x ^ (x >> 33)) * P64_2;
  const z = (y ^ (y >> 29)) * P64_3;
  return z ^ (z >> 32);
}

function key(at: usize): u64 {
  return load<u64>(secret + at);
}

/** Mixes 16 bytes. */
function mixed(src: usize, at: usize): u64 {
  return folded(load<u64>(src) ^ key(at), load<u64>(src, 8) ^ key(at + 8));
}

function ofShort(src: usize, bytes: u32): u64 {
  const end = src + bytes;
  if (bytes > 128) return ofMiddle(src, bytes);
  if (bytes > 16) {
    let sum = <u64>bytes * P64_1;
    for (let i: usize = 0; i <= (bytes - 1) / 32; i++) sum += mixed(src + 16 * i, 32 * i) + mixed(end - 16 * (i + 1), 32 * i + 16);
    return avalanche(sum);
  }
  if (bytes > 8) {
    const low = load<u64>(src) ^ (key(24) ^ key(32));
    const high = load<u64>(end - 8) ^ (key(40) ^ key(48));
    return avalanche(<u64>bytes + bswap(low) + high + folded(low, high));
  }
  if (bytes >= 4) {
    const x = (<u64>load<u32>(end - 4) + ((<u64>load<u32>(src)) << 32)) ^ (key(8) ^ key(16));
    const y = (x ^ rotl(x, 49) ^ rotl(x, 24)) * 0x9fb21c651e98df25;
    const z = (y ^ ((y >> 35) + bytes)) * 0x9fb21c651e98df25;
    return z ^ (z >> 28);
  }
  if (bytes > 0) {
    const joined = ((<u32>load<u8>(src)) << 16) | ((<u32>load<u8>(src + (bytes >> 1))) << 24) | load<u8>(end - 1) | (bytes << 8);
    return avalanche64(<u64>joined ^ (<u64>load<u32>(secret) ^ load<u32>(secret + 4)));
  }
  return avalanche64(key(56) ^ key(64));
}

/** Hash of 129 to 240 bytes. */
function ofMiddle(src: usize, bytes: u32): u64 {
  let sum = <u64>bytes * P64_1;
  for (let i: usize = 0; i < 8; i++) sum += mixed(src + 16 * i, 16 * i);
  sum = avalanche(sum);
  let end = mixed(src + bytes - 16, 119);
  for (let i: usize = 8; i < bytes / 16; i++) end += mixed(src + 16 * i, 16 * (i - 8) + 3);
  return avalanche(sum + end);
}
