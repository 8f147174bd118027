/** The shard of a run by its mode, over the parameters of its store. */
import {
  Shard,
  AsyncShard,
  type AsyncUpdate,
  type CoordinatorPort,
  type ItemStore,
  type OwnedChunk,
  type Region,
  type ShardHost,
  type ShardMachine,
  type Slices,
} from '@paceline/exchange';
import type { PlacementJob } from '@paceline/control-plane';
import { LeafReduction, ReductionTree, replicaRows, validNode, type Schedule } from '@paceline/learning';
import { roundPlan, type RunSpec } from '@paceline/spec';
import type { ParameterStore } from './parameter-store.js';

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

/** What one connection may have under way. */
export interface Windows {
  /** Parameters in its queue. */
  readonly parameterBytes?: number | undefined;
}

/** The server that a shard is made for: HostedRun. */
export interface ShardServer {
  readonly host: ShardHost;
  readonly coordinator: CoordinatorPort;
  /** How work on all chunks shares the event loop of the server. */
  readonly slices: Slices;
  readonly parameterWindowBytes?: number | undefined;
}

export function createShard(job: PlacementJob, store: ParameterStore, schedule: Schedule, server: ShardServer): ShardMachine {
  const { spec, index, attempt, restore } = job;
  const { replicas, strategy } = spec;
  const common = { index, attempt, chunks: store.chunks, initial: store.initial, firstRound: restore?.round ?? 0, ...server };
  if (strategy.mode !== 'sync') {
    const updates = new ItemUpdates(store, examplesOf(schedule, replicas), strategy);
    const plan = { replicas, totalRounds: schedule.totalRounds, replicaExamples: updates.examples };
    return new AsyncShard({ ...common, plan, keepsFetched: strategy.delayCompensation > 0, store: updates });
  }
  const hasBackups = strategy.backupReplicas > 0;
  return new Shard({
    ...common,
    replicas,
    createReduction: (ops) => (hasBackups ? new LeafReduction(replicas, ops) : new ReductionTree(replicas, ops)),
    isValidNode: (lo, hi) => (hasBackups ? hi === lo + 1 && hi <= replicas : validNode(replicas, lo, hi)),
    store,
    ...(roundPlan(spec) === 'two-phase' ? { twoPhase: { hasBackups } } : {}),
  });
}

/** Updates of work items, with the examples of each and what the strategy adds to it. */
class ItemUpdates implements ItemStore {
  constructor(
    private readonly store: ParameterStore,
    readonly examples: (round: number, replica: number) => number,
    private readonly strategy: RunSpec['strategy'],
  ) {}

  update(chunk: OwnedChunk, update: AsyncUpdate, paramIn: Region, paramOut: Region, gradient: Region): void {
    const { round, replica } = update.item;
    const { delayCompensation, stalenessScaledRate } = this.strategy;
    const settings = { delayCompensation, stalenessScaledRate };
    this.store.updateFromItem(chunk, update, paramIn, paramOut, gradient, this.examples(round, replica), settings);
  }
}
