/**
 * How many workers hold the shards of a run, and how their number changes: a person asks (`scaleRun`), or the run goes on with fewer or more by itself,
 * where its spec has `minWorkers` or `maxWorkers` (lifecycle/worker-numbers.ts says when). The parameters are cut into as many shards as there are
 * workers. So another number needs a checkpoint and another attempt:
 *
 * | the run | what follows |
 * |---|---|
 * | trains | as soon as so many workers are free for it, its coordinator is asked for a checkpoint, the attempt ends, and the next one begins at once |
 * | waits for workers | the attempt ends at once, where it is to have fewer or so many are free |
 * | evaluates its result | it finishes; an extension has the other number |
 * | has lost its attempt | the next attempt has it; where more are wanted than are free, it keeps the number before, and the wish |
 * | is paused | it has it when it is resumed |
 *
 * `workersWanted` of the run is the number that it is to have; null where nobody wants another. The spec changes with the attempt. A person who asks for a
 * number takes `maxWorkers` out of it at once: the run does not take back what was taken from it. So where a run with `maxWorkers` wants another number,
 * it is its own wish.
 */
import { isHeldAlone, LIMITS, parseStoredSpec, shardCount, shardHosts, type RunSpec, type SpecIssue } from '@paceline/spec';
import type { StoredRun } from '../dispatch/rows.js';
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
  const fewest =
    'minWorkers' in present && present.minWorkers !== undefined ? { minWorkers: Math.min(present.minWorkers, workersWanted) } : {};
  return { ...(spec as RunSpec), strategy: { ...strategy, ...fewest, workers: workersWanted } as typeof present };
}

export const takesMoreByItself = (strategy: RunSpec['strategy']): boolean => 'maxWorkers' in strategy && strategy.maxWorkers !== undefined;

/** The number is a person's from then on. */
function withoutMost({ strategy, ...spec }: RunSpec): RunSpec {
  const { maxWorkers: _, ...rest } = strategy as typeof strategy & { readonly maxWorkers?: unknown };
  return { ...spec, strategy: rest as typeof strategy };
}

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
  const takesMore = takesMoreByItself(strategy);
  const endsThat = takesMore && why === undefined;
  if ((workersWanted ?? present) === workers && !endsThat) return { does: 'nothing' };
  if (why !== undefined && !takesMore && (workersWanted !== null || workers > present)) return { does: 'nothing' }; // a person was quicker
  const next = withOtherWorkers({ spec: endsThat ? withoutMost(spec as RunSpec) : spec, workersWanted: workers });
  const parsed = next && parseStoredSpec(next);
  if (parsed && !parsed.ok) return invalid(parsed.issues.map(({ path, message }) => `${path} ${message}`).join('; '));
  const number = `${workers} ${workers === 1 ? 'worker' : 'workers'}`;
  return {
    does: 'set',
    run: { workersWanted: workers === present ? null : workers, ...(endsThat ? { spec: withoutMost(spec as RunSpec) } : {}) },
    event: {
      type: 'scale.wanted',
      message: `${number}${workers === present ? ', as before' : ` instead of ${present}`}${why === undefined ? '' : `: ${why}`}${endsThat ? '; from now on the run takes no more by itself' : ''}`,
      data: { workers },
    },
  };
}

const invalid = (message: string): ScaleStep => ({ does: 'invalid', issue: { path: 'workers', message } });
