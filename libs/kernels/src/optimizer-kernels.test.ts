import { describe, it } from 'vitest';
import { check, kernels, type place } from './kernels.fixture.js';
import type { OptimizerKernels } from './optimizer-kernels.js';
import * as references from './references.js';

type Floats = Float32Array;
type Placed = ReturnType<typeof place>;

/** How many arrays: the parameters read, those written, the slots and the gradient. Then the rates, as the kernel and as the reference take them. */
const CASES: Readonly<
  Record<Exclude<keyof OptimizerKernels, 'decayWeights' | 'clamp' | 'average' | 'lambStep'>, readonly [number, readonly number[], object]>
> = {
  adagrad: [4, [0.0123, 1e-7], { learningRate: 0.0123, epsilon: 1e-7 }],
  adadelta: [5, [0.9, 0.95, 1e-6], { learningRate: 0.9, rho: 0.95, epsilon: 1e-6 }],
  amsgrad: [6, [0.0123, 0.9, 0.999, 1e-7], { stepSize: 0.0123, beta1: 0.9, beta2: 0.999, epsilon: 1e-7 }],
  adamax: [5, [0.0123, 0.271, 0.9, 0.999, 1e-7], { learningRate: 0.0123, correction: 0.271, beta1: 0.9, beta2: 0.999, epsilon: 1e-7 }],
  nadam: [
    5,
    [0.0123, 0.47, 0.77, 0.46, 0.51, 0.001, 0.9, 0.999, 1e-7],
    {
      learningRate: 0.0123,
      next: 0.47,
      nextRest: 0.77,
      now: 0.46,
      nowRest: 0.51,
      rest: 0.001,
      beta1: 0.9,
      beta2: 0.999,
      epsilon: 1e-7,
    },
  ],
  ftrl: [5, [0.05, 0.01, 0.02, 0.004], { learningRate: 0.05, l1: 0.01, twiceL2: 0.02, twiceShrinkage: 0.004 }],
  lamb: [
    5,
    [0.0123, 0.19, 0.002, 0.9, 0.999, 1e-6],
    { rate: 0.0123, correction1: 0.19, correction2: 0.002, beta1: 0.9, beta2: 0.999, epsilon: 1e-6 },
  ],
  lars: [4, [0.0123, 0.9, 0.0004], { rate: 0.0123, momentum: 0.9, weightDecay: 0.0004 }],
  lion: [4, [0.0123, 0.9, 0.99], { learningRate: 0.0123, beta1: 0.9, beta2: 0.99 }],
};
const SCALE = 1 / 11;

describe('kernels of optimizers give the bits of their references', () => {
  for (const isInPlace of [false, true])
    it.each(Object.keys(CASES) as (keyof typeof CASES)[])(`%s${isInPlace ? ', in place' : ''}`, (name) => {
      const [count, rates, named] = CASES[name];
      check(count, (at: Placed, n) => {
        const arrays = [at[0]!, isInPlace ? at[0]! : at[1]!, ...at.slice(2)];
        const kernel = kernels[name].bind(kernels) as (...numbers: number[]) => void;
        kernel(...arrays.map(({ pointer }) => pointer), n, ...rates, SCALE);
        const reference = references[name] as unknown as (...parts: (Floats | object)[]) => void;
        reference(...arrays.map((array) => array.reference), Object.assign({ gradScale: SCALE }, named));
      });
    });

  it.each([false, true])('decayWeights (in place: %s)', (isInPlace) => {
    check(2, ([w, out], n) => {
      const target = isInPlace ? w! : out!;
      kernels.decayWeights(w!.pointer, target.pointer, n, 0.004, 0.0123);
      references.decayWeights(w!.reference, target.reference, { weightDecay: 0.004, learningRate: 0.0123 });
    });
  });

  it('average', () => {
    check(2, ([dst, src], n) => {
      kernels.average(dst!.pointer, src!.pointer, n, 0.9, 1 - Math.fround(0.9));
      references.average(dst!.reference, src!.reference, { kept: 0.9, rest: 1 - Math.fround(0.9) });
    });
  });

  it('lambStep, which is the step that lamb goes, and leaves the moments as they are', () => {
    const rates = [0.19, 0.002, 0.9, 0.999, 1e-6] as const;
    const named = { correction1: 0.19, correction2: 0.002, beta1: 0.9, beta2: 0.999, epsilon: 1e-6, gradScale: SCALE };
    check(4, ([step, m, v, grad], n) => {
      kernels.lambStep(step!.pointer, m!.pointer, v!.pointer, grad!.pointer, n, ...rates, SCALE);
      references.lambStep(step!.reference, m!.reference, v!.reference, grad!.reference, named);
    });
  });

  it('clamp', () => {
    check(1, ([dst], n) => {
      kernels.clamp(dst!.pointer, n, 0.5);
      references.clamp(dst!.reference, 0.5);
    });
  });
});
