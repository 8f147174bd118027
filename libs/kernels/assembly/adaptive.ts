/**
 * Optimizers that divide by what the gradients have been like. As in kernels.ts: float32 without fused multiply-add, pointers are byte offsets,
 * paramIn may be paramOut, and g = grad · gradScale. Betas and rho come as float64, so that 1 − beta is rounded to float32 once, as Keras does.
 */
const LANES: usize = 16;

/** s += g²; w −= (learningRate · g) / √(s + epsilon). */
export function adagrad(
  paramIn: usize,
  paramOut: usize,
  squares: usize,
  grad: usize,
  n: u32,
  learningRate: f32,
  epsilon: f32,
  gradScale: f32,
): void {
  const rates = f32x4.splat(learningRate);
  const epsilons = f32x4.splat(epsilon);
  const scales = f32x4.splat(gradScale);
  let lines = <usize>n >> 2;
  while (lines) {
    const g = f32x4.mul(v128.load(grad), scales);
    const s = f32x4.add(v128.load(squares), f32x4.mul(g, g));
    v128.store(squares, s);
    const move = f32x4.div(f32x4.mul(rates, g), f32x4.sqrt(f32x4.add(s, epsilons)));
    v128.store(paramOut, f32x4.sub(v128.load(paramIn), move));
    paramIn += LANES;
    paramOut += LANES;
    squares += LANES;
    grad += LANES;
    lines--;
  }
  const end = grad + ((<usize>n & 3) << 2);
  while (grad < end) {
    const g = load<f32>(grad) * gradScale;
    const s = load<f32>(squares) + g * g;
    store<f32>(squares, s);
    store<f32>(paramOut, load<f32>(paramIn) - (learningRate * g) / sqrt<f32>(s + epsilon));
    paramIn += 4;
    paramOut += 4;
    squares += 4;
    grad += 4;
  }
}

/** s = rho · s + (1 − rho) · g²; step = (√(d + epsilon) · g) / √(s + epsilon); d = rho · d + (1 − rho) · step²; w −= learningRate · step. */
export function adadelta(
  paramIn: usize,
  paramOut: usize,
  squares: usize,
  steps: usize,
  grad: usize,
  n: u32,
  learningRate: f32,
  rho: f64,
  epsilon: f32,
  gradScale: f32,
): void {
  const kept = <f32>rho;
  const rest = <f32>(1.0 - rho);
  const kepts = f32x4.splat(kept);
  const rests = f32x4.splat(rest);
  const rates = f32x4.splat(learningRate);
  const epsilons = f32x4.splat(epsilon);
  const scales = f32x4.splat(gradScale);
  let lines = <usize>n >> 2;
  while (lines) {
    const g = f32x4.mul(v128.load(grad), scales);
    const s = f32x4.add(f32x4.mul(kepts, v128.load(squares)), f32x4.mul(rests, f32x4.mul(g, g)));
    v128.store(squares, s);
    const d = v128.load(steps);
    const step = f32x4.div(f32x4.mul(f32x4.sqrt(f32x4.add(d, epsilons)), g), f32x4.sqrt(f32x4.add(s, epsilons)));
    v128.store(steps, f32x4.add(f32x4.mul(kepts, d), f32x4.mul(rests, f32x4.mul(step, step))));
    v128.store(paramOut, f32x4.sub(v128.load(paramIn), f32x4.mul(rates, step)));
    paramIn += LANES;
    paramOut += LANES;
    squares += LANES;
    steps += LANES;
    grad += LANES;
    lines--;
  }
  const end = grad + ((<usize>n & 3) << 2);
  while (grad < end) {
    const g = load<f32>(grad) * gradScale;
    const s = kept * load<f32>(squares) + rest * (g * g);
    store<f32>(squares, s);
    const d = load<f32>(steps);
    const step = (sqrt<f32>(d + epsilon) * g) / sqrt<f32>(s + epsilon);
    store<f32>(steps, kept * d + rest * (step * step));
    store<f32>(paramOut, load<f32>(paramIn) - learningRate * step);
    paramIn += 4;
    paramOut += 4;
    squares += 4;
    steps += 4;
    grad += 4;
  }
}

/** Adam, with the largest v so far in place of v (Reddi et al. 2018). */
export function amsgrad(
  paramIn: usize,
  paramOut: usize,
  m: usize,
  v: usize,
  largest: usize,
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

  const sizes = f32x4.splat(stepSize);
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

    const most = f32x4.max(v128.load(largest), v1);
    v128.store(largest, most);
    const move = f32x4.div(f32x4.mul(m1, sizes), f32x4.add(f32x4.sqrt(most), epsilons));
    v128.store(paramOut, f32x4.sub(v128.load(paramIn), move));
    paramIn += LANES;
    paramOut += LANES;
    m += LANES;
    v += LANES;
    largest += LANES;
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

    const most = max<f32>(load<f32>(largest), v1);
    store<f32>(largest, most);
    store<f32>(paramOut, load<f32>(paramIn) - (m1 * stepSize) / (sqrt<f32>(most) + epsilon));
    paramIn += 4;
    paramOut += 4;
    m += 4;
    v += 4;
    largest += 4;
    grad += 4;
  }
}

/** m += (g − m)(1 − beta1); u = max(beta2 · u, |g|); w −= (learningRate · m) / (correction · (u + epsilon)). */
export function adamax(
  paramIn: usize,
  paramOut: usize,
  m: usize,
  u: usize,
  grad: usize,
  n: u32,
  learningRate: f32,
  correction: f32,
  beta1: f64,
  beta2: f32,
  epsilon: f32,
  gradScale: f32,
): void {
  const rest1 = <f32>(1.0 - beta1);
  const rests1 = f32x4.splat(rest1);
  const kepts = f32x4.splat(beta2);
  const rates = f32x4.splat(learningRate);
  const corrections = f32x4.splat(correction);
  const epsilons = f32x4.splat(epsilon);
  const scales = f32x4.splat(gradScale);
  let lines = <usize>n >> 2;
  while (lines) {
    const g = f32x4.mul(v128.load(grad), scales);
    const m0 = v128.load(m);
    const m1 = f32x4.add(m0, f32x4.mul(f32x4.sub(g, m0), rests1));
    v128.store(m, m1);

    const u1 = f32x4.max(f32x4.mul(kepts, v128.load(u)), f32x4.abs(g));
    v128.store(u, u1);
    const move = f32x4.div(f32x4.mul(rates, m1), f32x4.mul(corrections, f32x4.add(u1, epsilons)));
    v128.store(paramOut, f32x4.sub(v128.load(paramIn), move));
    paramIn += LANES;
    paramOut += LANES;
    m += LANES;
    u += LANES;
    grad += LANES;
    lines--;
  }
  const end = grad + ((<usize>n & 3) << 2);
  while (grad < end) {
    const g = load<f32>(grad) * gradScale;
    const m0 = load<f32>(m);
    const m1 = m0 + (g - m0) * rest1;
    store<f32>(m, m1);

    const u1 = max<f32>(beta2 * load<f32>(u), abs<f32>(g));
    store<f32>(u, u1);
    store<f32>(paramOut, load<f32>(paramIn) - (learningRate * m1) / (correction * (u1 + epsilon)));
    paramIn += 4;
    paramOut += 4;
    m += 4;
    u += 4;
    grad += 4;
  }
}

/** m and v as Adam; mean = (next · m) / nextRest + (now · g) / nowRest; w −= (learningRate · mean) / (√(v / rest) + epsilon). */
export function nadam(
  paramIn: usize,
  paramOut: usize,
  m: usize,
  v: usize,
  grad: usize,
  n: u32,
  learningRate: f32,
  next: f32,
  nextRest: f32,
  now: f32,
  nowRest: f32,
  rest: f32,
  beta1: f64,
  beta2: f64,
  epsilon: f32,
  gradScale: f32,
): void {
  const rest1 = <f32>(1.0 - beta1);
  const rest2 = <f32>(1.0 - beta2);
  const rests1 = f32x4.splat(rest1);
  const rests2 = f32x4.splat(rest2);

  const rates = f32x4.splat(learningRate);
  const nexts = f32x4.splat(next);
  const nextRests = f32x4.splat(nextRest);
  const nows = f32x4.splat(now);
  const nowRests = f32x4.splat(nowRest);
  const rests = f32x4.splat(rest);
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

    const mean = f32x4.add(f32x4.div(f32x4.mul(nexts, m1), nextRests), f32x4.div(f32x4.mul(nows, g), nowRests));
    const move = f32x4.div(f32x4.mul(mean, rates), f32x4.add(f32x4.sqrt(f32x4.div(v1, rests)), epsilons));
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

    const mean = (next * m1) / nextRest + (now * g) / nowRest;
    store<f32>(paramOut, load<f32>(paramIn) - (mean * learningRate) / (sqrt<f32>(v1 / rest) + epsilon));
    paramIn += 4;
    paramOut += 4;
    m += 4;
    v += 4;
    grad += 4;
  }
}
