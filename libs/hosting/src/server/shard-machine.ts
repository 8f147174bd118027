/** The shard of a run by its mode, over the parameters of its store. */
import { Shard, AsyncShard, type ShardMachine, type Slices } from '@paceline/exchange';
import type { PlacementJob } from '@paceline/control-plane';
import { LeafReduction, ReductionTree, replicaRows, validNode, type Schedule } from '@paceline/learning';
import type { Message } from '@paceline/protocol';
import { roundPlan, type RunSpec } from '@paceline/spec';
import type { ParameterStore } from './parameter-store.js';
import type { Snapshot } from './snapshot.js';

/** What one connection may have under way. */
export interface Windows {
  /** Parameters in its queue. */
  readonly parameterBytes?: number | undefined;
}

export interface ShardHooks {
  /** A checkpoint takes what the shard has now. */
  onCheckpoint(snapshot: Snapshot): void;
  tellCoordinator(message: Message): void;
  /** What validations have decided with a COMMIT. */
  onCourse(course: string): void;
  onDropped(): void;
  readonly windows?: Windows | undefined;
  /** How work on all chunks shares the event loop of the server. */
  readonly slices: Slices;
}

/** Gradients of a chunk, and copies of it, that may be kept at once: what the arenas are planned for. */
export function copiesInFlight({ replicas, strategy, earlyStopping }: RunSpec): number {
  const { mode, backupReplicas, delayCompensation, standby } = strategy;
  // What a worker has fetched may wait for the standby, as it may be kept for the delay compensation.
  if (mode !== 'sync') return replicas * (delayCompensation > 0 || standby > 0 ? 2 : 1) + 2;
  // The tree of a chunk keeps at most half of the leaves apart, when no worker holds neighbours.
  const gradients = backupReplicas > 0 ? replicas : Math.min(Math.max(3, Math.ceil(replicas / 2) + 1), 8);
  return gradients + (earlyStopping?.restoreBest ? 1 : 0);
}

/** Rows of (round, replica) by the schedule. */
export function examplesOf(schedule: Schedule, replicas: number): (round: number, replica: number) => number {
  return (round, replica) => {
    const { from, to } = replicaRows(schedule.round(round).count, replicas, replica);
    return to - from;
  };
}

export function createShard(job: PlacementJob, store: ParameterStore, schedule: Schedule, hooks: ShardHooks): ShardMachine {
  return job.spec.strategy.mode === 'sync' ? synchronous(job, store, hooks) : asynchronous(job, store, schedule, hooks);
}

function synchronous({ spec, index, attempt, restore }: PlacementJob, store: ParameterStore, hooks: ShardHooks): ShardMachine {
  const { replicas } = spec;
  const hasBackups = spec.strategy.backupReplicas > 0;
  return new Shard({
    index,
    attempt,
    replicas,
    chunks: store.chunks,
    initial: store.initial,
    firstRound: restore?.round ?? 0,
    createReduction: (ops) => (hasBackups ? new LeafReduction(replicas, ops) : new ReductionTree(replicas, ops)),
    isValidNode: (lo, hi) => (hasBackups ? hi === lo + 1 && hi <= replicas : validNode(replicas, lo, hi)),
    update: (...args) => store.update(...args),
    leaveOut: (...args) => store.leaveOut(...args),
    ...(roundPlan(spec) === 'two-phase' ? { twoPhase: { hasBackups, measure: (...args) => store.measure(...args) } } : {}),
    onCheckpoint: (generation, regions) => hooks.onCheckpoint(store.takeSnapshot(generation, regions)),
    onCourse: (course) => hooks.onCourse(course),
    slices: hooks.slices,
    parameterWindowBytes: hooks.windows?.parameterBytes,
    tellCoordinator: (message) => hooks.tellCoordinator(message),
    onDropped: () => hooks.onDropped(),
  });
}

function asynchronous(job: PlacementJob, store: ParameterStore, schedule: Schedule, hooks: ShardHooks): ShardMachine {
  const { spec, index, attempt, restore } = job;
  const { delayCompensation, stalenessScaledRate } = spec.strategy;
  const replicaExamples = examplesOf(schedule, spec.replicas);
  return new AsyncShard({
    index,
    attempt,
    chunks: store.chunks,
    initial: store.initial,
    firstRound: restore?.round ?? 0,
    plan: { replicas: spec.replicas, totalRounds: schedule.totalRounds, replicaExamples },
    keepsFetched: delayCompensation > 0,
    update: (chunk, update, paramIn, paramOut, gradient) => {
      const { round, replica } = update.item;
      const examples = replicaExamples(round, replica);
      store.updateFromItem(chunk, update, paramIn, paramOut, gradient, examples, { delayCompensation, stalenessScaledRate });
    },
    onCheckpoint: (generation, regions) => hooks.onCheckpoint(store.takeSnapshot(generation, regions)),
    slices: hooks.slices,
    tellCoordinator: (message) => hooks.tellCoordinator(message),
    onDropped: () => hooks.onDropped(),
  });
}
