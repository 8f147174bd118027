/**
 * Optimizers whose step depends on the norms of a whole variable, and the moving average of weights. As in kernels.ts: float32 without fused
 * multiply-add, pointers are byte offsets, paramIn may be paramOut, and g = grad · gradScale. Betas come as float64, so that 1 − beta is rounded to
 * float32 once, as Keras does.
 */
const LANES: usize = 16;

/** dst = kept · dst + rest · src. */
export function average(dst: usize, src: usize, n: u32, kept: f32, rest: f32): void {
  const kepts = f32x4.splat(kept);
  const rests = f32x4.splat(rest);
  let lines = <usize>n >> 2;
  while (lines) {
    v128.store(dst, f32x4.add(f32x4.mul(kepts, v128.load(dst)), f32x4.mul(rests, v128.load(src))));
    dst += LANES;
    src += LANES;
    lines--;
  }
  const end = dst + ((<usize>n & 3) << 2);
  while (dst < end) {
    store<f32>(dst, kept * load<f32>(dst) + rest * load<f32>(src));
    dst += 4;
    src += 4;
  }
}

/**
 * The direction of a step of LAMB (You et al. 2020), and nothing else: m1 = m + (g − m)(1 − beta1); v1 = v + (g² − v)(1 − beta2);
 * step = (m1 / correction1) / (√(v1 / correction2) + epsilon). The moments stay as they are.
 */
export function lambStep(
  step: usize,
  m: usize,
  v: usize,
  grad: usize,
  n: u32,
  correction1: f32,
  correction2: f32,
  beta1: f64,
  beta2: f64,
  epsilon: f32,
  gradScale: f32,
): void {
  const rest1 = <f32>(1.0 - beta1);
  const rest2 = <f32>(1.0 - beta2);
  const rests1 = f32x4.splat(rest1);
  const rests2 = f32x4.splat(rest2);
  const corrections1 = f32x4.splat(correction1);
  const corrections2 = f32x4.splat(correction2);
  const epsilons = f32x4.splat(epsilon);
  const scales = f32x4.splat(gradScale);
  let lines = <usize>n >> 2;
  while (lines) {
    const g = f32x4.mul(v128.load(grad), scales);
    const m0 = v128.load(m);
    const m1 = f32x4.add(m0, f32x4.mul(f32x4.sub(g, m0), rests1));
    const v0 = v128.load(v);
    const v1 = f32x4.add(v0, f32x4.mul(f32x4.sub(f32x4.mul(g, g), v0), rests2));
    const root = f32x4.add(f32x4.sqrt(f32x4.div(v1, corrections2)), epsilons);
    v128.store(step, f32x4.div(f32x4.div(m1, corrections1), root));
    step += LANES;
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
    const v0 = load<f32>(v);
    const v1 = v0 + (g * g - v0) * rest2;
    store<f32>(step, m1 / correction1 / (sqrt<f32>(v1 / correction2) + epsilon));
    step += 4;
    m += 4;
    v += 4;
    grad += 4;
  }
}

/** m and v take the gradient; w −= rate · step, with the step of lambStep. */
export function lamb(
  paramIn: usize,
  paramOut: usize,
  m: usize,
  v: usize,
  grad: usize,
  n: u32,
  rate: f32,
  correction1: f32,
  correction2: f32,
  beta1: f64,
  beta2: f64,
  epsilon: f32,
  gradScale: f32,
): void {
  const rest1 = <f32>(1.0 - beta1);
  const rest2 = <f32>(1.0 - beta2);
  const rests1 = f32x4.splat(rest1);
  const rests2 = f32x4.splat(rest2);
  const corrections1 = f32x4.splat(correction1);
  const corrections2 = f32x4.splat(correction2);
  const epsilons = f32x4.splat(epsilon);
  const scales = f32x4.splat(gradScale);
  const rates = f32x4.splat(rate);
  let lines = <usize>n >> 2;
  while (lines) {
    const g = f32x4.mul(v128.load(grad), scales);
    const m0 = v128.load(m);
    const m1 = f32x4.add(m0, f32x4.mul(f32x4.sub(g, m0), rests1));
    v128.store(m, m1);
    const v0 = v128.load(v);
    const v1 = f32x4.add(v0, f32x4.mul(f32x4.sub(f32x4.mul(g, g), v0), rests2));
    v128.store(v, v1);
    const root = f32x4.add(f32x4.sqrt(f32x4.div(v1, corrections2)), epsilons);
    const step = f32x4.div(f32x4.div(m1, corrections1), root);
    v128.store(paramOut, f32x4.sub(v128.load(paramIn), f32x4.mul(rates, step)));
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
    const step = m1 / correction1 / (sqrt<f32>(v1 / correction2) + epsilon);
    store<f32>(paramOut, load<f32>(paramIn) - rate * step);
    paramIn += 4;
    paramOut += 4;
    m += 4;
    v += 4;
    grad += 4;
  }
}

/** LARS (You et al. 2017): velocity = momentum · velocity − rate · (g + weightDecay · w); w += velocity. */
export function lars(
  paramIn: usize,
  paramOut: usize,
  velocity: usize,
  grad: usize,
  n: u32,
  rate: f32,
  momentum: f32,
  weightDecay: f32,
  gradScale: f32,
): void {
  const rates = f32x4.splat(rate);
  const kepts = f32x4.splat(momentum);
  const decays = f32x4.splat(weightDecay);
  const scales = f32x4.splat(gradScale);
  let lines = <usize>n >> 2;
  while (lines) {
    const w = v128.load(paramIn);
    const g = f32x4.add(f32x4.mul(v128.load(grad), scales), f32x4.mul(decays, w));
    const moved = f32x4.sub(f32x4.mul(kepts, v128.load(velocity)), f32x4.mul(rates, g));
    v128.store(velocity, moved);
    v128.store(paramOut, f32x4.add(w, moved));
    paramIn += LANES;
    paramOut += LANES;
    velocity += LANES;
    grad += LANES;
    lines--;
  }
  const end = grad + ((<usize>n & 3) << 2);
  while (grad < end) {
    const w = load<f32>(paramIn);
    const g = load<f32>(grad) * gradScale + weightDecay * w;
    const moved = momentum * load<f32>(velocity) - rate * g;
    store<f32>(velocity, moved);
    store<f32>(paramOut, w + moved);
    paramIn += 4;
    paramOut += 4;
    velocity += 4;
    grad += 4;
  }
}
