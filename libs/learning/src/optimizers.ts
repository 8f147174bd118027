/**
 * The updates that servers apply, elementwise and by the kernels, as Keras 3 computes them in float32.
 * Everything that changes over time is a function of the round, never a counter kept beside a chunk: a chunk that is
 * restored or moved goes on with the right step (docs/protocol.md §9.2).
 */
import type { Kernels } from '@paceline/kernels';
import { AVERAGE_SLOT, ESTIMATE_SLOT, type AppliedOptimizer, type OptimizerSpec } from '@paceline/spec';

export interface OptimizerSlot {
  readonly name: string;
  /** Every element starts as this. */
  readonly initialValue: number;
}

/** One chunk of one round. Pointers are into the arena of `kernels`; all regions have `count` float32. */
export interface OptimizerUpdate {
  readonly paramIn: number;
  /** May be paramIn, or grad: each element of those is read before it is written here. No two others may be the same. */
  readonly paramOut: number;
  /** Sum over the round's examples. It is only read, unless it is paramOut. */
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
  /** Those of a moving average of the weights and of an estimate of the gradient come last; `apply` does not touch them. */
  readonly slots: readonly OptimizerSlot[];
  /** Writes the direction of a step to `step` and changes nothing else: only of optimizers that take its norm. */
  direction?(kernels: Kernels, step: number, update: Omit<OptimizerUpdate, 'paramIn' | 'paramOut'>): void;
  apply(kernels: Kernels, update: OptimizerUpdate): void;
}

export function createOptimizer(spec: AppliedOptimizer): Optimizer {
  const update = updateOf(spec);
  const average = spec.emaMomentum === undefined ? [] : [zeros(AVERAGE_SLOT)];
  const estimate = spec.keepsEstimate ? [zeros(ESTIMATE_SLOT)] : [];
  return Object.assign({ name: spec.name }, update, { slots: [...update.slots, ...average, ...estimate] });
}

/** Shares of the old average and of the weights in the new average. The first step takes the weights whole, as in Keras. */
export function averageShares(momentum: number, step: number): { readonly kept: number; readonly rest: number } {
  const kept = step === 1 ? 0 : f32(momentum);
  return { kept, rest: f32(1 - kept) };
}

type Update = Pick<Optimizer, 'slots' | 'apply' | 'direction'>;
type SpecOf<N extends OptimizerSpec['name']> = Extract<OptimizerSpec, { name: N }>;
type UpdateKernel = Exclude<OptimizerSpec['name'], 'adamw'>;
/** What a kernel takes beside parameters, `S` slots, gradient, count and the scale of the gradient. */
type Rates<N extends UpdateKernel, S extends readonly OptimizerSlot[]> =
  Parameters<Kernels[N]> extends [number, number, ...{ [K in keyof S]: number }, number, number, ...infer R, number] ? Readonly<R> : never;

const zeros = (name: string): OptimizerSlot => ({ name, initialValue: 0 });

/** An update by the kernel of that name, which takes its arguments in this order. */
function by<N extends UpdateKernel, const S extends readonly OptimizerSlot[], const R extends Rates<N, S>>(
  name: N,
  slots: S,
  rates: (update: OptimizerUpdate) => R,
): Update {
  return {
    slots,
    apply: (kernels, u) => {
      const kernel = kernels[name] as (...values: unknown[]) => void;
      kernel(u.paramIn, u.paramOut, ...u.slots.slice(0, slots.length), u.grad, u.count, ...rates(u), u.gradScale);
    },
  };
}

function updateOf(spec: OptimizerSpec): Update {
  const rate = (u: OptimizerUpdate): number => rateOf(spec, u);
  switch (spec.name) {
    case 'sgd':
      return by('sgd', [], (u) => [rate(u)]);
    case 'momentum':
      return by('momentum', [zeros('velocity')], (u) => [rate(u), spec.momentum, spec.nesterov]);
    case 'adam':
    case 'adamw': // whose weight decay is applied before, to the parameters (parameter-store of libs/hosting)
      return by('adam', [zeros('m'), zeros('v')], (u) => [stepSizeOf(spec, u), spec.beta1, spec.beta2, spec.epsilon]);
    case 'amsgrad':
      return by('amsgrad', [zeros('m'), zeros('v'), zeros('largest')], (u) => [stepSizeOf(spec, u), spec.beta1, spec.beta2, spec.epsilon]);
    case 'adamax':
      return by('adamax', [zeros('m'), zeros('u')], (u) => [rate(u), restOf(spec.beta1, u.step), spec.beta1, spec.beta2, spec.epsilon]);
    case 'nadam':
      return nadam(spec);
    case 'rmsprop':
      return rmsprop(spec);
    case 'adagrad':
      return by('adagrad', [{ name: 'squares', initialValue: spec.initialAccumulator }], (u) => [rate(u), spec.epsilon]);
    case 'adadelta':
      return by('adadelta', [zeros('squares'), zeros('steps')], (u) => [rate(u), spec.rho, spec.epsilon]);
    case 'ftrl':
      return ftrl(spec);
    case 'lamb':
      return lamb(spec);
    case 'lars':
      return by('lars', [zeros('velocity')], (u) => [
        f32(f32(rate(u)) * f32(u.trustRatio ?? 1)),
        spec.momentum,
        u.keepsWeight === true ? 0 : spec.weightDecay,
      ]);
    case 'lion':
      return by('lion', [zeros('m')], (u) => [rate(u), spec.beta1, spec.beta2]);
  }
}

/** The norms are taken of `direction`; the moments are computed a second time when the ratios are known. */
function lamb(spec: SpecOf<'lamb'>): Update {
  const { beta1, beta2, epsilon } = spec;
  const rates = ({ step }: Pick<OptimizerUpdate, 'step'>) => [restOf(beta1, step), restOf(beta2, step), beta1, beta2, epsilon] as const;
  const update = by('lamb', [zeros('m'), zeros('v')], (u) => [f32(f32(u.trustRatio ?? 1) * f32(rateOf(spec, u))), ...rates(u)]);
  const direction: Update['direction'] = (kernels, step, u) =>
    kernels.lambStep(step, u.slots[0]!, u.slots[1]!, u.grad, u.count, ...rates(u), u.gradScale);
  return Object.assign(update, { direction });
}

function nadam(spec: SpecOf<'nadam'>): Update {
  const schedule = new NadamSchedule(spec.beta1);
  return by('nadam', [zeros('m'), zeros('v')], (u) => {
    const { now, next, product, nextProduct } = schedule.at(u.step);
    const rests = [f32(1 - nextProduct), f32(1 - now), f32(1 - product), restOf(spec.beta2, u.step)] as const;
    return [rateOf(spec, u), next, ...rests, spec.beta1, spec.beta2, spec.epsilon];
  });
}

function ftrl(spec: SpecOf<'ftrl'>): Update {
  const update = by('ftrl', [{ name: 'squares', initialValue: spec.initialAccumulator }, zeros('linear')], (u) => {
    const rate = rateOf(spec, u);
    return [rate, spec.l1, 2 * (spec.l2 + spec.beta / (2 * rate)), 2 * spec.l2Shrinkage];
  });
  return {
    slots: update.slots,
    apply: (kernels, u) => {
      // The update divides by the rate. At 0 (the start of a warm-up, the end of a decay) parameters and slots stay as they are.
      if (Math.fround(rateOf(spec, u)) > 0) update.apply(kernels, u);
      else if (u.paramOut !== u.paramIn) kernels.copy(u.paramOut, u.paramIn, u.count);
    },
  };
}

/** Slots are those that the spec asks for; a kernel does not look at the pointers of the others. */
function rmsprop(spec: SpecOf<'rmsprop'>): Update {
  const names = ['meanSquare', ...(spec.centered ? ['mean'] : []), ...(spec.momentum > 0 ? ['velocity'] : [])];
  const [mean, velocity] = [names.indexOf('mean'), names.indexOf('velocity')];
  const { rho, momentum, epsilon, centered } = spec;
  return {
    slots: names.map(zeros),
    apply: (kernels, u) => {
      const slots = [u.slots[0]!, u.slots[mean] ?? 0, u.slots[velocity] ?? 0] as const;
      kernels.rmsprop(u.paramIn, u.paramOut, ...slots, u.grad, u.count, rateOf(spec, u), rho, momentum, epsilon, centered, u.gradScale);
    },
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
  return f32(f32(f32(learningRate) * f32(Math.sqrt(restOf(beta2, step)))) / restOf(beta1, step));
}

/** 1 − beta^step, rounded to float32 after each operation. */
const restOf = (beta: number, step: number): number => f32(1 - f32(power(f32(beta), step)));

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
