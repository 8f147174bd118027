/**
 * A result that was won is never lost: a run that has one and is extended keeps it until the extension brings another. An extension that
 * is cancelled or fails therefore ends as SUCCEEDED, with the result, the length and the metrics of before.
 */
import { syncSteps, type RunSpec } from '@paceline/spec';
import type { RunResult } from '../contract/reports.js';
import { isOver, type RunStatus } from '../lifecycle/run-status.js';
import type { RunChange, StatusMove } from '../changes/moves.js';

/** What is read of the run's row. */
export interface ResultHolder {
  readonly status: RunStatus;
  readonly result: unknown;
  readonly spec: unknown;
  readonly roundsPerEpoch: bigint | number;
}

/** Rounds of the run's result, also while it is extended; null for a run without one. */
export const resultRounds = (result: unknown): number | null => (result as RunResult | null)?.rounds ?? null;

const ENDINGS: Partial<Record<RunStatus, string>> = { CANCELLED: 'was cancelled', FAILED: 'failed' };

/** The move to make in place of `move`; undefined where `move` takes no result away. */
export function resultKeptBy(run: ResultHolder, move: StatusMove): StatusMove | undefined {
  const rounds = resultRounds(run.result);
  const ending = ENDINGS[move.to];
  if (rounds === null || ending === undefined || isOver(run.status)) return undefined;
  const why = move.reason === 'cancelled' ? '' : ` (${move.reason})`;
  return {
    to: 'SUCCEEDED',
    reason: `the extension ${ending}${why}; the result of round ${rounds} stands`.slice(0, 2000),
    cause: move.cause ?? move.to,
    set: { ...move.set, ...backTo(rounds, run) },
  };
}

/** As it was when the result was stored; what the extension has spent of the restart budget is forgotten. */
function backTo(rounds: number, { spec, roundsPerEpoch }: ResultHolder): RunChange {
  const present = spec as RunSpec;
  const epochs = rounds / Number(roundsPerEpoch);
  const isWhole = Number.isInteger(epochs) && syncSteps(present) === 0; // else epochs have different numbers of rounds
  const length = 'epochs' in present.length && isWhole ? { epochs } : { rounds };
  return {
    spec: { ...present, length },
    totalRounds: rounds,
    bestRound: rounds,
    restartsUsed: 0,
    cancelRequestedAt: null,
    pauseRequestedAt: null,
    nextAttemptAt: null,
  };
}
