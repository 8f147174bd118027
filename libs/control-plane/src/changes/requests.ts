/** What a person's request changes in the rows of a run: the table of requests.ts, and whether what is asked for is possible. */
import { LIMITS, shardCount, shardHosts, type RunSpec, type SpecIssue } from '@paceline/spec';
import { answerRequest, type RunRequest } from '../lifecycle/requests.js';
import { resultRounds } from '../dispatch/kept-result.js';
import { serverProcesses, type StoredRun } from '../dispatch/rows.js';
import type { RunChange, StatusMove, StoredEvent } from './moves.js';
import { scaleShardWorkers } from './shard-workers.js';

export type AskedOfRun =
  | { readonly request: 'pause' | 'cancel' }
  /** @param servers another number of parameter servers from here on */
  | { readonly request: 'resume'; readonly servers?: number | null | undefined }
  /** @param why where the run does it by itself */
  | { readonly request: 'scale'; readonly workers: number; readonly why?: string }
  | { readonly request: 'extend'; readonly rounds?: number | null | undefined; readonly epochs?: number | null | undefined };

/** The run's row, under its lock. */
export interface AskedRun extends Pick<StoredRun, 'status' | 'cancelRequestedAt' | 'workersWanted'> {
  readonly spec: unknown;
  readonly totalRounds: bigint | number;
  readonly roundsPerEpoch: bigint | number;
  /** The result, once the run has succeeded. */
  readonly result?: unknown;
}

export type RequestStep =
  | { readonly does: 'refuse'; readonly why: string }
  | { readonly does: 'invalid'; readonly issue: SpecIssue }
  | { readonly does: 'nothing' }
  | { readonly does: 'move'; readonly move: StatusMove }
  | { readonly does: 'set'; readonly run: RunChange; readonly event?: Omit<StoredEvent, 'attempt'> }
  /** @param needsCheckpoint `refusal` is the answer where there is none */
  | { readonly does: 'begin'; readonly reason: string; readonly run: RunChange; readonly needsCheckpoint: boolean };

export const NO_CHECKPOINT = 'The run has no checkpoint to go on from. Create it again with a longer length.';

/** For a run whose extension was cancelled after the checkpoints before its end were removed for newer ones. */
export const ONLY_BEYOND =
  'Every checkpoint that the run still has is beyond the new length. Extend it by more (`paceline checkpoints ID` lists them).';

const invalid = (path: string, message: string): RequestStep => ({ does: 'invalid', issue: { path, message } });

export function requested(run: AskedRun, asked: AskedOfRun, now: Date): RequestStep {
  const request: RunRequest = asked.request;
  const answer = answerRequest(request, run.status, run.cancelRequestedAt !== null);
  if (answer.does === 'refuse') return answer;
  switch (asked.request) {
    case 'pause':
      return answer.does === 'move' || answer.does === 'ask'
        ? { does: 'move', move: pause(answer.to ?? 'PAUSING', now) }
        : { does: 'nothing' };
    case 'cancel':
      if (answer.does === 'move') return { does: 'move', move: { to: answer.to, reason: 'cancelled', set: { nextAttemptAt: null } } };
      if (answer.does !== 'ask') return { does: 'nothing' };
      return { does: 'set', run: { cancelRequestedAt: now, statusReason: 'is being cancelled', isWaiting: false } };
    case 'resume':
      return resume(run.spec as RunSpec, asked.servers ?? undefined, answer.does === 'begin');
    case 'scale':
      return answer.does === 'ask' ? scale(run, asked) : { does: 'nothing' };
    case 'extend':
      return answer.does === 'begin' ? extend(run, asked) : { does: 'nothing' };
  }
}

const pause = (to: StatusMove['to'], now: Date): StatusMove =>
  to === 'PAUSED'
    ? { to, reason: 'paused; nothing was under way', cause: 'PAUSED', set: { nextAttemptAt: null } }
    : { to, reason: 'finishes its round, writes a checkpoint and pauses', cause: 'PAUSED', set: { pauseRequestedAt: now } };

function resume(spec: RunSpec, servers: number | undefined, begins: boolean): RequestStep {
  const { strategy } = spec;
  if (servers !== undefined && shardHosts(strategy) === 'workers')
    return invalid('servers', `the run has none: ${holdersInWords(strategy)} the parameters (${strategy.kind}); leave it out`);
  const isOther = servers !== undefined && servers !== shardCount(strategy);
  if (isOther && (!Number.isInteger(servers) || servers < 1 || servers > LIMITS.servers))
    return invalid('servers', `must be a whole number from 1 to ${LIMITS.servers}`);
  if (!begins && isOther) return { does: 'refuse', why: 'Pause the run first: a live attempt keeps its number of servers.' };
  if (!begins) return { does: 'nothing' };
  const other = isOther ? { ...spec, strategy: { ...strategy, servers } as typeof strategy } : undefined;
  return {
    does: 'begin',
    reason: 'resumed',
    run: other ? { spec: other, serverCount: serverProcesses(other) } : {},
    needsCheckpoint: false,
  };
}

const holdersInWords = (strategy: RunSpec['strategy']): string =>
  shardCount(strategy) === 1 ? 'its worker holds' : `its ${shardCount(strategy)} workers hold`;

function scale(run: AskedRun, asked: Extract<AskedOfRun, { request: 'scale' }>): RequestStep {
  const { replicas, strategy } = run.spec as RunSpec;
  const { workersWanted } = run;
  const { workers } = asked;
  if (shardHosts(strategy) === 'workers') return scaleShardWorkers(run, asked);
  if (!Number.isInteger(workers) || workers < 1 || workers > replicas)
    return invalid('workers', `must be from 1 to ${replicas}, the replicas of the run; to let all workers go, pause it`);
  const before = workersWanted ?? replicas;
  if (before === workers) return { does: 'nothing' };
  const message = `at most ${workers} of ${replicas} workers from now on, ${before} before`;
  return { does: 'set', run: { workersWanted: workers }, event: { type: 'scale.wanted', message, data: { workers } } };
}

/** Epochs stay epochs where the run is measured in them; otherwise all is rounds. */
function extend(
  run: AskedRun,
  { rounds, epochs }: { rounds?: number | null | undefined; epochs?: number | null | undefined },
): RequestStep {
  const more = rounds ?? epochs;
  const path = rounds === undefined || rounds === null ? 'epochs' : 'rounds';
  if (more === undefined || more === null || ((rounds ?? null) !== null) === ((epochs ?? null) !== null))
    return invalid('rounds', 'say how much more: either rounds or epochs');
  if (!Number.isInteger(more) || more < 1) return invalid(path, 'must be a whole number from 1');
  // A run that stopped early goes on from where it stopped.
  const done = (run.status === 'SUCCEEDED' ? resultRounds(run.result) : null) ?? Number(run.totalRounds);
  const totalRounds = done + (path === 'rounds' ? more : more * Number(run.roundsPerEpoch));
  if (totalRounds > LIMITS.rounds) return invalid(path, `${totalRounds} rounds in all; at most ${LIMITS.rounds} are supported`);
  const spec = run.spec as RunSpec;
  const { length } = spec;
  const isWhole = done === Number(run.totalRounds);
  const inEpochs = 'epochs' in length && path === 'epochs' && isWhole && length.epochs + more <= LIMITS.epochs;
  const longer: RunSpec = { ...spec, length: inEpochs ? { epochs: length.epochs + more } : { rounds: totalRounds } };
  return {
    does: 'begin',
    reason: `extended to ${totalRounds} rounds; begins`,
    run: { spec: longer, totalRounds },
    needsCheckpoint: run.status === 'SUCCEEDED',
  };
}
