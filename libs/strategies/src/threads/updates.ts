/**
 * The optimizers as tf.js 4.22 computes them (tfjs-core/src/optimizers), elementwise over ranges of an arena, in float32. Most are kernels of
 * libs/kernels, which follow Keras 3; where tf.js differs, the numbers that a kernel gets make it the formula of tf.js:
 *
 * | rule | tf.js | how |
 * |---|---|---|
 * | momentum | a = μ a + g; w −= η a: the rate is not part of what is kept | the direction first, then a step of sgd |
 * | adam | η m̂ / (√v̂ + ε) | ε √(1 − β2ᵗ) as the kernel's ε |
 * | adamax | η / (1 + decay · (t − 1)) | as the rate |
 * | rmsprop, centered | √(s − (a² + ε)) | −ε as the kernel's ε |
 * | adadelta | divides by the mean of the squares before this step | a loop in TypeScript |
 */
import { normal, type Arena } from '@paceline/kernels';
import { createOptimizer } from '@paceline/learning';
import type { RunRule, UpdateRule } from '../update-rule.js';

/** Pointers are into the arena, all ranges have `count` float32. */
export interface RangeUpdate {
  readonly params: number;
  /** The sum over the examples; overwritten. */
  readonly grad: number;
  readonly slots: readonly number[];
  readonly count: number;
  /** From 1. */
  readonly step: number;
  readonly rate: number;
  /** 1 / examples. */
  readonly gradScale: number;
  /** The weights of the range do not decay, where those of others do. */
  readonly keepsWeight?: boolean | undefined;
}

export type Update = (arena: Arena, range: RangeUpdate) => void;

/** @param zeros pointer of at least as many zeros as the largest range has elements; needed for momentum */
export function updateOf(rule: UpdateRule, zeros: number): Update {
  switch (rule.name) {
    case 'sgd':
      return ({ kernels }, u) => kernels.sgd(u.params, u.params, u.grad, u.count, u.rate, u.gradScale);
    case 'momentum':
      return ({ kernels }, u) => {
        // With the rate −1 the kernel leaves μ a + g in the slot, and the direction on top of the zeros.
        kernels.momentum(zeros, u.grad, u.slots[0]!, u.grad, u.count, -1, rule.momentum, rule.nesterov, u.gradScale);
        kernels.sgd(u.params, u.params, u.grad, u.count, u.rate, 1);
      };
    case 'adam':
      return byKernel((u) => ({
        name: 'adam',
        learningRate: u.rate,
        beta1: rule.beta1,
        beta2: rule.beta2,
        epsilon: rule.epsilon * Math.sqrt(1 - rule.beta2 ** u.step),
      }));
    case 'adamax':
      return byKernel((u) => ({
        name: 'adamax',
        learningRate: u.rate / (1 + rule.decay * (u.step - 1)),
        beta1: rule.beta1,
        beta2: rule.beta2,
        epsilon: rule.epsilon,
      }));
    case 'adagrad':
      return byKernel((u) => ({
        name: 'adagrad',
        learningRate: u.rate,
        epsilon: rule.epsilon,
        initialAccumulator: rule.initialAccumulator,
      }));
    case 'rmsprop':
      return ({ kernels }, u) =>
        kernels.rmsprop(
          u.params,
          u.params,
          u.slots[0]!,
          u.slots[2] ?? 0,
          u.slots[1]!,
          u.grad,
          u.count,
          u.rate,
          rule.rho,
          rule.momentum,
          rule.centered ? -rule.epsilon : rule.epsilon,
          rule.centered,
          u.gradScale,
        );
    case 'adadelta':
      return (arena, u) => adadelta(arena, u, rule.rho, rule.epsilon);
    case 'run':
      return ofRuns(rule);
  }
}

/** As parameter servers of a run compute it. The rate comes with each step, so the optimizer is made for a rate of 1. */
function ofRuns({ spec }: RunRule): Update {
  const optimizer = createOptimizer({ ...spec, learningRate: 1 });
  const { weightDecay = 0 } = spec as { readonly weightDecay?: number };
  return ({ kernels }, u) => {
    const { params, grad, slots, count, step, rate, gradScale, keepsWeight = false } = u;
    if (weightDecay > 0 && !keepsWeight) kernels.decayWeights(params, params, count, weightDecay, rate);
    optimizer.apply(kernels, { paramIn: params, paramOut: params, grad, slots, count, step, gradScale, rateFactor: rate });
  };
}

type KernelSpec = Parameters<typeof createOptimizer>[0];

/** The values of a rule may change with every step. */
function byKernel(specOf: (update: RangeUpdate) => KernelSpec): Update {
  return ({ kernels }, u) => {
    const { params, grad, slots, count, step, gradScale } = u;
    createOptimizer(specOf(u)).apply(kernels, { paramIn: params, paramOut: params, grad, slots, count, step, gradScale });
  };
}

const f32 = Math.fround;

function adadelta(arena: Arena, { params, grad, slots, count, rate, gradScale }: RangeUpdate, rho: number, epsilon: number): void {
  const [w, g, squares, steps] = [params, grad, slots[0]!, slots[1]!].map((pointer) => arena.f32(pointer, count)) as [
    Float32Array,
    Float32Array,
    Float32Array,
    Float32Array,
  ];
  const [kept, rest, scale] = [f32(rho), f32(1 - rho), f32(gradScale)];
  for (let i = 0; i < count; i++) {
    const gradient = f32(g[i]! * scale);
    const before = squares[i]!;
    const step = f32(f32(f32(Math.sqrt(f32(steps[i]! + epsilon))) / f32(Math.sqrt(f32(before + epsilon)))) * gradient);
    squares[i] = normal(f32(f32(before * kept) + f32(f32(gradient * gradient) * rest)));
    steps[i] = normal(f32(f32(steps[i]! * kept) + f32(f32(step * step) * rest)));
    w[i] = w[i]! - f32(step * rate);
  }
}
