/**
 * The updates that servers apply, elementwise and by the kernels, as Keras 3 computes them in float32.
 * Everything that changes over time is a function of the round, never a counter kept beside a chunk: a chunk that is
 * restored or moved goes on with the right step (ROUNDS §4).
 */
import type { Kernels } from '@paceline/kernels';
import type { OptimizerSpec } from '@paceline/spec';

export interface OptimizerSlot {
  readonly name: string;
  /** Every element starts as this. */
  readonly initialValue: number;
}

/** One chunk of one round. Pointers are into the arena of `kernels`; all regions have `count` float32. */
export interface OptimizerUpdate {
  readonly paramIn: number;
  /** May be paramIn. */
  readonly paramOut: number;
  /** Sum over the round's examples. It is only read. */
  readonly grad: number;
  /** One pointer per slot, in the order of `slots`; updated in place. */
  readonly slots: readonly number[];
  readonly count: number;
  /** Number of the round, from 1: round k of the schedule is step k + 1. */
  readonly step: number;
  /** Multiplies the gradient: 1 / examples of the round. */
  readonly gradScale: number;
  /** Divides the step size: 1 + staleness, in asynchronous runs that ask for it. */
  readonly rateDivisor?: number;
}

export interface Optimizer {
  readonly name: OptimizerSpec['name'];
  readonly slots: readonly OptimizerSlot[];
  apply(kernels: Kernels, update: OptimizerUpdate): void;
}

export function createOptimizer(spec: OptimizerSpec): Optimizer {
  switch (spec.name) {
    case 'sgd':
      return {
        name: spec.name,
        slots: [],
        apply: (kernels, u) => kernels.sgd(u.paramIn, u.paramOut, u.grad, u.count, spec.learningRate / (u.rateDivisor ?? 1), u.gradScale),
      };
    case 'momentum':
      return {
        name: spec.name,
        slots: [{ name: 'velocity', initialValue: 0 }],
        apply: (kernels, u) =>
          kernels.momentum(
            u.paramIn,
            u.paramOut,
            u.slots[0]!,
            u.grad,
            u.count,
            spec.learningRate / (u.rateDivisor ?? 1),
            spec.momentum,
            spec.nesterov,
            u.gradScale,
          ),
      };
    case 'adam':
      return {
        name: spec.name,
        slots: [
          { name: 'm', initialValue: 0 },
          { name: 'v', initialValue: 0 },
        ],
        apply: (kernels, u) =>
          kernels.adam(
            u.paramIn,
            u.paramOut,
            u.slots[0]!,
            u.slots[1]!,
            u.grad,
            u.count,
            adamStepSize(spec, u.step) / (u.rateDivisor ?? 1),
            spec.beta1,
            spec.beta2,
            spec.epsilon,
            u.gradScale,
          ),
      };
  }
}

const f32 = Math.fround;

/** learningRate · √(1 − beta2^t) / (1 − beta1^t), rounded to float32 after each operation as Keras does. */
export function adamStepSize({ learningRate, beta1, beta2 }: { learningRate: number; beta1: number; beta2: number }, step: number): number {
  if (!Number.isSafeInteger(step) || step < 1) throw new RangeError(`step ${step}: rounds count from 1 here`);
  const rest1 = f32(1 - f32(power(f32(beta1), step)));
  const rest2 = f32(1 - f32(power(f32(beta2), step)));
  return f32(f32(f32(learningRate) * f32(Math.sqrt(rest2))) / rest1);
}

/** base^exponent by squaring: multiplications only, so its bits are those of every machine, which Math.pow does not promise. */
function power(base: number, exponent: number): number {
  let result = 1;
  for (let square = base, rest = exponent; rest > 0; rest = Math.floor(rest / 2), square *= square) {
    if (rest % 2 === 1) result *= square;
  }
  return result;
}
