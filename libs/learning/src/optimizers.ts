/**
 * The updates that servers apply, elementwise and by the kernels, as Keras 3 computes them in float32.
 * Everything that changes over time is a function of the round, never a counter kept beside a chunk: a chunk that is
 * restored or moved goes on with the right step (docs/protocol.md §9.2).
 */
import type { Kernels } from '@paceline/kernels';
import { AVERAGE_SLOT, type OptimizerSpec } from '@paceline/spec';

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
  /** Multiplies the learning rate: scaling, warm-up and decay at this round. */
  readonly rateFactor?: number;
  /** lamb and lars, one variable at a time: multiplies the rate; 1 where it is left out. */
  readonly trustRatio?: number;
  /** lars: whether the weights decay, as they do where it is left out. */
  readonly keepsWeight?: boolean;
  /** Divides the step size: 1 + staleness, in asynchronous runs that ask for it. */
  readonly rateDivisor?: number;
}

export interface Optimizer {
  readonly name: OptimizerSpec['name'];
  /** The slot of a moving average of the weights comes last; `apply` does not touch it. */
  readonly slots: readonly OptimizerSlot[];
  /** Writes the direction of a step to `step` and changes nothing else: only of optimizers that take its norm. */
  direction?(kernels: Kernels, step: number, update: Omit<OptimizerUpdate, 'paramIn' | 'paramOut'>): void;
  apply(kernels: Kernels, update: OptimizerUpdate): void;
}

export function createOptimizer(spec: OptimizerSpec): Optimizer {
  const update = updateOf(spec);
  const average = spec.emaMomentum === undefined ? [] : slots(AVERAGE_SLOT);
  return Object.assign({ name: spec.name }, update, { slots: [...update.slots, ...average] });
}

/** Shares of the old average and of the weights in the new average. The first step takes the weights whole, as in Keras. */
export function averageShares(momentum: number, step: number): { readonly kept: number; readonly rest: number } {
  const kept = step === 1 ? 0 : f32(momentum);
  return { kept, rest: f32(1 - kept) };
}

type Update = Pick<Optimizer, 'slots' | 'apply' | 'direction'>;

const slots = (...names: string[]): OptimizerSlot[] => names.map((name) => ({ name, initialValue: 0 }));

function updateOf(spec: OptimizerSpec): Update {
  switch (spec.name) {
    case 'sgd':
      return {
        slots: [],
        apply: (kernels, u) => kernels.sgd(u.paramIn, u.paramOut, u.grad, u.count, rateOf(spec, u), u.gradScale),
      };
    case 'momentum':
      return {
        slots: slots('velocity'),
        apply: (kernels, u) =>
          kernels.momentum(u.paramIn, u.paramOut, u.slots[0]!, u.grad, u.count, rateOf(spec, u), spec.momentum, spec.nesterov, u.gradScale),
      };
    case 'adam':
    case 'adamw':
      return adam(spec);
    case 'amsgrad':
      return amsgrad(spec);
    case 'adamax':
      return adamax(spec);
    case 'nadam':
      return nadam(spec);
    case 'rmsprop':
      return rmsprop(spec);
    case 'adagrad':
      return {
        slots: [{ name: 'squares', initialValue: spec.initialAccumulator }],
        apply: (kernels, u) =>
          kernels.adagrad(u.paramIn, u.paramOut, u.slots[0]!, u.grad, u.count, rateOf(spec, u), spec.epsilon, u.gradScale),
      };
    case 'adadelta':
      return {
        slots: slots('squares', 'steps'),
        apply: (kernels, u) =>
          kernels.adadelta(
            u.paramIn,
            u.paramOut,
            u.slots[0]!,
            u.slots[1]!,
            u.grad,
            u.count,
            rateOf(spec, u),
            spec.rho,
            spec.epsilon,
            u.gradScale,
          ),
      };
    case 'ftrl':
      return ftrl(spec);
    case 'lamb':
      return lamb(spec);
    case 'lars':
      return lars(spec);
    case 'lion':
      return {
        slots: slots('m'),
        apply: (kernels, u) =>
          kernels.lion(u.paramIn, u.paramOut, u.slots[0]!, u.grad, u.count, rateOf(spec, u), spec.beta1, spec.beta2, u.gradScale),
      };
  }
}

type SpecOf<N extends OptimizerSpec['name']> = Extract<OptimizerSpec, { name: N }>;

/** The weight decay of AdamW is applied before, to the parameters (parameter-store of libs/hosting). */
function adam(spec: SpecOf<'adam' | 'adamw'>): Update {
  return {
    slots: slots('m', 'v'),
    apply: (kernels, u) =>
      kernels.adam(
        u.paramIn,
        u.paramOut,
        u.slots[0]!,
        u.slots[1]!,
        u.grad,
        u.count,
        stepSizeOf(spec, u),
        spec.beta1,
        spec.beta2,
        spec.epsilon,
        u.gradScale,
      ),
  };
}

function amsgrad(spec: SpecOf<'amsgrad'>): Update {
  return {
    slots: slots('m', 'v', 'largest'),
    apply: (kernels, u) =>
      kernels.amsgrad(
        u.paramIn,
        u.paramOut,
        u.slots[0]!,
        u.slots[1]!,
        u.slots[2]!,
        u.grad,
        u.count,
        stepSizeOf(spec, u),
        spec.beta1,
        spec.beta2,
        spec.epsilon,
        u.gradScale,
      ),
  };
}

function adamax(spec: SpecOf<'adamax'>): Update {
  return {
    slots: slots('m', 'u'),
    apply: (kernels, u) =>
      kernels.adamax(
        u.paramIn,
        u.paramOut,
        u.slots[0]!,
        u.slots[1]!,
        u.grad,
        u.count,
        rateOf(spec, u),
        f32(1 - f32(power(f32(spec.beta1), u.step))),
        spec.beta1,
        spec.beta2,
        spec.epsilon,
        u.gradScale,
      ),
  };
}

/** Its norms are taken of `direction`; the moments are computed a second time when the ratios are known. */
function lamb(spec: SpecOf<'lamb'>): Update {
  const rates = (u: Pick<OptimizerUpdate, 'step' | 'gradScale'>) =>
    [
      f32(1 - f32(power(f32(spec.beta1), u.step))),
      f32(1 - f32(power(f32(spec.beta2), u.step))),
      spec.beta1,
      spec.beta2,
      spec.epsilon,
      u.gradScale,
    ] as const;
  return {
    slots: slots('m', 'v'),
    direction: (kernels, step, u) => kernels.lambStep(step, u.slots[0]!, u.slots[1]!, u.grad, u.count, ...rates(u)),
    apply: (kernels, u) => {
      const rate = f32(f32(u.trustRatio ?? 1) * f32(rateOf(spec, u)));
      kernels.lamb(u.paramIn, u.paramOut, u.slots[0]!, u.slots[1]!, u.grad, u.count, rate, ...rates(u));
    },
  };
}

function lars(spec: SpecOf<'lars'>): Update {
  return {
    slots: slots('velocity'),
    apply: (kernels, u) => {
      const rate = f32(f32(rateOf(spec, u)) * f32(u.trustRatio ?? 1));
      const decay = u.keepsWeight === true ? 0 : spec.weightDecay;
      kernels.lars(u.paramIn, u.paramOut, u.slots[0]!, u.grad, u.count, rate, spec.momentum, decay, u.gradScale);
    },
  };
}

function nadam(spec: SpecOf<'nadam'>): Update {
  const schedule = new NadamSchedule(spec.beta1);
  return {
    slots: slots('m', 'v'),
    apply: (kernels, u) => {
      const { now, next, product, nextProduct } = schedule.at(u.step);
      kernels.nadam(
        u.paramIn,
        u.paramOut,
        u.slots[0]!,
        u.slots[1]!,
        u.grad,
        u.count,
        rateOf(spec, u),
        next,
        f32(1 - nextProduct),
        f32(1 - now),
        f32(1 - product),
        f32(1 - f32(power(f32(spec.beta2), u.step))),
        spec.beta1,
        spec.beta2,
        spec.epsilon,
        u.gradScale,
      );
    },
  };
}

function ftrl(spec: SpecOf<'ftrl'>): Update {
  return {
    slots: [
      { name: 'squares', initialValue: spec.initialAccumulator },
      { name: 'linear', initialValue: 0 },
    ],
    apply: (kernels, u) => {
      const rate = rateOf(spec, u);
      // The update divides by the rate. At 0 (the begin of a warm-up, the end of a decay) nothing moves, so nothing is taken note of either.
      if (!(Math.fround(rate) > 0)) {
        if (u.paramOut !== u.paramIn) kernels.copy(u.paramOut, u.paramIn, u.count);
        return;
      }
      kernels.ftrl(
        u.paramIn,
        u.paramOut,
        u.slots[0]!,
        u.slots[1]!,
        u.grad,
        u.count,
        rate,
        spec.l1,
        2 * (spec.l2 + spec.beta / (2 * rate)),
        2 * spec.l2Shrinkage,
        u.gradScale,
      );
    },
  };
}

/** Slots are those that the spec asks for; a kernel does not look at the pointers of the others. */
function rmsprop(spec: SpecOf<'rmsprop'>): Update {
  const names = ['meanSquare', ...(spec.centered ? ['mean'] : []), ...(spec.momentum > 0 ? ['velocity'] : [])];
  const [mean, velocity] = [names.indexOf('mean'), names.indexOf('velocity')];
  return {
    slots: slots(...names),
    apply: (kernels, u) =>
      kernels.rmsprop(
        u.paramIn,
        u.paramOut,
        u.slots[0]!,
        u.slots[mean] ?? 0,
        u.slots[velocity] ?? 0,
        u.grad,
        u.count,
        rateOf(spec, u),
        spec.rho,
        spec.momentum,
        spec.epsilon,
        spec.centered,
        u.gradScale,
      ),
  };
}

const f32 = Math.fround;

/** The learning rate of an update. */
export const rateOf = (
  { learningRate }: OptimizerSpec,
  { rateFactor = 1, rateDivisor = 1 }: Pick<OptimizerUpdate, 'rateFactor' | 'rateDivisor'>,
): number => (learningRate * rateFactor) / rateDivisor;

const stepSizeOf = ({ learningRate, beta1, beta2 }: SpecOf<'adam' | 'adamw' | 'amsgrad'>, u: OptimizerUpdate): number =>
  adamStepSize({ learningRate: learningRate * (u.rateFactor ?? 1), beta1, beta2 }, u.step) / (u.rateDivisor ?? 1);

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

/** Dozat 2016, as Keras has it: now = beta1 · (1 − 0.5 · 0.96^t), and the product of all of them so far. */
class NadamSchedule {
  private step = 0;
  private product = 1;

  constructor(private readonly beta1: number) {}

  /** A function of the step: what is kept from the last call only saves time. */
  at(step: number): { readonly now: number; readonly next: number; readonly product: number; readonly nextProduct: number } {
    if (step < this.step) [this.step, this.product] = [0, 1];
    for (; this.step < step && this.product > 0; this.step++) this.product = f32(this.product * this.momentum(this.step + 1));
    this.step = step;
    const next = this.momentum(step + 1);
    return { now: this.momentum(step), next, product: this.product, nextProduct: f32(this.product * next) };
  }

  private momentum(step: number): number {
    return f32(f32(this.beta1) * f32(1 - f32(0.5 * f32(power(f32(0.96), step)))));
  }
}
