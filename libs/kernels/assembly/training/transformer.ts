/**
 * What transformers are made of beside products: softmax of the scores of attention, layer normalisation (Ba et al. 2016) and GELU (Hendrycks
 * & Gimpel 2016), forward and backward. Sums over many rows go in runs of 64, as in passes.ts.
 */
import { exp4 } from './functions';
import { sumRows } from './passes';

const RUN: u32 = 64;

function across(x: v128): f32 {
  return f32x4.extract_lane(x, 0) + f32x4.extract_lane(x, 1) + (f32x4.extract_lane(x, 2) + f32x4.extract_lane(x, 3));
}

function exp1(x: f32): f32 {
  return f32x4.extract_lane(exp4(f32x4.splat(x)), 0);
}

/** Each row of x [rows, columns] becomes softmax(scale · x), of its first r + 1 numbers where causal is 1; what is behind them becomes 0. */
export function softmaxRows(x: usize, rows: u32, columns: u32, scale: f32, causal: u32): void {
  for (let r: u32 = 0; r < rows; r++) {
    softmaxRow(x, causal ? min(columns, r + 1) : columns, columns, scale);
    x += (<usize>columns) << 2;
  }
}

function softmaxRow(x: usize, n: u32, columns: u32, scale: f32): void {
  const whole = (<usize>(n & ~3)) << 2;
  const last = (<usize>n) << 2;
  let largest = load<f32>(x);
  let at: usize = 0;
  if (whole) {
    let most = v128.load(x);
    for (at = 16; at < whole; at += 16) most = f32x4.pmax(most, v128.load(x + at));
    largest = max(
      max(f32x4.extract_lane(most, 0), f32x4.extract_lane(most, 1)),
      max(f32x4.extract_lane(most, 2), f32x4.extract_lane(most, 3)),
    );
  }
  for (at = whole; at < last; at += 4) largest = max(largest, load<f32>(x + at));
  const factor = f32x4.splat(scale);
  const centre = f32x4.splat(largest);
  let sums = f32x4.splat(0);
  for (at = 0; at < whole; at += 16) {
    const power = exp4(f32x4.mul(f32x4.sub(v128.load(x + at), centre), factor));
    v128.store(x + at, power);
    sums = f32x4.add(sums, power);
  }
  let sum = across(sums);
  for (; at < last; at += 4) {
    const power = exp1((load<f32>(x + at) - largest) * scale);
    store<f32>(x + at, power);
    sum += power;
  }
  const share: f32 = 1 / sum;
  const shares = f32x4.splat(share);
  for (at = 0; at < whole; at += 16) v128.store(x + at, f32x4.mul(v128.load(x + at), shares));
  for (; at < last; at += 4) store<f32>(x + at, load<f32>(x + at) * share);
  memory.fill(x + last, 0, (<usize>(columns - n)) << 2);
}

/** From p = softmax(scale · x) and dp to dx, in the place of dp: scale · p · (dp − Σ p · dp). */
export function softmaxRowsGradient(p: usize, dp: usize, rows: u32, columns: u32, scale: f32, causal: u32): void {
  for (let r: u32 = 0; r < rows; r++) {
    const n = causal ? min(columns, r + 1) : columns;
    const whole = (<usize>(n & ~3)) << 2;
    const last = (<usize>n) << 2;
    let sums = f32x4.splat(0);
    let at: usize = 0;
    for (; at < whole; at += 16) sums = f32x4.add(sums, f32x4.mul(v128.load(p + at), v128.load(dp + at)));
    let sum = across(sums);
    for (; at < last; at += 4) sum += load<f32>(p + at) * load<f32>(dp + at);
    const mean = f32x4.splat(sum);
    const factor = f32x4.splat(scale);
    for (at = 0; at < whole; at += 16)
      v128.store(dp + at, f32x4.mul(f32x4.mul(v128.load(p + at), f32x4.sub(v128.load(dp + at), mean)), factor));
    for (; at < last; at += 4) store<f32>(dp + at, load<f32>(p + at) * (load<f32>(dp + at) - sum) * scale);
    memory.fill(dp + last, 0, (<usize>(columns - n)) << 2);
    p += (<usize>columns) << 2;
    dp += (<usize>columns) << 2;
  }
}

/** y = (x − mean) / √(variance + epsilon) · gamma + beta over each row; `moments` takes mean and 1 / √… of each. */
export function layerNorm(x: usize, y: usize, rows: u32, width: u32, gamma: usize, beta: usize, epsilon: f32, moments: usize): void {
  const whole = (<usize>(width & ~3)) << 2;
  const last = (<usize>width) << 2;
  for (let r: u32 = 0; r < rows; r++) {
    let sums = f32x4.splat(0);
    let at: usize = 0;
    for (; at < whole; at += 16) sums = f32x4.add(sums, v128.load(x + at));
    let sum = across(sums);
    for (; at < last; at += 4) sum += load<f32>(x + at);
    const mean = sum / <f32>width;
    const centre = f32x4.splat(mean);
    sums = f32x4.splat(0);
    for (at = 0; at < whole; at += 16) {
      const away = f32x4.sub(v128.load(x + at), centre);
      sums = f32x4.add(sums, f32x4.mul(away, away));
    }
    sum = across(sums);
    for (; at < last; at += 4) {
      const away = load<f32>(x + at) - mean;
      sum += away * away;
    }
    const scale: f32 = 1 / sqrt<f32>(sum / <f32>width + epsilon);
    const scales = f32x4.splat(scale);
    for (at = 0; at < whole; at += 16) {
      const hat = f32x4.mul(f32x4.sub(v128.load(x + at), centre), scales);
      v128.store(y + at, f32x4.add(f32x4.mul(hat, v128.load(gamma + at)), v128.load(beta + at)));
    }
    for (; at < last; at += 4) store<f32>(y + at, (load<f32>(x + at) - mean) * scale * load<f32>(gamma + at) + load<f32>(beta + at));
    store<f32>(moments, mean);
    store<f32>(moments, scale, 4);
    moments += 8;
    x += last;
    y += last;
  }
}

/** dx, dGamma and dBeta; `run` is room for `width` floats. */
export function layerNormGradient(
  x: usize,
  dy: usize,
  dx: usize,
  rows: u32,
  width: u32,
  gamma: usize,
  moments: usize,
  dGamma: usize,
  dBeta: usize,
  run: usize,
): void {
  const whole = (<usize>(width & ~3)) << 2;
  const last = (<usize>width) << 2;
  const share: f32 = 1 / <f32>width;
  sumRows(dy, rows, width, dBeta);
  memory.fill(dGamma, 0, last);
  memory.fill(run, 0, last);
  for (let r: u32 = 0; r < rows; r++) {
    const mean = load<f32>(moments);
    const scale = load<f32>(moments, 4);
    const centre = f32x4.splat(mean);
    const scales = f32x4.splat(scale);
    let sums = f32x4.splat(0);
    let products = f32x4.splat(0);
    let at: usize = 0;
    for (; at < whole; at += 16) {
      const hat = f32x4.mul(f32x4.sub(v128.load(x + at), centre), scales);
      const back = v128.load(dy + at);
      v128.store(run + at, f32x4.add(v128.load(run + at), f32x4.mul(back, hat)));
      const slope = f32x4.mul(back, v128.load(gamma + at));
      sums = f32x4.add(sums, slope);
      products = f32x4.add(products, f32x4.mul(slope, hat));
    }
    let sum = across(sums);
    let product = across(products);
    for (; at < last; at += 4) {
      const hat = (load<f32>(x + at) - mean) * scale;
      const back = load<f32>(dy + at);
      store<f32>(run + at, load<f32>(run + at) + back * hat);
      const slope = back * load<f32>(gamma + at);
      sum += slope;
      product += slope * hat;
    }
    sum *= share;
    product *= share;
    const level = f32x4.splat(sum);
    const tilt = f32x4.splat(product);
    for (at = 0; at < whole; at += 16) {
      const hat = f32x4.mul(f32x4.sub(v128.load(x + at), centre), scales);
      const slope = f32x4.mul(v128.load(dy + at), v128.load(gamma + at));
      v128.store(dx + at, f32x4.mul(f32x4.sub(f32x4.sub(slope, level), f32x4.mul(hat, tilt)), scales));
    }
    for (; at < last; at += 4) {
      const hat = (load<f32>(x + at) - mean) * scale;
      store<f32>(dx + at, (load<f32>(dy + at) * load<f32>(gamma + at) - sum - hat * product) * scale);
    }
    if (((r + 1) & (RUN - 1)) == 0 || r + 1 == rows) {
      for (at = 0; at < last; at += 4) store<f32>(dGamma + at, load<f32>(dGamma + at) + load<f32>(run + at));
      memory.fill(run, 0, last);
    }
    moments += 8;
    x += last;
    dy += last;
    dx += last;
  }
}

/** erf of four floats by Abramowitz & Stegun 7.1.26, as tf.js computes it; `power` is exp(−x²). */
function erf4(x: v128, power: v128): v128 {
  const t = f32x4.div(f32x4.splat(1), f32x4.add(f32x4.mul(f32x4.abs(x), f32x4.splat(0.3275911)), f32x4.splat(1)));
  let p = f32x4.splat(1.061405429);
  p = f32x4.add(f32x4.mul(p, t), f32x4.splat(-1.453152027));
  p = f32x4.add(f32x4.mul(p, t), f32x4.splat(1.421413741));
  p = f32x4.add(f32x4.mul(p, t), f32x4.splat(-0.284496736));
  p = f32x4.add(f32x4.mul(p, t), f32x4.splat(0.254829592));
  const rest = f32x4.sub(f32x4.splat(1), f32x4.mul(f32x4.mul(p, t), power));
  return v128.or(rest, v128.and(x, f32x4.splat(-0.0)));
}

function gelu4(x: v128): v128 {
  const half = f32x4.mul(x, f32x4.splat(0.5));
  const root = f32x4.mul(x, f32x4.splat(0.7071067811865476));
  const power = exp4(f32x4.neg(f32x4.mul(root, root)));
  return f32x4.add(half, f32x4.mul(half, erf4(root, power)));
}

/** (1 + erf(x / √2)) / 2 + x · exp(−x² / 2) / √(2π) */
function geluSlope4(x: v128): v128 {
  const root = f32x4.mul(x, f32x4.splat(0.7071067811865476));
  const power = exp4(f32x4.neg(f32x4.mul(root, root)));
  const share = f32x4.mul(f32x4.add(erf4(root, power), f32x4.splat(1)), f32x4.splat(0.5));
  return f32x4.add(share, f32x4.mul(f32x4.mul(x, power), f32x4.splat(0.3989422804014327)));
}

/** y = x · (1 + erf(x / √2)) / 2 */
export function gelu(x: usize, y: usize, n: u32): void {
  for (let lines = n >> 2; lines; lines--) {
    v128.store(y, gelu4(v128.load(x)));
    x += 16;
    y += 16;
  }
  for (let rest = n & 3; rest; rest--) {
    store<f32>(y, f32x4.extract_lane(gelu4(f32x4.splat(load<f32>(x))), 0));
    x += 4;
    y += 4;
  }
}

export function geluGradient(x: usize, dy: usize, dx: usize, n: u32): void {
  for (let lines = n >> 2; lines; lines--) {
    v128.store(dx, f32x4.mul(v128.load(dy), geluSlope4(v128.load(x))));
    x += 16;
    dy += 16;
    dx += 16;
  }
  for (let rest = n & 3; rest; rest--) {
    store<f32>(dx, load<f32>(dy) * f32x4.extract_lane(geluSlope4(f32x4.splat(load<f32>(x))), 0));
    x += 4;
    dy += 4;
    dx += 4;
  }
}
