/**
 * What every kernel computes, in plain TypeScript: the definition that the SIMD code is compared with, bit for bit, and
 * the baseline that the micro-benchmark shows beside it. One Math.fround per operation stands for float32 arithmetic.
 * Array lengths are those of the first argument; nothing here allocates more than a few numbers.
 */
import { normal } from './normal.js';

export { checksum, xxh3 } from './checksum-reference.js';
export * from './codec-references.js';
export * from './low-rank-references.js';
export * from './optimizer-references.js';

const f32 = Math.fround;

/** dst += src */
export function add(dst: Float32Array, src: Float32Array): void {
  for (let i = 0; i < dst.length; i++) dst[i] = f32(dst[i]! + src[i]!);
}

/** dst = src · factor */
export function scaleInto(dst: Float32Array, src: Float32Array, factor: number): void {
  const rounded = f32(factor);
  for (let i = 0; i < dst.length; i++) dst[i] = f32(src[i]! * rounded);
}

export function fill(dst: Float32Array, value: number): void {
  for (let i = 0; i < dst.length; i++) dst[i] = value;
}

export function copy(dst: Float32Array, src: Float32Array): void {
  for (let i = 0; i < dst.length; i++) dst[i] = src[i]!;
}

export function allFinite(src: Float32Array): boolean {
  for (let i = 0; i < src.length; i++) if (!Number.isFinite(src[i]!)) return false;
  return true;
}

/** dst += src; false when a sum is NaN or infinite. */
export function addFinite(dst: Float32Array, src: Float32Array): boolean {
  add(dst, src);
  return allFinite(dst);
}

/** Σ x² in float64; element i goes to lane i mod 8. */
export function sumOfSquares(src: Float32Array): number {
  const s = new Float64Array(8);
  for (let i = 0; i < src.length; i++) s[i & 7]! += src[i]! * src[i]!;
  return s[0]! + s[1]! + (s[2]! + s[3]!) + (s[4]! + s[5]! + (s[6]! + s[7]!));
}

/** DC-ASGD: with g = grad · gradScale, grad = g + ((lambda · g) · g) · (now − then). */
export function compensateDelay(grad: Float32Array, now: Float32Array, then: Float32Array, lambda: number, gradScale: number): void {
  const l = f32(lambda);
  const scale = f32(gradScale);
  for (let i = 0; i < grad.length; i++) {
    const g = f32(grad[i]! * scale);
    grad[i] = f32(g + f32(f32(f32(l * g) * g) * f32(now[i]! - then[i]!)));
  }
}

export interface SgdRates {
  readonly learningRate: number;
  /** Multiplies the gradient first: 1 / examples, for gradients of a sum. */
  readonly gradScale: number;
}

/** w = w − (grad · gradScale) · learningRate */
export function sgd(paramIn: Float32Array, paramOut: Float32Array, grad: Float32Array, rates: SgdRates): void {
  const rate = f32(rates.learningRate);
  const scale = f32(rates.gradScale);
  for (let i = 0; i < paramIn.length; i++) {
    const g = f32(grad[i]! * scale);
    paramOut[i] = f32(paramIn[i]! - f32(g * rate));
  }
}

export interface MomentumRates extends SgdRates {
  readonly momentum: number;
  readonly nesterov: boolean;
}

/** v = momentum · v − learningRate · g; w += v, or with nesterov w += momentum · v − learningRate · g (Keras' SGD). */
export function momentum(
  paramIn: Float32Array,
  paramOut: Float32Array,
  velocity: Float32Array,
  grad: Float32Array,
  rates: MomentumRates,
): void {
  const rate = f32(rates.learningRate);
  const scale = f32(rates.gradScale);
  const decay = f32(rates.momentum);
  for (let i = 0; i < paramIn.length; i++) {
    const step = f32(f32(grad[i]! * scale) * rate);
    const v = normal(f32(f32(velocity[i]! * decay) - step));
    velocity[i] = v;
    paramOut[i] = f32(paramIn[i]! + (rates.nesterov ? f32(f32(v * decay) - step) : v));
  }
}

export interface AdamRates {
  /** The bias-corrected step size of the round: learningRate · √(1 − beta2^t) / (1 − beta1^t). */
  readonly stepSize: number;
  readonly beta1: number;
  readonly beta2: number;
  readonly epsilon: number;
  readonly gradScale: number;
}

/** Adam as Keras has it (Kingma & Ba 2015, the form before section 2.1): epsilon is added to √v without bias correction. */
export function adam(
  paramIn: Float32Array,
  paramOut: Float32Array,
  m: Float32Array,
  v: Float32Array,
  grad: Float32Array,
  rates: AdamRates,
): void {
  const step = f32(rates.stepSize);
  const rest1 = f32(1 - rates.beta1);
  const rest2 = f32(1 - rates.beta2);
  const epsilon = f32(rates.epsilon);
  const scale = f32(rates.gradScale);
  for (let i = 0; i < paramIn.length; i++) {
    const g = f32(grad[i]! * scale);
    const m1 = normal(f32(m[i]! + f32(f32(g - m[i]!) * rest1)));
    const v1 = normal(f32(v[i]! + f32(f32(f32(g * g) - v[i]!) * rest2)));
    m[i] = m1;
    v[i] = v1;
    paramOut[i] = f32(paramIn[i]! - f32(f32(m1 * step) / f32(f32(Math.sqrt(v1)) + epsilon)));
  }
}

export interface RmspropRates extends SgdRates {
  readonly rho: number;
  /** 0: without a velocity. */
  readonly momentum: number;
  readonly epsilon: number;
  /** Divides by the variance of the gradients instead of the mean of their squares (Graves 2013). */
  readonly centered: boolean;
}

/** RMSprop as Keras 3 has it: epsilon stands below the root, and the velocity takes whole steps. */
export function rmsprop(
  paramIn: Float32Array,
  paramOut: Float32Array,
  squares: Float32Array,
  mean: Float32Array,
  velocity: Float32Array,
  grad: Float32Array,
  rates: RmspropRates,
): void {
  const kept = f32(rates.rho);
  const rest = f32(1 - rates.rho);
  const [rate, scale, decay, epsilon] = [f32(rates.learningRate), f32(rates.gradScale), f32(rates.momentum), f32(rates.epsilon)];
  for (let i = 0; i < paramIn.length; i++) {
    const g = f32(grad[i]! * scale);
    const s = normal(f32(f32(kept * squares[i]!) + f32(rest * f32(g * g))));
    squares[i] = s;
    let under = s;
    if (rates.centered) {
      const a = normal(f32(f32(kept * mean[i]!) + f32(rest * g)));
      mean[i] = a;
      under = f32(s - f32(a * a));
    }
    let move = f32(f32(rate * g) / f32(Math.sqrt(f32(under + epsilon))));
    if (decay > 0) {
      move = normal(f32(f32(decay * velocity[i]!) + move));
      velocity[i] = move;
    }
    paramOut[i] = f32(paramIn[i]! - move);
  }
}
