/**
 * The loops over parameters, as AssemblyScript (its compiler makes WebAssembly of it; it is not TypeScript).
 *
 * Pointers are byte offsets into the imported shared memory, counts are float32 elements. Every operation is one IEEE
 * single-precision operation, written in the order of src/references.ts: no fused multiply-add, no re-association. A
 * SIMD lane and the scalar tail therefore give the same bits, and so does Math.fround.
 *
 * Loops go over `end - ptr` addresses: V8 then keeps one induction variable per stream. Unrolled four times (64 bytes,
 * one cache line) where the body is short; the optimizers are bound by memory without it.
 */

export * from './adaptive';
export * from './layerwise';
export * from './updates';

const LANES: usize = 16;
const LINE: usize = 64;

/** dst += src. (−0) + (+0) is +0, as IEEE says; a sum that starts from −0 and adds −0 stays −0. */
export function add(dst: usize, src: usize, n: u32): void {
  let lines = <usize>n >> 4;
  while (lines) {
    v128.store(dst, f32x4.add(v128.load(dst), v128.load(src)));
    v128.store(dst, f32x4.add(v128.load(dst, 16), v128.load(src, 16)), 16);
    v128.store(dst, f32x4.add(v128.load(dst, 32), v128.load(src, 32)), 32);
    v128.store(dst, f32x4.add(v128.load(dst, 48), v128.load(src, 48)), 48);
    dst += LINE;
    src += LINE;
    lines--;
  }
  const end = dst + ((<usize>n & 15) << 2);
  while (dst < end) {
    store<f32>(dst, load<f32>(dst) + load<f32>(src));
    dst += 4;
    src += 4;
  }
}

/** dst = src · factor; dst may be src. */
export function scaleInto(dst: usize, src: usize, n: u32, factor: f32): void {
  const factors = f32x4.splat(factor);
  let lines = <usize>n >> 4;
  while (lines) {
    v128.store(dst, f32x4.mul(v128.load(src), factors));
    v128.store(dst, f32x4.mul(v128.load(src, 16), factors), 16);
    v128.store(dst, f32x4.mul(v128.load(src, 32), factors), 32);
    v128.store(dst, f32x4.mul(v128.load(src, 48), factors), 48);
    dst += LINE;
    src += LINE;
    lines--;
  }
  const end = dst + ((<usize>n & 15) << 2);
  while (dst < end) {
    store<f32>(dst, load<f32>(src) * factor);
    dst += 4;
    src += 4;
  }
}

export function fill(dst: usize, n: u32, value: f32): void {
  const values = f32x4.splat(value);
  let lines = <usize>n >> 4;
  while (lines) {
    v128.store(dst, values);
    v128.store(dst, values, 16);
    v128.store(dst, values, 32);
    v128.store(dst, values, 48);
    dst += LINE;
    lines--;
  }
  const end = dst + ((<usize>n & 15) << 2);
  while (dst < end) {
    store<f32>(dst, value);
    dst += 4;
  }
}

export function copy(dst: usize, src: usize, n: u32): void {
  memory.copy(dst, src, (<usize>n) << 2);
}

/** 1 when no element is NaN or infinite: their exponent bits are all ones, and no other magnitude is as large. */
export function allFinite(src: usize, n: u32): u32 {
  const exponent = i32x4.splat(0x7f800000);
  let most0 = i32x4.splat(0);
  let most1 = i32x4.splat(0);
  let lines = <usize>n >> 4;
  while (lines) {
    most0 = i32x4.max_s(most0, v128.and(v128.load(src), exponent));
    most1 = i32x4.max_s(most1, v128.and(v128.load(src, 16), exponent));
    most0 = i32x4.max_s(most0, v128.and(v128.load(src, 32), exponent));
    most1 = i32x4.max_s(most1, v128.and(v128.load(src, 48), exponent));
    src += LINE;
    lines--;
  }
  if (v128.any_true(i32x4.eq(i32x4.max_s(most0, most1), exponent))) return 0;
  const end = src + ((<usize>n & 15) << 2);
  while (src < end) {
    if ((load<u32>(src) & 0x7f800000) == 0x7f800000) return 0;
    src += 4;
  }
  return 1;
}

/**
 * Σ x² in float64. Element i goes to lane i mod 8; the lanes are added as ((0+1)+(2+3)) + ((4+5)+(6+7)).
 * Squares of float32 are exact in float64, so only the additions round.
 */
export function sumOfSquares(src: usize, n: u32): f64 {
  let s01 = f64x2.splat(0);
  let s23 = f64x2.splat(0);
  let s45 = f64x2.splat(0);
  let s67 = f64x2.splat(0);
  let groups = <usize>n >> 3;
  while (groups) {
    const lo = v128.load(src);
    const hi = v128.load(src, 16);
    const x01 = f64x2.promote_low_f32x4(lo);
    const x23 = f64x2.promote_low_f32x4(v128.shuffle<u64>(lo, lo, 1, 1));
    const x45 = f64x2.promote_low_f32x4(hi);
    const x67 = f64x2.promote_low_f32x4(v128.shuffle<u64>(hi, hi, 1, 1));
    s01 = f64x2.add(s01, f64x2.mul(x01, x01));
    s23 = f64x2.add(s23, f64x2.mul(x23, x23));
    s45 = f64x2.add(s45, f64x2.mul(x45, x45));
    s67 = f64x2.add(s67, f64x2.mul(x67, x67));
    src += 32;
    groups--;
  }
  const rest = n & 7;
  if (rest > 0) s01 = f64x2.add(s01, f64x2(square(src, 0), rest > 1 ? square(src, 1) : 0));
  if (rest > 2) s23 = f64x2.add(s23, f64x2(square(src, 2), rest > 3 ? square(src, 3) : 0));
  if (rest > 4) s45 = f64x2.add(s45, f64x2(square(src, 4), rest > 5 ? square(src, 5) : 0));
  if (rest > 6) s67 = f64x2.add(s67, f64x2(square(src, 6), 0));
  const low = horizontal(s01) + horizontal(s23);
  const high = horizontal(s45) + horizontal(s67);
  return low + high;
}

function square(src: usize, index: usize): f64 {
  const x = <f64>load<f32>(src + (index << 2));
  return x * x;
}

function horizontal(x: v128): f64 {
  return f64x2.extract_lane(x, 0) + f64x2.extract_lane(x, 1);
}

/** g = grad · gradScale; grad = g + lambda · g · g · (now − then). */
export function compensateDelay(grad: usize, now: usize, then: usize, n: u32, lambda: f32, gradScale: f32): void {
  const lambdas = f32x4.splat(lambda);
  const scales = f32x4.splat(gradScale);
  let lines = <usize>n >> 2;
  while (lines) {
    const g = f32x4.mul(v128.load(grad), scales);
    const moved = f32x4.sub(v128.load(now), v128.load(then));
    v128.store(grad, f32x4.add(g, f32x4.mul(f32x4.mul(f32x4.mul(lambdas, g), g), moved)));
    grad += LANES;
    now += LANES;
    then += LANES;
    lines--;
  }
  const end = grad + ((<usize>n & 3) << 2);
  while (grad < end) {
    const g = load<f32>(grad) * gradScale;
    store<f32>(grad, g + lambda * g * g * (load<f32>(now) - load<f32>(then)));
    grad += 4;
    now += 4;
    then += 4;
  }
}

/** w = w − (grad · gradScale) · learningRate */
export function sgd(paramIn: usize, paramOut: usize, grad: usize, n: u32, learningRate: f32, gradScale: f32): void {
  const rates = f32x4.splat(learningRate);
  const scales = f32x4.splat(gradScale);
  let lines = <usize>n >> 2;
  while (lines) {
    const g = f32x4.mul(v128.load(grad), scales);
    v128.store(paramOut, f32x4.sub(v128.load(paramIn), f32x4.mul(g, rates)));
    paramIn += LANES;
    paramOut += LANES;
    grad += LANES;
    lines--;
  }
  const end = grad + ((<usize>n & 3) << 2);
  while (grad < end) {
    const g = load<f32>(grad) * gradScale;
    store<f32>(paramOut, load<f32>(paramIn) - g * learningRate);
    paramIn += 4;
    paramOut += 4;
    grad += 4;
  }
}

/** v = v · momentum − g · learningRate; w = w + v, or with nesterov w = w + (v · momentum − g · learningRate). */
export function momentum(
  paramIn: usize,
  paramOut: usize,
  velocity: usize,
  grad: usize,
  n: u32,
  learningRate: f32,
  decay: f32,
  nesterov: u32,
  gradScale: f32,
): void {
  const rates = f32x4.splat(learningRate);
  const decays = f32x4.splat(decay);
  const scales = f32x4.splat(gradScale);
  let lines = <usize>n >> 2;
  while (lines) {
    const step = f32x4.mul(f32x4.mul(v128.load(grad), scales), rates);
    const v = f32x4.sub(f32x4.mul(v128.load(velocity), decays), step);
    v128.store(velocity, v);
    const move = nesterov ? f32x4.sub(f32x4.mul(v, decays), step) : v;
    v128.store(paramOut, f32x4.add(v128.load(paramIn), move));
    paramIn += LANES;
    paramOut += LANES;
    velocity += LANES;
    grad += LANES;
    lines--;
  }
  const end = grad + ((<usize>n & 3) << 2);
  while (grad < end) {
    const step = load<f32>(grad) * gradScale * learningRate;
    const v = load<f32>(velocity) * decay - step;
    store<f32>(velocity, v);
    const move = nesterov ? v * decay - step : v;
    store<f32>(paramOut, load<f32>(paramIn) + move);
    paramIn += 4;
    paramOut += 4;
    velocity += 4;
    grad += 4;
  }
}

/**
 * m += (g − m) · (1 − beta1); v += (g² − v) · (1 − beta2); w −= m · stepSize / (√v + epsilon).
 * The betas come as float64: 1 − beta is rounded to float32 once, as Keras does (from float32 betas 1 − 0.999 would be 5e-5 off).
 */
export function adam(
  paramIn: usize,
  paramOut: usize,
  m: usize,
  v: usize,
  grad: usize,
  n: u32,
  stepSize: f32,
  beta1: f64,
  beta2: f64,
  epsilon: f32,
  gradScale: f32,
): void {
  const rest1 = <f32>(1.0 - beta1);
  const rest2 = <f32>(1.0 - beta2);
  const rests1 = f32x4.splat(rest1);
  const rests2 = f32x4.splat(rest2);
  const steps = f32x4.splat(stepSize);
  const epsilons = f32x4.splat(epsilon);
  const scales = f32x4.splat(gradScale);
  let lines = <usize>n >> 2;
  while (lines) {
    const g = f32x4.mul(v128.load(grad), scales);
    const m0 = v128.load(m);
    const m1 = f32x4.add(m0, f32x4.mul(f32x4.sub(g, m0), rests1));
    v128.store(m, m1);
    const v0 = v128.load(v);
    const v1 = f32x4.add(v0, f32x4.mul(f32x4.sub(f32x4.mul(g, g), v0), rests2));
    v128.store(v, v1);
    const move = f32x4.div(f32x4.mul(m1, steps), f32x4.add(f32x4.sqrt(v1), epsilons));
    v128.store(paramOut, f32x4.sub(v128.load(paramIn), move));
    paramIn += LANES;
    paramOut += LANES;
    m += LANES;
    v += LANES;
    grad += LANES;
    lines--;
  }
  const end = grad + ((<usize>n & 3) << 2);
  while (grad < end) {
    const g = load<f32>(grad) * gradScale;
    const m0 = load<f32>(m);
    const m1 = m0 + (g - m0) * rest1;
    store<f32>(m, m1);
    const v0 = load<f32>(v);
    const v1 = v0 + (g * g - v0) * rest2;
    store<f32>(v, v1);
    store<f32>(paramOut, load<f32>(paramIn) - (m1 * stepSize) / (sqrt<f32>(v1) + epsilon));
    paramIn += 4;
    paramOut += 4;
    m += 4;
    v += 4;
    grad += 4;
  }
}

/**
 * s = rho · s + (1 − rho) · g²; centered: a = rho · a + (1 − rho) · g; step = learningRate · g / √(s (− a²) + epsilon);
 * with momentum: u = momentum · u + step, w −= u; else w −= step. What is not asked for is not touched: its pointer may be anything.
 */
export function rmsprop(
  paramIn: usize,
  paramOut: usize,
  squares: usize,
  mean: usize,
  velocity: usize,
  grad: usize,
  n: u32,
  learningRate: f32,
  rho: f64,
  decay: f32,
  epsilon: f32,
  centered: u32,
  gradScale: f32,
): void {
  const kept = <f32>rho;
  const rest = <f32>(1.0 - rho);
  const hasVelocity = decay > 0;
  const kepts = f32x4.splat(kept);
  const rests = f32x4.splat(rest);
  const rates = f32x4.splat(learningRate);
  const decays = f32x4.splat(decay);
  const epsilons = f32x4.splat(epsilon);
  const scales = f32x4.splat(gradScale);
  let lines = <usize>n >> 2;
  while (lines) {
    const g = f32x4.mul(v128.load(grad), scales);
    const s = f32x4.add(f32x4.mul(kepts, v128.load(squares)), f32x4.mul(rests, f32x4.mul(g, g)));
    v128.store(squares, s);
    let under = s;
    if (centered) {
      const a = f32x4.add(f32x4.mul(kepts, v128.load(mean)), f32x4.mul(rests, g));
      v128.store(mean, a);
      under = f32x4.sub(s, f32x4.mul(a, a));
    }
    let move = f32x4.div(f32x4.mul(rates, g), f32x4.sqrt(f32x4.add(under, epsilons)));
    if (hasVelocity) {
      move = f32x4.add(f32x4.mul(decays, v128.load(velocity)), move);
      v128.store(velocity, move);
    }
    v128.store(paramOut, f32x4.sub(v128.load(paramIn), move));
    paramIn += LANES;
    paramOut += LANES;
    squares += LANES;
    mean += LANES;
    velocity += LANES;
    grad += LANES;
    lines--;
  }
  const end = grad + ((<usize>n & 3) << 2);
  while (grad < end) {
    const g = load<f32>(grad) * gradScale;
    const s = kept * load<f32>(squares) + rest * (g * g);
    store<f32>(squares, s);
    let under = s;
    if (centered) {
      const a = kept * load<f32>(mean) + rest * g;
      store<f32>(mean, a);
      under = s - a * a;
    }
    let move = (learningRate * g) / sqrt<f32>(under + epsilon);
    if (hasVelocity) {
      move = decay * load<f32>(velocity) + move;
      store<f32>(velocity, move);
    }
    store<f32>(paramOut, load<f32>(paramIn) - move);
    paramIn += 4;
    paramOut += 4;
    squares += 4;
    mean += 4;
    velocity += 4;
    grad += 4;
  }
}
