/**
 * FTRL and Lion, and what is done to parameters and gradients before an update. As in kernels.ts: float32 without fused multiply-add, pointers are byte offsets,
 * paramIn may be paramOut, and g = grad · gradScale. Betas and rho come as float64, so that 1 − beta is rounded to float32 once, as Keras does.
 */
const LANES: usize = 16;
const LINE: usize = 64;

/** FTRL-Proximal with the rate power −0.5 (McMahan et al. 2013): s1 = s + g²; z += g + twiceShrinkage · w − ((√s1 − √s) / learningRate) · w; w = (clip(z, ±l1) − z) / (√s1 / learningRate + twiceL2). */
export function ftrl(
  paramIn: usize,
  paramOut: usize,
  squares: usize,
  linear: usize,
  grad: usize,
  n: u32,
  learningRate: f32,
  l1: f32,
  twiceL2: f32,
  twiceShrinkage: f32,
  gradScale: f32,
): void {
  const rates = f32x4.splat(learningRate);
  const most = f32x4.splat(l1);
  const least = f32x4.splat(-l1);
  const twices = f32x4.splat(twiceL2);
  const shrinkages = f32x4.splat(twiceShrinkage);
  const scales = f32x4.splat(gradScale);
  let lines = <usize>n >> 2;
  while (lines) {
    const g = f32x4.mul(v128.load(grad), scales);
    const w = v128.load(paramIn);
    const s0 = v128.load(squares);
    const s1 = f32x4.add(s0, f32x4.mul(g, g));
    v128.store(squares, s1);
    const root = f32x4.sqrt(s1);
    const pulled = f32x4.add(g, f32x4.mul(shrinkages, w));
    const moved = f32x4.mul(f32x4.div(f32x4.sub(root, f32x4.sqrt(s0)), rates), w);
    const z = f32x4.add(v128.load(linear), f32x4.sub(pulled, moved));
    v128.store(linear, z);
    const over = f32x4.sub(f32x4.min(f32x4.max(z, least), most), z);
    v128.store(paramOut, f32x4.div(over, f32x4.add(f32x4.div(root, rates), twices)));
    paramIn += LANES;
    paramOut += LANES;
    squares += LANES;
    linear += LANES;
    grad += LANES;
    lines--;
  }
  const end = grad + ((<usize>n & 3) << 2);
  while (grad < end) {
    const g = load<f32>(grad) * gradScale;
    const w = load<f32>(paramIn);
    const s0 = load<f32>(squares);
    const s1 = s0 + g * g;
    store<f32>(squares, s1);
    const root = sqrt<f32>(s1);
    const pulled = g + twiceShrinkage * w;
    const moved = ((root - sqrt<f32>(s0)) / learningRate) * w;
    const z = load<f32>(linear) + (pulled - moved);
    store<f32>(linear, z);
    store<f32>(paramOut, (min<f32>(max<f32>(z, -l1), l1) - z) / (root / learningRate + twiceL2));
    paramIn += 4;
    paramOut += 4;
    squares += 4;
    linear += 4;
    grad += 4;
  }
}

/** c = beta1 · m + (1 − beta1) · g; w −= learningRate · sign(c); m = beta2 · m + (1 − beta2) · g (Chen et al. 2023). */
export function lion(
  paramIn: usize,
  paramOut: usize,
  m: usize,
  grad: usize,
  n: u32,
  learningRate: f32,
  beta1: f64,
  beta2: f64,
  gradScale: f32,
): void {
  const kept1 = <f32>beta1;
  const rest1 = <f32>(1.0 - beta1);
  const kept2 = <f32>beta2;
  const rest2 = <f32>(1.0 - beta2);
  const kepts1 = f32x4.splat(kept1);
  const rests1 = f32x4.splat(rest1);
  const kepts2 = f32x4.splat(kept2);
  const rests2 = f32x4.splat(rest2);
  const rates = f32x4.splat(learningRate);
  const minus = f32x4.splat(-learningRate);
  const zeros = f32x4.splat(0);
  const scales = f32x4.splat(gradScale);
  let lines = <usize>n >> 2;
  while (lines) {
    const g = f32x4.mul(v128.load(grad), scales);
    const m0 = v128.load(m);
    const c = f32x4.add(f32x4.mul(m0, kepts1), f32x4.mul(g, rests1));
    const move = v128.or(v128.and(f32x4.gt(c, zeros), rates), v128.and(f32x4.lt(c, zeros), minus));
    v128.store(paramOut, f32x4.sub(v128.load(paramIn), move));
    v128.store(m, f32x4.add(f32x4.mul(m0, kepts2), f32x4.mul(g, rests2)));
    paramIn += LANES;
    paramOut += LANES;
    m += LANES;
    grad += LANES;
    lines--;
  }
  const end = grad + ((<usize>n & 3) << 2);
  while (grad < end) {
    const g = load<f32>(grad) * gradScale;
    const m0 = load<f32>(m);
    const c = m0 * kept1 + g * rest1;
    const move: f32 = c > 0 ? learningRate : c < 0 ? -learningRate : 0;
    store<f32>(paramOut, load<f32>(paramIn) - move);
    store<f32>(m, m0 * kept2 + g * rest2);
    paramIn += 4;
    paramOut += 4;
    m += 4;
    grad += 4;
  }
}

/** out = w − (w · weightDecay) · learningRate (Loshchilov & Hutter 2019). */
export function decayWeights(paramIn: usize, paramOut: usize, n: u32, weightDecay: f32, learningRate: f32): void {
  const decays = f32x4.splat(weightDecay);
  const rates = f32x4.splat(learningRate);
  let lines = <usize>n >> 2;
  while (lines) {
    const w = v128.load(paramIn);
    v128.store(paramOut, f32x4.sub(w, f32x4.mul(f32x4.mul(w, decays), rates)));
    paramIn += LANES;
    paramOut += LANES;
    lines--;
  }
  const end = paramOut + ((<usize>n & 3) << 2);
  while (paramOut < end) {
    const w = load<f32>(paramIn);
    store<f32>(paramOut, w - w * weightDecay * learningRate);
    paramIn += 4;
    paramOut += 4;
  }
}

/**
 * Cuts every element to −limit..limit. pmin and pmax are one instruction each where min and max are seven; they differ in zeros of two signs, which
 * do not meet here, and keep a NaN that stands on the left.
 */
export function clamp(dst: usize, n: u32, limit: f32): void {
  const most = f32x4.splat(limit);
  const least = f32x4.splat(-limit);
  let lines = <usize>n >> 4;
  while (lines) {
    v128.store(dst, f32x4.pmin(f32x4.pmax(v128.load(dst), least), most));
    v128.store(dst, f32x4.pmin(f32x4.pmax(v128.load(dst, 16), least), most), 16);
    v128.store(dst, f32x4.pmin(f32x4.pmax(v128.load(dst, 32), least), most), 32);
    v128.store(dst, f32x4.pmin(f32x4.pmax(v128.load(dst, 48), least), most), 48);
    dst += LINE;
    lines--;
  }
  const end = dst + ((<usize>n & 15) << 2);
  while (dst < end) {
    store<f32>(dst, min<f32>(max<f32>(load<f32>(dst), -limit), limit));
    dst += 4;
  }
}
