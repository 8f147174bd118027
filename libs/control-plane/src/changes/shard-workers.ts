/**
 * How many workers hold the shards of a run, and how their number changes: a person asks (`scaleRun`), or the run does it by itself within the bounds of
 * its spec (`minWorkers`, `maxWorkers`; lifecycle/worker-numbers.ts says when). The parameters are cut into as many shards as there are workers, so another
 * number needs a checkpoint and another attempt:
 *
 * | the run | what follows |
 * |---|---|
 * | trains | as soon as so many workers are connected, its coordinator is asked for a checkpoint, the attempt ends, and the next one begins at once |
 * | waits for workers | the attempt ends at once, where it is to have fewer or so many are connected |
 * | evaluates its result | it finishes; an extension has the other number |
 * | has no live attempt | the next attempt has it |
 *
 * `workersWanted` of the run is the number that the next attempt is to have; null where nobody wants another.
 */
import { isHeldAlone, LIMITS, parseRunSpec, shardCount, shardHosts, type RunSpec, type SpecIssue } from '@paceline/spec';
import { elasticOf, workersNeeded, type StoredRun } from '../dispatch/rows.js';
import type { RunChange, StoredEvent } from './moves.js';

type AskedRow = Pick<StoredRun, 'spec' | 'workersWanted'>;

type ScaleStep =
  | { readonly does: 'refuse'; readonly why: string }
  | { readonly does: 'invalid'; readonly issue: SpecIssue }
  | { readonly does: 'nothing' }
  | { readonly does: 'set'; readonly run: RunChange; readonly event: Omit<StoredEvent, 'attempt'> };

/** The spec of the next attempt where other workers, more or fewer, are to hold its shards; undefined where the spec stays. */
export function withOtherWorkers({ spec, workersWanted }: AskedRow): RunSpec | undefined {
  const present = (spec as RunSpec).strategy;
  if (workersWanted === null || shardHosts(present) !== 'workers' || shardCount(present) === workersWanted) return undefined;
  // Its first round waits for all of them anyway.
  const { startWorkers: _, ...strategy } = present as typeof present & { readonly startWorkers?: unknown };
  // By itself it may come back to as many as it began with.
  return { ...(spec as RunSpec), strategy: { ...strategy, ...elasticOf(spec as RunSpec), workers: workersWanted } as typeof present };
}

/** Most workers that a run may come to need. */
export const workersAtMost = (spec: Pick<RunSpec, 'strategy'>): number => Math.max(workersNeeded(spec), elasticOf(spec)?.maxWorkers ?? 0);

/** What is stored where another number is asked for. @param why where the run does it by itself */
export function scaleShardWorkers(
  { spec, workersWanted }: AskedRow,
  { workers, why }: { readonly workers: number; readonly why?: string },
): ScaleStep {
  const { replicas, strategy } = spec as RunSpec;
  if (isHeldAlone(strategy))
    return { does: 'refuse', why: `The run is on one worker, which holds its parameters (${strategy.kind}), so it takes no other.` };
  const [least, most] = [1 + strategy.standby, Math.min(replicas, LIMITS.servers)];
  if (!Number.isInteger(workers) || workers < least || workers > most)
    return invalid(
      `must be from ${least} to ${most}: each holds a shard and has a replica at least${least > 1 ? ', and a standby is on another worker than its shard' : ''}; to let all workers go, pause it`,
    );
  const present = shardCount(strategy);
  if ((workersWanted ?? present) === workers) return { does: 'nothing' };
  const bounds = why === undefined ? boundsFor(spec as RunSpec, workers) : {};
  const next = withOtherWorkers({ spec: bounds.spec ?? spec, workersWanted: workers });
  const parsed = next && parseRunSpec(next);
  if (parsed && !parsed.ok) return invalid(parsed.issues.map(({ path, message }) => `${path} ${message}`).join('; '));
  const number = `${workers} ${workers === 1 ? 'worker' : 'workers'}`;
  return {
    does: 'set',
    run: { workersWanted: workers === present ? null : workers, ...bounds },
    event: {
      type: 'scale.wanted',
      message: workers === present ? `${number}, as before` : `${number} instead of ${present}${why === undefined ? '' : `: ${why}`}`,
      data: { workers },
    },
  };
}

const invalid = (message: string): ScaleStep => ({ does: 'invalid', issue: { path: 'workers', message } });

/** After what a person has asked for, the run takes no more by itself, and not fewer than it may. */
function boundsFor(spec: RunSpec, workers: number): RunChange {
  const { strategy } = spec;
  const elastic = elasticOf(spec);
  if (!elastic) return {};
  const minWorkers = Math.min(elastic.minWorkers, workers);
  return { spec: { ...spec, strategy: { ...strategy, minWorkers, maxWorkers: workers } as typeof strategy } };
}
