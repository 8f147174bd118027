/** The shard of a run by its mode, over the parameters of its store. */
import {
  acquireRegion,
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
  type StoredResiduals,
} from '@paceline/exchange';
import type { PlacementJob } from '@paceline/control-plane';
import {
  executedExamples,
  exchangeOf,
  LeafReduction,
  ReductionTree,
  replicaRows,
  rowGroups,
  validNode,
  type Layout,
  type Schedule,
} from '@paceline/learning';
import {
  backupReplicasOf,
  encodedParameterBits,
  gradientWindowBytes,
  isEncoded,
  picksCodec,
  restsWithoutGradient,
  roundPlan,
  waitingCopies,
  type RunSpec,
} from '@paceline/spec';
import { storedResidualsOf } from '../residuals.js';
import { gradientDecoderOf, parameterEncoderOf } from '../run-codecs.js';
import type { ParameterStore, StorePlan } from './parameter-store.js';
import { TableStore } from './table-store.js';

/** Bytes that the gradients of all replicas take of a chunk of the layout while they wait. The chunks of the state travel as float32. */
const waitingBytesOf =
  (spec: RunSpec, { chunks }: Layout) =>
  (index: number): number => {
    const { length, section } = chunks[index]!;
    return 4 * length * (section === 'state' ? spec.replicas : waitingCopies(spec));
  };

/**
 * Chunks that a worker may send beyond the lowest one that is not complete: of each, the gradient of every replica may wait. With backup replicas it
 * is open until the last chunk has come who is included, and all are kept; in modes async and ssp each gradient is applied when it is whole.
 * @param waiting bytes that the gradients of each chunk of the shard take while they wait
 */
export function gradientWindowChunks({ replicas, strategy }: RunSpec, waiting: readonly number[]): number {
  if (strategy.mode !== 'sync' || backupReplicasOf(strategy) > 0 || waiting.length === 0) return Math.max(1, waiting.length);
  return Math.min(waiting.length, Math.max(1, Math.floor(gradientWindowBytes(replicas) / Math.max(...waiting))));
}

/** What the arenas are planned for: every replica's gradient of the chunks in the window. Undefined where `copiesInFlight` has all of them. */
export function windowOf(spec: RunSpec, layout: Layout, owned: readonly number[]): StorePlan['window'] {
  const { strategy } = spec;
  if (strategy.mode !== 'sync' || backupReplicasOf(strategy) > 0) return undefined;
  const bytesOf = waitingBytesOf(spec, layout);
  return { chunks: gradientWindowChunks(spec, owned.map(bytesOf)), bytesOf };
}

const FLOAT_BITS = 32;

/** Gradients of a chunk, and copies of it, that may be kept at once: what the arenas are planned for. */
export function copiesInFlight({ replicas, strategy, earlyStopping, codec }: RunSpec): number {
  // What a worker has fetched may wait for the standby, as it may be kept for the delay compensation.
  if (strategy.mode !== 'sync') return replicas * (strategy.delayCompensation > 0 || strategy.standby > 0 ? 2 : 1) + 2;
  // Without backup replicas gradients have the memory of the window; a worker that is behind may still read an older generation. Of encoded parameters there are two generations.
  return (
    (backupReplicasOf(strategy) > 0 ? replicas : 1) +
    (earlyStopping?.restoreBest ? 1 : 0) +
    (2 * encodedParameterBits({ codec })) / FLOAT_BITS
  );
}

/** Rows of (round, replica) by the schedule. */
export function examplesOf(
  schedule: Schedule,
  spec: Pick<RunSpec, 'replicas' | 'globalBatch' | 'strategy'>,
): (round: number, replica: number) => number {
  if (spec.strategy.kind === 'tpu') return (round, replica) => executedExamples(schedule.round(round).count, replica, spec);
  return (round, replica) => {
    const { from, to } = replicaRows(schedule.round(round).count, spec.replicas, replica);
    return to - from;
  };
}

/** What one connection may have under way. */
export interface Windows {
  /** Parameters in its queue. */
  readonly parameterBytes?: number | undefined;
  /** Gradients that a worker sends beyond the lowest chunk that is not complete, in chunks. */
  readonly gradientChunks?: number | undefined;
}

/** The server that a shard is made for: HostedRun. */
export interface ShardServer {
  readonly host: ShardHost;
  readonly coordinator: CoordinatorPort;
  /** How work on all chunks shares the event loop of the server. */
  readonly slices: Slices;
  readonly windows?: Windows | undefined;
  /** The residuals in the checkpoint that the attempt begins with, once it is loaded. */
  readonly storedResiduals: () => StoredResiduals | undefined;
}

export function createShard(
  job: PlacementJob,
  layout: Layout,
  store: ParameterStore,
  schedule: Schedule,
  server: ShardServer,
): ShardMachine {
  const { spec, index, attempt, restore } = job;
  const { replicas, strategy } = spec;
  const { windows, storedResiduals: stored, ...ports } = server;
  const start = { chunks: store.chunks, initial: store.initial, firstRound: restore?.round ?? 0 };
  const common = { index, attempt, ...start, decoder: gradientDecoderOf(spec, layout), ...ports };
  if (strategy.mode !== 'sync') {
    const updates = new ItemUpdates(store, examplesOf(schedule, spec), strategy);
    const plan = { replicas, totalRounds: schedule.totalRounds, replicaExamples: updates.examples };
    return new AsyncShard({ ...common, plan, keepsFetched: strategy.delayCompensation > 0, store: updates });
  }
  const hasBackups = backupReplicasOf(strategy) > 0;
  const isNode = (lo: number, hi: number): boolean =>
    hasBackups || (isEncoded(spec) && !picksCodec(spec)) ? hi === lo + 1 && hi <= replicas : validNode(replicas, lo, hi);
  const tables = tablesOf(job, layout, store);
  const parts = tables ? withGroups(store, layout, tables) : start;
  const waitingBytes = waitingBytesOf(spec, layout);
  const waiting = parts.chunks.map((chunk) => ('rows' in chunk && chunk.rows ? 0 : waitingBytes(chunk.index)));
  const residuals = storedResidualsOf(spec, layout, job.servers);
  return new Shard({
    ...common,
    residuals: residuals && { layout: residuals, stored },
    ...parts,
    tables,
    replicas,
    encoder: parameterEncoderOf(spec, layout, schedule.totalRounds, job.codec),
    parameterWindowBytes: windows?.parameterBytes,
    gradientWindowChunks: hasBackups ? undefined : (windows?.gradientChunks ?? gradientWindowChunks(spec, waiting)),
    isExchanged: exchangeOf(spec, layout),
    createReduction: (ops) => (hasBackups ? new LeafReduction(replicas, ops) : new ReductionTree(replicas, ops)),
    isValidNode: isNode,
    store,
    ...(roundPlan(spec) === 'two-phase' ? { twoPhase: { hasBackups } } : {}),
  });
}

function tablesOf({ spec, servers, index }: PlacementJob, layout: Layout, store: ParameterStore): TableStore | undefined {
  const groups = rowGroups(layout, servers).filter(({ server }) => server === index);
  if (groups.length === 0) return undefined;
  const byRows = spec.embeddings?.slots === 'lazy' || restsWithoutGradient(spec.optimizer);
  return new TableStore(store, layout, groups, byRows);
}

/** Chunks that are exchanged whole, then the groups, whose generations the tables have. */
function withGroups(
  { chunks, initial }: ParameterStore,
  layout: Layout,
  { groups }: TableStore,
): Pick<ParameterStore, 'chunks' | 'initial'> {
  const isWhole = (i: number): boolean => layout.chunks[chunks[i]!.index]!.table === undefined;
  const nothing = groups.map(({ arena }) => acquireRegion(arena, 1));
  return { chunks: [...chunks.filter((_, i) => isWhole(i)), ...groups], initial: [...initial.filter((_, i) => isWhole(i)), ...nothing] };
}

type StrategyOfItems = Extract<RunSpec['strategy'], { readonly delayCompensation: number }>;

/** Updates of work items, with the examples of each and what the strategy adds to it. */
class ItemUpdates implements ItemStore {
  constructor(
    private readonly store: ParameterStore,
    readonly examples: (round: number, replica: number) => number,
    private readonly strategy: Pick<StrategyOfItems, 'delayCompensation' | 'stalenessScaledRate'>,
  ) {}

  update(chunk: OwnedChunk, update: AsyncUpdate, paramIn: Region, paramOut: Region, gradient: Region): void {
    const { round, replica } = update.item;
    const { delayCompensation, stalenessScaledRate } = this.strategy;
    const settings = { delayCompensation, stalenessScaledRate };
    this.store.updateFromItem(chunk, update, paramIn, paramOut, gradient, this.examples(round, replica), settings);
  }
}
