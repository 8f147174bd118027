/** Which checkpoints stay: pure, over what a survey has found. */
import type { FoundCheckpoint } from './checkpoint-survey.js';
import type { CheckpointId } from './manifest.js';

/**
 * Where the present attempt comes from: `parents` are the checkpoints that it descends from. What an older attempt wrote after the
 * checkpoint that it was left at belongs to no line of the present weights.
 */
export interface Lineage {
  readonly attempt: number;
  readonly parents: readonly { readonly runId?: string | undefined; readonly attempt: number; readonly round: number }[];
}

export interface RetentionPolicy {
  readonly keepLast: number;
  /** Keep the one with the lowest loss too. */
  readonly keepBest: boolean;
  /** Kept whatever else says: what another run begins with, for example. */
  readonly keep?: readonly { readonly attempt: number; readonly round: number }[];
  /** Default: the lineage of the newest complete checkpoint. */
  readonly lineage?: Lineage;
}

/** Orders checkpoints by attempt, then by round. */
export const compareIds = (a: CheckpointId, b: CheckpointId): number => a.attempt - b.attempt || a.round - b.round;

/** The present attempt, any newer one (nothing is known against it), and of the parents' attempts what lies up to the parent. */
export const isInLineage = (id: CheckpointId, { attempt, parents }: Lineage): boolean =>
  id.attempt >= attempt ||
  parents.some((parent) => (parent.runId ?? id.runId) === id.runId && parent.attempt === id.attempt && id.round <= parent.round);

/** Chooses what to remove by the policy, oldest first: nothing if there is no complete checkpoint, and never anything newer than the newest one. */
export function chooseForRemoval(found: readonly FoundCheckpoint[], policy: RetentionPolicy): FoundCheckpoint[] {
  const complete = found.filter(({ manifest }) => manifest !== null).sort((a, b) => compareIds(b.id, a.id));
  const lineage = policy.lineage ?? ownLineage(complete[0]);
  // A newer attempt has begun to write: what stays is its business, whoever asks here has not heard that it is over.
  if (lineage && found.some(({ id }) => id.attempt > lineage.attempt)) return [];
  const valid = lineage ? complete.filter(({ id }) => isInLineage(id, lineage)) : [];
  const newest = valid[0];
  if (!lineage || !newest) return [];
  const kept = new Set<FoundCheckpoint>(valid.slice(0, Math.max(1, policy.keepLast)));
  const best = policy.keepBest ? lowestLoss(valid) : undefined;
  if (best) kept.add(best);
  // Each was better than those before: early stopping may end with the newest of them.
  const validated = valid.find(({ manifest }) => manifest?.isBest);
  if (validated) kept.add(validated);
  const isPinned = ({ id }: FoundCheckpoint): boolean =>
    (policy.keep ?? []).some(({ attempt, round }) => attempt === id.attempt && round === id.round);
  return found
    .filter((checkpoint) => compareIds(checkpoint.id, newest.id) < 0 || !isInLineage(checkpoint.id, lineage))
    .filter((checkpoint) => !kept.has(checkpoint) && !isPinned(checkpoint))
    .sort((a, b) => compareIds(a.id, b.id));
}

function ownLineage(newest: FoundCheckpoint | undefined): Lineage | undefined {
  return newest?.manifest ? { attempt: newest.id.attempt, parents: newest.manifest.lineage } : undefined;
}

/** The newest of the lowest; a loss that is null or no number is no candidate. */
function lowestLoss(newestFirst: readonly FoundCheckpoint[]): FoundCheckpoint | undefined {
  let best: FoundCheckpoint | undefined;
  for (const checkpoint of newestFirst) {
    const loss = checkpoint.manifest?.loss ?? null;
    if (loss !== null && (best === undefined || loss < best.manifest!.loss!)) best = checkpoint;
  }
  return best;
}
