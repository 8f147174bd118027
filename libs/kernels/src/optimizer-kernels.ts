/**
 * Kernels of further optimizers. As in kernels.ts: byte offsets, counts of float32, bitwise those of `references`; paramIn may be paramOut and
 * g = grad · gradScale. The optimizers of libs/learning say where the formulas are from.
 */
export interface OptimizerKernels {
  /** s += g²; w −= (learningRate · g) / √(s + epsilon). */
  adagrad(
    paramIn: number,
    paramOut: number,
    squares: number,
    grad: number,
    n: number,
    learningRate: number,
    epsilon: number,
    gradScale: number,
  ): void;
  /** s = rho · s + (1 − rho) · g²; step = (√(d + epsilon) · g) / √(s + epsilon); d = rho · d + (1 − rho) · step²; w −= learningRate · step. */
  adadelta(
    paramIn: number,
    paramOut: number,
    squares: number,
    steps: number,
    grad: number,
    n: number,
    learningRate: number,
    rho: number,
    epsilon: number,
    gradScale: number,
  ): void;
  /** Adam with the largest v so far in place of v (Reddi et al. 2018). */
  amsgrad(
    paramIn: number,
    paramOut: number,
    m: number,
    v: number,
    largest: number,
    grad: number,
    n: number,
    stepSize: number,
    beta1: number,
    beta2: number,
    epsilon: number,
    gradScale: number,
  ): void;
  /** m += (g − m)(1 − beta1); u = max(beta2 · u, |g|); w −= (learningRate · m) / (correction · (u + epsilon)). */
  adamax(
    paramIn: number,
    paramOut: number,
    m: number,
    u: number,
    grad: number,
    n: number,
    learningRate: number,
    correction: number,
    beta1: number,
    beta2: number,
    epsilon: number,
    gradScale: number,
  ): void;
  /** m and v as Adam; mean = (next · m) / nextRest + (now · g) / nowRest; w −= (learningRate · mean) / (√(v / rest) + epsilon). */
  nadam(
    paramIn: number,
    paramOut: number,
    m: number,
    v: number,
    grad: number,
    n: number,
    learningRate: number,
    next: number,
    nextRest: number,
    now: number,
    nowRest: number,
    rest: number,
    beta1: number,
    beta2: number,
    epsilon: number,
    gradScale: number,
  ): void;
  /** s1 = s + g²; z += g + twiceShrinkage · w − ((√s1 − √s) / learningRate) · w; w = (clip(z, ±l1) − z) / (√s1 / learningRate + twiceL2). */
  ftrl(
    paramIn: number,
    paramOut: number,
    squares: number,
    linear: number,
    grad: number,
    n: number,
    learningRate: number,
    l1: number,
    twiceL2: number,
    twiceShrinkage: number,
    gradScale: number,
  ): void;
  /** c = beta1 · m + (1 − beta1) · g; w −= learningRate · sign(c); m = beta2 · m + (1 − beta2) · g. */
  lion(
    paramIn: number,
    paramOut: number,
    m: number,
    grad: number,
    n: number,
    learningRate: number,
    beta1: number,
    beta2: number,
    gradScale: number,
  ): void;
  /** dst = kept · dst + rest · src. */
  average(dst: number, src: number, n: number, kept: number, rest: number): void;
  /**
   * The direction of a step of LAMB; m and v stay as they are: m1 = m + (g − m)(1 − beta1); v1 = v + (g² − v)(1 − beta2);
   * step = (m1 / correction1) / (√(v1 / correction2) + epsilon).
   */
  lambStep(
    step: number,
    m: number,
    v: number,
    grad: number,
    n: number,
    correction1: number,
    correction2: number,
    beta1: number,
    beta2: number,
    epsilon: number,
    gradScale: number,
  ): void;
  /** m = m1; v = v1; w −= rate · step, all as in lambStep. */
  lamb(
    paramIn: number,
    paramOut: number,
    m: number,
    v: number,
    grad: number,
    n: number,
    rate: number,
    correction1: number,
    correction2: number,
    beta1: number,
    beta2: number,
    epsilon: number,
    gradScale: number,
  ): void;
  /** velocity = momentum · velocity − rate · (g + weightDecay · w); w += velocity. */
  lars(
    paramIn: number,
    paramOut: number,
    velocity: number,
    grad: number,
    n: number,
    rate: number,
    momentum: number,
    weightDecay: number,
    gradScale: number,
  ): void;
  /** out = w − (w · weightDecay) · learningRate. */
  decayWeights(paramIn: number, paramOut: number, n: number, weightDecay: number, learningRate: number): void;
  /** Cuts every element to −limit..limit. */
  clamp(dst: number, n: number, limit: number): void;
}
