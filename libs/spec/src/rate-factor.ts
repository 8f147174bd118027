/**
 * Computes what learning-rate.ts describes: the factor between the rate of a round and the rate of the optimizer. This file loads no validator, so
 * that a page can draw the curve that the servers use.
 */
import type { LearningRateSpec } from './learning-rate.js';

export type { LearningRateSpec };

export interface RateContext {
  readonly globalBatch: number;
  readonly roundsPerEpoch: number;
  /** Rounds of the run as it was created: a decay without a length ends there. */
  readonly totalRounds: number;
}

/** Factor of the learning rate in a round. @param round from 0; a fraction is a local step inside of it */
export type RateFactor = (round: number) => number;

export function rateFactor(spec: LearningRateSpec | undefined, context: RateContext): RateFactor {
  if (!spec) return () => 1;
  const growth = context.globalBatch / spec.baseBatch;
  const scale = spec.scaling === 'linear' ? growth : spec.scaling === 'square-root' ? Math.sqrt(growth) : 1;
  const warmup = warmupLength(spec, context);
  const start = spec.warmupStart ?? (spec.scaling === 'none' ? 0 : Math.min(1, 1 / scale));
  const length = decayLength(spec, context);
  return (round) => {
    if (!(round >= 0 && round <= Number.MAX_SAFE_INTEGER)) throw new RangeError(`round ${round} is no round`);
    if (round < warmup) return scale * (start + ((1 - start) * round) / warmup);
    return scale * decayed(spec, round - warmup, length);
  };
}

const warmupLength = (spec: LearningRateSpec, context: RateContext): number => inRounds(spec.warmupRounds, spec.warmupEpochs, context, 0);
/** Rounds of the decay. */
const decayLength = (spec: LearningRateSpec, context: RateContext): number =>
  inRounds(spec.decayRounds, spec.decayEpochs, context, Math.max(1, context.totalRounds - warmupLength(spec, context)));

function inRounds(given: number | undefined, epochsGiven: number | undefined, context: RateContext, otherwise: number): number {
  if (given !== undefined) return given;
  return epochsGiven === undefined ? otherwise : Math.max(1, Math.round(epochsGiven * context.roundsPerEpoch));
}

function decayed(spec: LearningRateSpec, round: number, length: number): number {
  const { factor, endFactor, power } = spec;
  const share = Math.min(1, round / length);
  switch (spec.schedule) {
    case 'constant':
      return 1;
    case 'step':
      return factor ** Math.floor(round / length);
    case 'exponential':
      return factor ** (round / length);
    case 'polynomial':
      return (1 - endFactor) * (1 - share) ** power + endFactor;
    case 'cosine':
      return (1 - endFactor) * falling(share) + endFactor;
    case 'cosine-restarts':
      return restarted(spec, round / length);
    case 'one-cycle':
      return oneCycle(spec, share);
  }
}

/** Half a cosine wave from 1 to 0 (Loshchilov & Hutter 2017). */
const falling = (share: number): number => 0.5 * (1 + Math.cos(Math.PI * share));

function restarted({ periodGrowth, restartFactor, endFactor }: LearningRateSpec, periods: number): number {
  const begin = (restarts: number): number => (periodGrowth === 1 ? restarts : (periodGrowth ** restarts - 1) / (periodGrowth - 1));
  let restarts = Math.floor(periodGrowth === 1 ? periods : Math.log1p(periods * (periodGrowth - 1)) / Math.log(periodGrowth));
  // The logarithm may be off by its last bit where a period begins.
  if (begin(restarts + 1) <= periods) restarts++;
  else if (begin(restarts) > periods) restarts--;
  const share = Math.min(1, (periods - begin(restarts)) / periodGrowth ** restarts);
  return (1 - endFactor) * restartFactor ** restarts * falling(share) + endFactor;
}

/** Up and down in two half cosines (Smith & Topin 2018; PyTorch's OneCycleLR). */
function oneCycle({ riseShare, startDivisor, endDivisor }: LearningRateSpec, share: number): number {
  const first = 1 / startDivisor;
  const last = first / endDivisor;
  if (share < riseShare) return 1 + (first - 1) * falling(share / riseShare);
  return last + (1 - last) * falling(riseShare === 1 ? 1 : (share - riseShare) / (1 - riseShare));
}

/**
 * The spec with the length of its decay written down: a run that is extended later goes on at the rate where it stood.
 * @param context of the run as it is created
 */
export function pinDecay(spec: LearningRateSpec | undefined, context: RateContext): LearningRateSpec | undefined {
  if (!spec || spec.schedule === 'constant' || spec.decayRounds !== undefined || spec.decayEpochs !== undefined) return spec;
  return Object.assign({}, spec, { decayRounds: decayLength(spec, context) });
}

/**
 * The spec without the length of a decay that was written down by `pinDecay`: a run that goes on from its checkpoint to another length decays to the end
 * of that. A length that happens to be the same was meant so too. Step and exponential have no end.
 * @param context of the run that the spec is of
 */
export function unpinDecay(spec: LearningRateSpec | undefined, context: RateContext): LearningRateSpec | undefined {
  if (!spec || spec.schedule === 'constant' || spec.schedule === 'step' || spec.schedule === 'exponential') return spec;
  const { decayRounds, ...open } = spec;
  return decayRounds !== undefined && decayRounds === decayLength(open, context) ? open : spec;
}

/** Whether every round from here to the end has the rate 0: nothing would be learned. */
export function isRateOver(spec: LearningRateSpec | undefined, context: RateContext, fromRound: number): boolean {
  // Restarts raise a rate again and again.
  if (!spec || spec.schedule === 'cosine-restarts' || fromRound >= context.totalRounds) return false;
  const factor = rateFactor(spec, context);
  // A rate of 0 rises only in a warm-up, and then in the next round.
  return factor(fromRound) === 0 && factor(Math.min(fromRound + 1, context.totalRounds - 1)) === 0;
}
