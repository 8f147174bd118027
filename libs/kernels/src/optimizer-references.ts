/** What the kernels of optimizer-kernels.ts compute, in plain TypeScript: every operation rounded to float32, in the same order. */
import { normal } from './normal.js';

const f32 = Math.fround;
type Floats = Float32Array;

interface Scaled {
  readonly gradScale: number;
}
interface Rated extends Scaled {
  readonly learningRate: number;
}
interface Betas {
  readonly beta1: number;
  readonly beta2: number;
}

/** Runs `one` on every element, with g = grad · gradScale. */
function each(grad: Floats, gradScale: number, one: (i: number, g: number) => void): void {
  const scale = f32(gradScale);
  for (let i = 0; i < grad.length; i++) one(i, f32(grad[i]! * scale));
}

const averaged = (mean: Floats, i: number, value: number, rest: number): number =>
  (mean[i] = normal(f32(mean[i]! + f32(f32(value - mean[i]!) * rest))));
const mixed = (kept: number, mean: number, rest: number, value: number): number => f32(f32(kept * mean) + f32(rest * value));

export function adagrad(
  paramIn: Floats,
  paramOut: Floats,
  squares: Floats,
  grad: Floats,
  rates: Rated & { readonly epsilon: number },
): void {
  const [rate, epsilon] = [f32(rates.learningRate), f32(rates.epsilon)];
  each(grad, rates.gradScale, (i, g) => {
    const s = (squares[i] = f32(squares[i]! + f32(g * g)));
    paramOut[i] = f32(paramIn[i]! - f32(f32(rate * g) / f32(Math.sqrt(f32(s + epsilon)))));
  });
}

export function adadelta(
  paramIn: Floats,
  paramOut: Floats,
  squares: Floats,
  steps: Floats,
  grad: Floats,
  rates: Rated & { readonly rho: number; readonly epsilon: number },
): void {
  const [rate, kept, rest, epsilon] = [f32(rates.learningRate), f32(rates.rho), f32(1 - rates.rho), f32(rates.epsilon)];
  const root = (value: number): number => f32(Math.sqrt(f32(value + epsilon)));
  each(grad, rates.gradScale, (i, g) => {
    const s = (squares[i] = normal(mixed(kept, squares[i]!, rest, f32(g * g))));
    const step = f32(f32(root(steps[i]!) * g) / root(s));
    steps[i] = normal(mixed(kept, steps[i]!, rest, f32(step * step)));
    paramOut[i] = f32(paramIn[i]! - f32(rate * step));
  });
}

export function amsgrad(
  paramIn: Floats,
  paramOut: Floats,
  m: Floats,
  v: Floats,
  largest: Floats,
  grad: Floats,
  rates: Scaled & Betas & { readonly stepSize: number; readonly epsilon: number },
): void {
  const [size, rest1, rest2, epsilon] = [f32(rates.stepSize), f32(1 - rates.beta1), f32(1 - rates.beta2), f32(rates.epsilon)];
  each(grad, rates.gradScale, (i, g) => {
    const m1 = averaged(m, i, g, rest1);
    const v1 = averaged(v, i, f32(g * g), rest2);
    const most = (largest[i] = Math.max(largest[i]!, v1));
    paramOut[i] = f32(paramIn[i]! - f32(f32(m1 * size) / f32(f32(Math.sqrt(most)) + epsilon)));
  });
}

export function adamax(
  paramIn: Floats,
  paramOut: Floats,
  m: Floats,
  u: Floats,
  grad: Floats,
  rates: Rated & Betas & { readonly correction: number; readonly epsilon: number },
): void {
  const [rate, correction, epsilon] = [f32(rates.learningRate), f32(rates.correction), f32(rates.epsilon)];
  const [rest1, kept2] = [f32(1 - rates.beta1), f32(rates.beta2)];
  each(grad, rates.gradScale, (i, g) => {
    const m1 = averaged(m, i, g, rest1);
    const u1 = (u[i] = normal(Math.max(f32(kept2 * u[i]!), Math.abs(g))));
    paramOut[i] = f32(paramIn[i]! - f32(f32(rate * m1) / f32(correction * f32(u1 + epsilon))));
  });
}

export interface NadamRates extends Rated, Betas {
  readonly next: number;
  readonly nextRest: number;
  readonly now: number;
  readonly nowRest: number;
  readonly rest: number;
  readonly epsilon: number;
}

export function nadam(paramIn: Floats, paramOut: Floats, m: Floats, v: Floats, grad: Floats, rates: NadamRates): void {
  const [rate, epsilon, rest] = [f32(rates.learningRate), f32(rates.epsilon), f32(rates.rest)];
  const [next, nextRest, now, nowRest] = [f32(rates.next), f32(rates.nextRest), f32(rates.now), f32(rates.nowRest)];
  const [rest1, rest2] = [f32(1 - rates.beta1), f32(1 - rates.beta2)];
  each(grad, rates.gradScale, (i, g) => {
    const m1 = averaged(m, i, g, rest1);
    const v1 = averaged(v, i, f32(g * g), rest2);
    const mean = f32(f32(f32(next * m1) / nextRest) + f32(f32(now * g) / nowRest));
    paramOut[i] = f32(paramIn[i]! - f32(f32(mean * rate) / f32(f32(Math.sqrt(f32(v1 / rest))) + epsilon)));
  });
}

export interface FtrlRates extends Rated {
  readonly l1: number;
  readonly twiceL2: number;
  readonly twiceShrinkage: number;
}

export function ftrl(paramIn: Floats, paramOut: Floats, squares: Floats, linear: Floats, grad: Floats, rates: FtrlRates): void {
  const [rate, l1, l2, shrinkage] = [f32(rates.learningRate), f32(rates.l1), f32(rates.twiceL2), f32(rates.twiceShrinkage)];
  each(grad, rates.gradScale, (i, g) => {
    const w = paramIn[i]!;
    const s0 = squares[i]!;
    const s1 = (squares[i] = f32(s0 + f32(g * g)));
    const root = f32(Math.sqrt(s1));
    const pulled = f32(g + f32(shrinkage * w));
    const moved = f32(f32(f32(root - f32(Math.sqrt(s0))) / rate) * w);
    const z = (linear[i] = f32(linear[i]! + f32(pulled - moved)));
    const over = f32(Math.min(Math.max(z, -l1), l1) - z);
    paramOut[i] = f32(over / f32(f32(root / rate) + l2));
  });
}

export function lion(paramIn: Floats, paramOut: Floats, m: Floats, grad: Floats, rates: Rated & Betas): void {
  const rate = f32(rates.learningRate);
  const [kept1, rest1, kept2, rest2] = [f32(rates.beta1), f32(1 - rates.beta1), f32(rates.beta2), f32(1 - rates.beta2)];
  each(grad, rates.gradScale, (i, g) => {
    const m0 = m[i]!;
    const c = mixed(m0, kept1, g, rest1);
    paramOut[i] = f32(paramIn[i]! - (c > 0 ? rate : c < 0 ? -rate : 0));
    m[i] = normal(mixed(m0, kept2, g, rest2));
  });
}

export function average(dst: Floats, src: Floats, rates: { readonly kept: number; readonly rest: number }): void {
  const [kept, rest] = [f32(rates.kept), f32(rates.rest)];
  for (let i = 0; i < dst.length; i++) dst[i] = normal(mixed(kept, dst[i]!, rest, src[i]!));
}

interface LambRates extends Scaled, Betas {
  readonly correction1: number;
  readonly correction2: number;
  readonly epsilon: number;
}

/** Hands over the moments that an element comes to, and the direction of its step. */
function lambEach(
  m: Floats,
  v: Floats,
  grad: Floats,
  rates: LambRates,
  one: (i: number, m: number, v: number, step: number) => void,
): void {
  const [rest1, rest2, epsilon] = [f32(1 - rates.beta1), f32(1 - rates.beta2), f32(rates.epsilon)];
  const [correction1, correction2] = [f32(rates.correction1), f32(rates.correction2)];
  each(grad, rates.gradScale, (i, g) => {
    const m1 = normal(f32(m[i]! + f32(f32(g - m[i]!) * rest1)));
    const v1 = normal(f32(v[i]! + f32(f32(f32(g * g) - v[i]!) * rest2)));
    one(i, m1, v1, f32(f32(m1 / correction1) / f32(f32(Math.sqrt(f32(v1 / correction2))) + epsilon)));
  });
}

export function lambStep(step: Floats, m: Floats, v: Floats, grad: Floats, rates: LambRates): void {
  lambEach(m, v, grad, rates, (i, _m, _v, one) => (step[i] = one));
}

export function lamb(
  paramIn: Floats,
  paramOut: Floats,
  m: Floats,
  v: Floats,
  grad: Floats,
  rates: LambRates & { readonly rate: number },
): void {
  const rate = f32(rates.rate);
  lambEach(m, v, grad, rates, (i, m1, v1, step) => {
    [m[i], v[i]] = [m1, v1];
    paramOut[i] = f32(paramIn[i]! - f32(rate * step));
  });
}

export function lars(
  paramIn: Floats,
  paramOut: Floats,
  velocity: Floats,
  grad: Floats,
  rates: Scaled & { readonly rate: number; readonly momentum: number; readonly weightDecay: number },
): void {
  const [rate, momentum, decay] = [f32(rates.rate), f32(rates.momentum), f32(rates.weightDecay)];
  each(grad, rates.gradScale, (i, scaled) => {
    const g = f32(scaled + f32(decay * paramIn[i]!));
    velocity[i] = normal(f32(f32(momentum * velocity[i]!) - f32(rate * g)));
    paramOut[i] = f32(paramIn[i]! + velocity[i]!);
  });
}

export function decayWeights(
  paramIn: Floats,
  paramOut: Floats,
  rates: { readonly weightDecay: number; readonly learningRate: number },
): void {
  const [decay, rate] = [f32(rates.weightDecay), f32(rates.learningRate)];
  for (let i = 0; i < paramIn.length; i++) paramOut[i] = f32(paramIn[i]! - f32(f32(paramIn[i]! * decay) * rate));
}

export function clamp(dst: Floats, limit: number): void {
  const most = f32(limit);
  for (let i = 0; i < dst.length; i++) dst[i] = Math.min(Math.max(dst[i]!, -most), most);
}
