/**
 * Which rounds of which attempts count. An attempt takes up from a checkpoint of an earlier one; what that one did beyond
 * the checkpoint's round is void. Following the parents from the present attempt gives the lineage of the current weights:
 *
 *     attempt 1   0 ───────── 100 ┄┄┄ 130 (void)
 *     attempt 2                └──── 150 ┄┄ 155 (void)
 *     attempt 3                       └──────────>        lineage: 1 [0, 100), 2 [100, 150), 3 [150, ∞)
 *
 * Metrics, ledger and checkpoints are read along it, so each round counts once.
 */
import type { Pin } from '../contract/pins.js';

export interface AttemptOrigin {
  readonly number: number;
  /** The run whose checkpoint the attempt began with, when that is another one. */
  readonly parentRunId: string | null;
  /** The attempt that wrote the checkpoint; null when the attempt began at round 0. */
  readonly parentNumber: number | null;
  /** Rounds that are committed in the checkpoint. */
  readonly parentRound: number | null;
}

/** Rounds [fromRound, toRound) of the attempt count. */
export interface LineagePart {
  readonly attempt: number;
  readonly fromRound: number;
  /** Infinity for the present attempt. */
  readonly toRound: number;
}

/**
 * The present attempt first. A parent has a smaller number, so this ends whatever is stored.
 * @param upTo rounds from here on do not count: the result of before stands, and the extension that went beyond it was cancelled or failed
 */
export function lineageOf(attempts: readonly AttemptOrigin[], present: number, upTo = Infinity): LineagePart[] {
  const parts: LineagePart[] = [];
  let toRound = upTo;
  let number: number | null = present;
  while (number !== null) {
    const attempt = attempts.find((candidate) => candidate.number === number);
    if (!attempt) break;
    const fromRound = attempt.parentNumber === null ? 0 : (attempt.parentRound ?? 0);
    parts.push({ attempt: attempt.number, fromRound: Math.min(fromRound, toRound), toRound });
    toRound = Math.min(fromRound, toRound);
    const isOwn: boolean = attempt.parentRunId === null && attempt.parentNumber !== null && attempt.parentNumber < number;
    number = isOwn ? attempt.parentNumber : null;
  }
  return parts;
}

/** The first round that this run trained itself: 0, or where it took up another run's checkpoint. */
export const firstRoundOf = (lineage: readonly LineagePart[]): number => lineage.at(-1)?.fromRound ?? 0;

export interface StoredCheckpoint {
  readonly attempt: number;
  readonly round: number;
  /** A server could not load it, or it was removed. */
  readonly isGone: boolean;
}

export interface RestorePoint {
  readonly runId: string;
  readonly attempt: number;
  readonly round: number;
}

/**
 * What a run lets go after a new checkpoint, as the servers do it (spec.checkpoint): all but the newest `keepLast` of the lineage
 * and, if wanted, the one with the lowest loss; and always the newest that was the best of its validations, and what others need.
 */
export function letGo<C extends StoredCheckpoint & { readonly loss: number | null; readonly isBest?: boolean | undefined }>(
  lineage: readonly LineagePart[],
  checkpoints: readonly C[],
  { keepLast, keepBest }: { readonly keepLast: number; readonly keepBest: boolean },
  pins: readonly Pin[] = [],
): C[] {
  const newestFirst = checkpoints
    .filter(({ isGone, attempt, round }) => !isGone && lineage.some((part) => part.attempt === attempt && round <= part.toRound))
    .sort((a, b) => b.attempt - a.attempt || b.round - a.round);
  const kept = new Set(newestFirst.slice(0, Math.max(1, keepLast)));
  const best = newestFirst.reduce<C | undefined>(
    (lowest, candidate) => (candidate.loss !== null && (lowest === undefined || candidate.loss < lowest.loss!) ? candidate : lowest),
    undefined,
  );
  if (keepBest && best) kept.add(best);
  const validated = newestFirst.find(({ isBest }) => isBest);
  if (validated) kept.add(validated);
  const isPinned = ({ attempt, round }: C): boolean => pins.some((pin) => pin.attempt === attempt && pin.round === round);
  return checkpoints.filter((checkpoint) => !checkpoint.isGone && !kept.has(checkpoint) && !isPinned(checkpoint));
}

export type RestoreDecision =
  | { readonly kind: 'checkpoint'; readonly restore: RestorePoint }
  /** Round 0: the initial weights follow from the seed. */
  | { readonly kind: 'beginning' }
  /** The run began with another run's checkpoint, and that is gone: there is nothing that it could go on from. */
  | { readonly kind: 'nothing' };

/**
 * What the attempt after `present` begins with: the newest usable checkpoint of the lineage, else what the run began with.
 * @param isOriginGone whether the foreign checkpoint that the run began with cannot be loaded any more
 * @param totalRounds of the run that goes on: an extension that was cancelled may have left checkpoints beyond them
 */
export function nextRestore(
  runId: string,
  attempts: readonly AttemptOrigin[],
  present: number,
  checkpoints: readonly StoredCheckpoint[],
  isOriginGone = false,
  totalRounds = Infinity,
): RestoreDecision {
  const lineage = lineageOf(attempts, present);
  const usable = checkpoints
    .filter(
      ({ isGone, attempt, round }) =>
        !isGone && round <= totalRounds && lineage.some((part) => part.attempt === attempt && round <= part.toRound),
    )
    .sort((a, b) => b.round - a.round || b.attempt - a.attempt);
  const [newest] = usable;
  if (newest) return { kind: 'checkpoint', restore: { runId, attempt: newest.attempt, round: newest.round } };
  const first = attempts.find(({ number }) => number === lineage.at(-1)?.attempt);
  const origin = foreignOrigin(first);
  if (!origin) return { kind: 'beginning' };
  return isOriginGone ? { kind: 'nothing' } : { kind: 'checkpoint', restore: origin };
}

/** The checkpoint of another run that an attempt began with. */
export function foreignOrigin(attempt: AttemptOrigin | undefined): RestorePoint | undefined {
  if (!attempt || attempt.parentRunId === null || attempt.parentNumber === null || attempt.parentRound === null) return undefined;
  return { runId: attempt.parentRunId, attempt: attempt.parentNumber, round: attempt.parentRound };
}
