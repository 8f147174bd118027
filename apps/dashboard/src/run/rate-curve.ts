/**
 * The learning rate over the rounds, for runs that vary it: the schedule of the spec, computed as the servers compute it, times what reduceLROnPlateau has
 * decided so far.
 */
import { rateFactor, type LearningRateSpec } from '@paceline/spec/rate-factor';
import type { Point } from './series.js';

const MOST_POINTS = 300;

interface Length {
  readonly totalRounds: number;
  readonly totalEpochs: number;
}

export interface Reduction {
  /** Committed rounds when it was decided. */
  readonly round: number;
  readonly was: number;
  readonly factor: number;
}

/** @returns nothing for a constant rate, and for a spec that this page does not understand */
export function rateCurve(spec: unknown, { totalRounds, totalEpochs }: Length, reductions: readonly Reduction[] = []): readonly Point[] {
  const { learningRate, reduceLROnPlateau, optimizer, globalBatch } = (spec ?? {}) as {
    readonly learningRate?: LearningRateSpec;
    readonly reduceLROnPlateau?: unknown;
    readonly optimizer?: { readonly learningRate?: unknown };
    readonly globalBatch?: unknown;
  };
  const full = optimizer?.learningRate;
  if (typeof full !== 'number' || typeof globalBatch !== 'number' || totalRounds < 1 || totalEpochs <= 0) return [];
  if (!learningRate && !reduceLROnPlateau) return [];
  const planned = rateFactor(learningRate, { globalBatch, roundsPerEpoch: totalRounds / totalEpochs, totalRounds });
  return roundsOf(totalRounds, reductions)
    .map((round) => ({ round, value: full * planned(round) * decidedAt(reductions, round) }))
    .filter(({ value }) => Number.isFinite(value))
    .map(({ round, value }) => ({ round, rounds: 1, value, min: value, max: value }));
}

/** What was decided with the commit of k rounds holds from round k on, counted from 0. */
const decidedAt = (reductions: readonly Reduction[], round: number): number =>
  reductions.findLast((each) => each.round <= round)?.factor ?? reductions[0]?.was ?? 1;

/** The first, the last, as many in equal steps between them as are drawn, and both sides of each reduction. */
function roundsOf(totalRounds: number, reductions: readonly Reduction[]): readonly number[] {
  const points = Math.min(totalRounds, MOST_POINTS);
  const even = points === 1 ? [0] : Array.from({ length: points }, (_, i) => Math.round((i * (totalRounds - 1)) / (points - 1)));
  const steps = reductions.flatMap(({ round }) => [round - 1, round]).filter((round) => round >= 0 && round < totalRounds);
  return [...new Set([...even, ...steps])].sort((a, b) => a - b);
}
