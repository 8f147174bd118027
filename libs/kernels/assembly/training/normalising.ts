/**
 * Batch normalisation over the rows of x [rows, channels] (Ioffe & Szegedy 2015), forward and backward. Sums go in runs of
 * 64 rows, as in passes.ts. `scale` is 1 / √(variance + epsilon).
 */
import { sumRows } from './passes';

const RUN: u32 = 64;

/** mean and population variance per channel, in two passes. */
export function moments(x: usize, rows: u32, channels: u32, mean: usize, variance: usize): void {
  sumRows(x, rows, channels, mean);
  divide(mean, channels, <f32>rows);
  memory.fill(variance, 0, (<usize>channels) << 2);
  const stride = (<usize>channels) << 2;
  for (let from: u32 = 0; from < rows; from += RUN) {
    const count = min(RUN, rows - from);
    for (let j: u32 = 0; j < channels; j += 4) {
      const at = (<usize>j) << 2;
      if (channels - j >= 4) squares4(x + at, stride, count, mean + at, variance + at);
      else
        for (let i = j; i < channels; i++)
          squares1(x + ((<usize>i) << 2), stride, count, mean + ((<usize>i) << 2), variance + ((<usize>i) << 2));
    }
    x += <usize>count * stride;
  }
  divide(variance, channels, <f32>rows);
}

function divide(x: usize, n: u32, by: f32): void {
  for (let i: u32 = 0; i < n; i++) {
    store<f32>(x, load<f32>(x) / by);
    x += 4;
  }
}

function squares4(x: usize, stride: usize, rows: u32, mean: usize, out: usize): void {
  const centre = v128.load(mean);
  let sum = f32x4.splat(0);
  for (let r: u32 = 0; r < rows; r++) {
    const difference = f32x4.sub(v128.load(x), centre);
    sum = f32x4.add(sum, f32x4.mul(difference, difference));
    x += stride;
  }
  v128.store(out, f32x4.add(v128.load(out), sum));
}

function squares1(x: usize, stride: usize, rows: u32, mean: usize, out: usize): void {
  const centre = load<f32>(mean);
  let sum: f32 = 0;
  for (let r: u32 = 0; r < rows; r++) {
    const difference = load<f32>(x) - centre;
    sum += difference * difference;
    x += stride;
  }
  store<f32>(out, load<f32>(out) + sum);
}

/** y = (x − mean) · scale · gamma + beta */
export function normalise(x: usize, y: usize, rows: u32, channels: u32, mean: usize, scale: usize, gamma: usize, beta: usize): void {
  const whole = channels & ~3;
  for (let r: u32 = 0; r < rows; r++) {
    let at: usize = 0;
    const end = (<usize>whole) << 2;
    while (at < end) {
      const hat = f32x4.mul(f32x4.sub(v128.load(x + at), v128.load(mean + at)), v128.load(scale + at));
      v128.store(y + at, f32x4.add(f32x4.mul(hat, v128.load(gamma + at)), v128.load(beta + at)));
      at += 16;
    }
    const last = (<usize>channels) << 2;
    while (at < last) {
      const hat = (load<f32>(x + at) - load<f32>(mean + at)) * load<f32>(scale + at);
      store<f32>(y + at, hat * load<f32>(gamma + at) + load<f32>(beta + at));
      at += 4;
    }
    x += last;
    y += last;
  }
}

/** dBeta = Σ dy, dGamma = Σ dy · x̂ */
export function normaliseSums(x: usize, dy: usize, rows: u32, channels: u32, mean: usize, scale: usize, dGamma: usize, dBeta: usize): void {
  sumRows(dy, rows, channels, dBeta);
  memory.fill(dGamma, 0, (<usize>channels) << 2);
  const stride = (<usize>channels) << 2;
  for (let from: u32 = 0; from < rows; from += RUN) {
    const count = min(RUN, rows - from);
    for (let j: u32 = 0; j < channels; j += 4) {
      const at = (<usize>j) << 2;
      if (channels - j >= 4) products4(x + at, dy + at, stride, count, mean + at, scale + at, dGamma + at);
      else {
        for (let i = j; i < channels; i++) {
          const one = (<usize>i) << 2;
          products1(x + one, dy + one, stride, count, mean + one, scale + one, dGamma + one);
        }
      }
    }
    x += <usize>count * stride;
    dy += <usize>count * stride;
  }
}

function products4(x: usize, dy: usize, stride: usize, rows: u32, mean: usize, scale: usize, out: usize): void {
  const centre = v128.load(mean);
  let sum = f32x4.splat(0);
  for (let r: u32 = 0; r < rows; r++) {
    sum = f32x4.add(sum, f32x4.mul(v128.load(dy), f32x4.sub(v128.load(x), centre)));
    x += stride;
    dy += stride;
  }
  v128.store(out, f32x4.add(v128.load(out), f32x4.mul(sum, v128.load(scale))));
}

function products1(x: usize, dy: usize, stride: usize, rows: u32, mean: usize, scale: usize, out: usize): void {
  const centre = load<f32>(mean);
  let sum: f32 = 0;
  for (let r: u32 = 0; r < rows; r++) {
    sum += load<f32>(dy) * (load<f32>(x) - centre);
    x += stride;
    dy += stride;
  }
  store<f32>(out, load<f32>(out) + sum * load<f32>(scale));
}

/** dx = gamma · scale · (dy − dBeta / rows − x̂ · dGamma / rows) */
export function normaliseGradient(
  x: usize,
  dy: usize,
  dx: usize,
  rows: u32,
  channels: u32,
  mean: usize,
  scale: usize,
  gamma: usize,
  dGamma: usize,
  dBeta: usize,
): void {
  const last = (<usize>channels) << 2;
  const end = (<usize>(channels & ~3)) << 2;
  const share: f32 = 1 / <f32>rows;
  const shares = f32x4.splat(share);
  for (let r: u32 = 0; r < rows; r++) {
    let at: usize = 0;
    while (at < end) {
      const factor = v128.load(scale + at);
      const hat = f32x4.mul(f32x4.sub(v128.load(x + at), v128.load(mean + at)), factor);
      const away = f32x4.mul(f32x4.add(v128.load(dBeta + at), f32x4.mul(hat, v128.load(dGamma + at))), shares);
      v128.store(dx + at, f32x4.mul(f32x4.mul(v128.load(gamma + at), factor), f32x4.sub(v128.load(dy + at), away)));
      at += 16;
    }
    while (at < last) {
      const factor = load<f32>(scale + at);
      const hat = (load<f32>(x + at) - load<f32>(mean + at)) * factor;
      const away = (load<f32>(dBeta + at) + hat * load<f32>(dGamma + at)) * share;
      store<f32>(dx + at, load<f32>(gamma + at) * factor * (load<f32>(dy + at) - away));
      at += 4;
    }
    x += last;
    dy += last;
    dx += last;
  }
}
