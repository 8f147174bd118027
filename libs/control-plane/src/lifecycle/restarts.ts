/**
 * How often a run may be started anew, and after which pause. One budget for all causes: `spec.restarts` attempts in a row
 * without progress. A committed round beyond the best of all attempts before refills it; in all, a run gets at most
 * `CAP_FACTOR` times its budget, so that none goes round for ever. What several runs lost together is charged to none of them: also a run
 * without restarts outlives `CAP_FACTOR` such losses.
 */
export interface RestartCount {
  /** Restarts since a round beyond the previous best was committed. */
  readonly used: number;
  /** Restarts of the run's whole life. */
  readonly total: number;
  /** Committed rounds that the furthest attempt had when an attempt ended last. */
  readonly bestRound: number;
}

export const NO_RESTARTS: RestartCount = { used: 0, total: 0, bestRound: 0 };

export const CAP_FACTOR = 10;
const FIRST_PAUSE_MS = 200;
export const LONGEST_PAUSE_MS = 30_000;

const mostInAll = (budget: number): number => CAP_FACTOR * Math.max(1, budget);

export interface Charge {
  readonly isGranted: boolean;
  /** To be stored, granted or not. */
  readonly count: RestartCount;
}

/**
 * An attempt ended after `committedRounds`; may another be started?
 * @param budget `spec.restarts`
 */
export function chargeRestart(count: RestartCount, budget: number, committedRounds: number): Charge {
  const isProgress = committedRounds > count.bestRound;
  const used = isProgress ? 0 : count.used;
  const bestRound = Math.max(count.bestRound, committedRounds);
  if (used >= budget || count.total >= mostInAll(budget)) return { isGranted: false, count: { used, total: count.total, bestRound } };
  return { isGranted: true, count: { used: used + 1, total: count.total + 1, bestRound } };
}

/**
 * An attempt ended by the loss of a server that held parts of other runs too: any of them may have taken it down, so none is charged. It counts
 * in the run's whole life alone, so that no run goes round for ever.
 */
export function excuseRestart(count: RestartCount, budget: number, committedRounds: number): Charge {
  const used = committedRounds > count.bestRound ? 0 : count.used;
  const bestRound = Math.max(count.bestRound, committedRounds);
  if (count.total >= mostInAll(budget)) return { isGranted: false, count: { used, total: count.total, bestRound } };
  return { isGranted: true, count: { used, total: count.total + 1, bestRound } };
}

/** Restarts that are left without progress. */
export const restartsLeft = ({ used, total }: RestartCount, budget: number): number =>
  Math.max(0, Math.min(budget - used, mostInAll(budget) - total));

/**
 * Pause before the n-th restart without progress: doubles, and lies anywhere in its upper half, so that runs which lost one
 * host together do not come back together.
 * @param used restarts without progress, this one included; Infinity is the longest pause
 * @param random uniform in [0, 1)
 */
export function restartPauseMs(used: number, random: () => number): number {
  const longest = Math.min(FIRST_PAUSE_MS * 2 ** Math.max(0, used - 1), LONGEST_PAUSE_MS);
  return Math.round(longest / 2 + (random() * longest) / 2);
}
