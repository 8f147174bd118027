/**
 * What learning-rate.ts describes, computed: by how much the rate of a round differs from that of the optimizer. It stands in a file of its own, without
 * the validator, so that a page can draw the curve that the servers use.
 */
import type { LearningRateSpec } from './learning-rate.js';

export type { LearningRateSpec };

export interface RateContext {
  readonly globalBatch: number;
  readonly roundsPerEpoch: number;
  /** Rounds of the run as it was created: a decay without a length ends there. */
  readonly totalRounds: number;
}

/** Factor of the learning rate in a round. @param round from 0 */
export type RateFactor = (round: number) => number;

export function rateFactor(spec: LearningRateSpec | undefined, context: RateContext): RateFactor {
  if (!spec) return () => 1;
  const growth = context.globalBatch / spec.baseBatch;
  const scale = spec.scaling === 'linear' ? growth : spec.scaling === 'square-root' ? Math.sqrt(growth) : 1;
  const warmup = warmupLength(spec, context);
  const start = spec.warmupStart ?? (spec.scaling === 'none' ? 0 : Math.min(1, 1 / scale));
  const length = decayLength(spec, context);
  return (round) => {
    if (!Number.isSafeInteger(round) || round < 0) throw new RangeError(`round ${round} is no round`);
    if (round < warmup) return scale * (start + ((1 - start) * round) / warmup);
    return scale * decayed(spec, round - warmup, length);
  };
}

const warmupLength = (spec: LearningRateSpec, context: RateContext): number => inRounds(spec.warmupRounds, spec.warmupEpochs, context, 0);
/** Rounds of the decay. */
export const decayLength = (spec: LearningRateSpec, context: RateContext): number =>
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
