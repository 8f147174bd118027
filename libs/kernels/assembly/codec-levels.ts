/** Two bits an element: its sign, and which of the two magnitudes of its block it has. As in codec-dense.ts; for the few elements that a sparse codec sends. */
import { Add, BLOCK, Put, put1 } from './codec-blocks';
import { isMagnitude } from './codec-checks';

/** Sums are float64 and go from the first element to the last. */
function blockToLevels(src: usize, levels: usize, dst: usize, n: u32): void {
  let sum: f64 = 0;
  for (let i: u32 = 0; i < n; i++) sum += <f64>abs(load<f32>(src + ((<usize>i) << 2)));
  const mean = sum / <f64>n;
  let high: f64 = 0;
  let count: u32 = 0;
  let byte: u32 = 0;
  for (let i: u32 = 0; i < n; i++) {
    const at = src + ((<usize>i) << 2);
    const x = <f64>abs(load<f32>(at));
    let bits = load<u32>(at) >> 31;
    if (x > mean) {
      high += x;
      count++;
      bits |= 2;
    }
    byte |= bits << ((i & 3) << 1);
    if ((i & 3) == 3 || i == n - 1) {
      store<u8>(dst, <u8>byte);
      dst++;
      byte = 0;
    }
  }
  const low = <f32>(count > 0 ? (sum - high) / <f64>(n - count) : mean);
  store<f32>(levels, low);
  store<f32>(levels, count > 0 ? <f32>(high / <f64>count) : low, 4);
}

/** f32 low and high magnitude of each block, then two bits an element: 1 is negative, 2 the high one. */
export function toLevels(src: usize, dst: usize, n: u32): void {
  let levels = dst;
  let at = dst + ((<usize>((n + BLOCK - 1) / BLOCK)) << 3);
  while (n) {
    const count = min(n, BLOCK);
    blockToLevels(src, levels, at, count);
    levels += 8;
    at += BLOCK >> 2;
    src += (<usize>BLOCK) << 2;
    n -= count;
  }
}

function decodeLevels<How>(src: usize, dst: usize, n: u32): void {
  const places = src + ((<usize>((n + BLOCK - 1) / BLOCK)) << 3);
  for (let i: u32 = 0; i < n; i++) {
    const bits = <u32>load<u8>(places + (i >> 2)) >> ((i & 3) << 1);
    const magnitude = load<u32>(src + ((<usize>(i / BLOCK)) << 3) + ((bits & 2) << 1));
    put1<How>(dst + ((<usize>i) << 2), reinterpret<f32>(magnitude ^ ((bits & 1) << 31)));
  }
}

export function fromLevels(src: usize, dst: usize, n: u32): void {
  decodeLevels<Put>(src, dst, n);
}

export function addLevels(src: usize, dst: usize, n: u32): void {
  decodeLevels<Add>(src, dst, n);
}

/** 1 when the bytes are what `toLevels` may write for n elements. */
export function isLevels(src: usize, n: u32): u32 {
  const blocks = (n + BLOCK - 1) / BLOCK;
  for (let b: u32 = 0; b < blocks; b++) {
    const low = load<f32>(src + ((<usize>b) << 3));
    const high = load<f32>(src + ((<usize>b) << 3), 4);
    if (!isMagnitude(low) || !isMagnitude(high) || low > high) return 0;
  }
  const rest = n & 3;
  return rest == 0 || <u32>load<u8>(src + ((<usize>blocks) << 3) + (n >> 2)) >> (rest << 1) == 0 ? 1 : 0;
}
