/**
 * One round at a shard, from gradient nodes to published parameters: the phases of round-phases.ts, in their order. Shard tells it what has come; it
 * tells the coordinator how far the round is.
 */
import type { FrameHeader, MessageOf } from '@paceline/protocol';
import type { OwnedChunk } from '../transfer/chunks.js';
import { copyOf, type ChunkScalars, type RoundDecision } from './agreement.js';
import { Generations } from './generations.js';
import type { Advance } from './held-parameters.js';
import { acquireRegion, regionSum, type Region } from '../attempt/regions.js';
import { ROUND_PLANS, type Phase } from './round-phases.js';
import type { ChunkReduction, ShardOptions, ShardState, SHARD_ROWS } from './shard-table.js';
import { ShardWork } from '../attempt/shard-work.js';
import type { StateTable } from '../attempt/state-table.js';
import { spans } from '../trace/spans.js';

export interface RoundChunk extends OwnedChunk {
  /** Among the chunks of the shard. */
  readonly place: number;
  tree: ChunkReduction;
  /** Reduced, and not applied yet. */
  sum: Region | undefined;
}

export class ShardRound {
  readonly generations: Generations;
  readonly chunks: readonly RoundChunk[];
  /** Plan two-phase: what was decided about the present round. */
  decision: RoundDecision | undefined;
  private readonly plan: readonly Phase[];
  private readonly byIndex: ReadonlyMap<number, RoundChunk>;
  /** With backup replicas: chunks that have come, by replica. */
  private readonly leaves: Uint32Array;
  /** Chunks at lower places are done. */
  private lowest = 0;
  /** A chunk whose sum has NaN or infinity. */
  private nonFinite: number | undefined;
  /** The round is being measured, or applied as decided. */
  private readonly work: ShardWork;

  constructor(
    private readonly options: ShardOptions,
    private readonly table: StateTable<ShardState, typeof SHARD_ROWS>,
    private readonly shard: {
      publish(chunk: RoundChunk): void;
      reduced(chunk: RoundChunk, sum: Region, willChange: boolean): void;
    },
  ) {
    this.plan = ROUND_PLANS[options.twoPhase ? 'two-phase' : 'streaming'];
    const { encoder, chunks } = options;
    const encode =
      encoder?.encode && ((generation: number, place: number, values: Region) => encoder.encode!(generation, chunks[place]!, values));
    const advance: Advance | undefined =
      encoder?.advance && ((generation, place, values, held) => encoder.advance!(generation, chunks[place]!, values, held));
    this.generations = new Generations(options.initial, options.firstRound ?? 0, encode, advance);
    this.work = new ShardWork(options.slices);
    this.leaves = new Uint32Array(options.replicas);
    this.chunks = options.chunks.map((chunk, place) => ({ ...chunk, place, tree: this.newTree(), sum: undefined }));
    this.byIndex = new Map(this.chunks.map((chunk) => [chunk.index, chunk]));
  }

  get number(): number {
    return this.generations.number;
  }

  chunkAt(index: number): RoundChunk | undefined {
    return this.byIndex.get(index);
  }

  /** What comes for the chunk in this round is not needed any more. */
  isDone({ place, sum }: RoundChunk): boolean {
    return this.generations.next(place) !== undefined || sum !== undefined || this.table.state === 'DECIDING';
  }

  /** The lowest place whose chunk is not done; that of none where all are. */
  get base(): number {
    while (this.lowest < this.chunks.length && this.isDone(this.chunks[this.lowest]!)) this.lowest++;
    return this.lowest;
  }

  /** The node of a frame adds nothing to what has come. */
  holds(chunk: RoundChunk, { nodeLo: lo, nodeHi: hi }: Pick<FrameHeader, 'nodeLo' | 'nodeHi'>): boolean {
    return this.isDone(chunk) || chunk.tree.covers({ lo, hi });
  }

  /** Replicas whose gradient some chunk still lacks, for messages about what a round waits for. */
  missingReplicas(): number[] {
    const missing = new Set(this.chunks.filter((chunk) => !this.isDone(chunk)).flatMap(({ tree }) => tree.missingLeaves()));
    return [...missing].sort((a, b) => a - b);
  }

  /** The round is measured, or applied as decided, before anything else happens. */
  finishWork(): void {
    this.work.finish();
  }

  /** COMMIT(k): generation k goes, and round k+1 can be laid out. */
  commit(): void {
    if (this.chunks.length === 0 && this.table.state === 'DECIDING') this.table.take('decision', 'REDUCED');
    this.table.take('commit', 'GATHERING');
    this.generations.takeOver();
    this.options.tables?.commit();
    this.decision = undefined;
    this.nonFinite = undefined;
    for (const chunk of this.chunks) chunk.tree = this.newTree();
    this.leaves.fill(0);
    this.lowest = 0;
  }

  /** Whether the present round exchanges the chunk. */
  exchanges({ index }: OwnedChunk): boolean {
    return this.options.isExchanged?.(this.number, index) !== false;
  }

  /** The trees are there. A shard without chunks, or that exchanges none in this round, has nothing to wait for. */
  layout(): void {
    const { twoPhase } = this.options;
    for (const chunk of this.chunks)
      if (!this.exchanges(chunk)) this.generations.setNext(chunk.place, this.generations.present(chunk.place).retain());
    if (this.chunks.length > 0 && !this.generations.isWhole) return;
    if (!twoPhase) this.reportReduced('nothingOwned');
    else if (!twoPhase.hasBackups) this.reportScalars('nothingOwned'); // with backup replicas it answers to INCLUDE
  }

  /** A gradient node of a member has come. Returns why it is dropped, if it is. */
  reduce({ chunk: index, nodeLo: lo, nodeHi: hi }: FrameHeader, region: Region): string | undefined {
    const chunk = this.byIndex.get(index)!;
    if (this.isDone(chunk) || this.table.state === 'REDUCED') {
      region.release();
      return 'applied';
    }
    const sinceMs = spans.now();
    const outcome = chunk.tree.insert({ lo, hi }, region);
    spans.add('add', sinceMs);
    if (outcome === 'dropped') return 'duplicate';
    this.table.take('chunkKept');
    if (this.options.twoPhase?.hasBackups) {
      this.leaves[lo]!++;
      this.tellComplete(lo);
    } else if (outcome === 'complete') {
      chunk.sum = chunk.tree.takeRoot!().decoded();
      this.pass('reduce', chunk);
    }
    return undefined;
  }

  /** With backup replicas: which of them count. */
  include({ round, replicas }: MessageOf<'include'>): void {
    if (round !== this.number || this.table.state !== 'GATHERING') return this.table.take('decisionRepeated');
    const included = new Set(replicas);
    for (const chunk of this.chunks) chunk.sum = chunk.tree.takeSum!(included).decoded();
    this.reportScalars('include');
  }

  decide({ round, ...decision }: MessageOf<'decision'>): void {
    if (round !== this.number || this.table.state !== 'DECIDING') return this.table.take('decisionRepeated');
    this.decision = copyOf(decision);
    this.work.begin(this.applyDecided(), () => this.reportReduced('decision'));
  }

  /** The coordinator has to hear again what it was told of this round. */
  tellAgain(): void {
    if (this.table.state === 'DECIDING') return this.reportScalars('toldAgain');
    this.table.take('toldAgain');
    if (this.nonFinite !== undefined) this.options.coordinator.tell({ type: 'non-finite', round: this.number, chunk: this.nonFinite });
    if (this.table.state === 'GATHERING' && this.options.twoPhase?.hasBackups)
      this.leaves.forEach((chunks, replica) => chunks > 0 && this.tellComplete(replica));
  }

  /** Makes the chunk of k+1: from its sum, scaled as decided, or from k where the round is left out. */
  make(chunk: RoundChunk, sum: Region | undefined): void {
    const { options, generations, decision, number } = this;
    const present = generations.present(chunk.place);
    let next: Region;
    if (sum && chunk.rows) {
      const sinceMs = spans.now();
      options.tables!.apply(
        options.tables!.groups.find(({ index }) => index === chunk.index)!,
        number,
        sum,
      );
      sum.release();
      next = present.retain();
      spans.add('update', sinceMs);
    } else if (sum) {
      const sinceMs = spans.now();
      // A new region costs a write to memory that is not in the cache, as the sum is.
      const becomesNext = !sum.isShared && options.store.canReplaceGradient?.(chunk) === true;
      next = becomesNext ? sum : acquireRegion(chunk.arena, chunk.length);
      options.store.update(chunk, number, present, next, sum, decision);
      if (becomesNext) sum.overwritten();
      else sum.release();
      spans.add('update', sinceMs);
    } else next = options.store.leaveOut?.(chunk, number, present) ?? present.retain();
    generations.setNext(chunk.place, next);
  }

  end(): void {
    this.work.cancel();
    for (const { tree, sum } of this.chunks) {
      tree.dispose();
      sum?.release();
    }
    this.generations.letGo();
  }

  private newTree(): ChunkReduction {
    return this.options.createReduction(regionSum);
  }

  /** A chunk has left a phase: it enters the next one of the plan. */
  private pass(phase: 'reduce' | 'agree' | 'apply', chunk: RoundChunk): void {
    switch (this.plan[this.plan.indexOf(phase) + 1]) {
      case 'agree':
        return this.agree();
      case 'apply':
        return this.apply(chunk);
      default:
        return this.publish(chunk);
    }
  }

  private agree(): void {
    // Those that a standby had applied before it was promoted are done, as decided: the coordinator tells the same decision again.
    if (this.base === this.chunks.length) this.reportScalars('chunkGathered');
    else this.table.take('chunkGathered');
  }

  private *applyDecided(): Generator<void> {
    for (const chunk of this.chunks) {
      if (chunk.place > 0) yield;
      if (chunk.sum) this.pass('agree', chunk);
    }
  }

  private apply(chunk: RoundChunk): void {
    const { options, decision, number } = this;
    const sum = chunk.sum!;
    chunk.sum = undefined;
    if (!decision && !(options.store.staysFinite?.(chunk, number, sum) ?? sum.isFinite)) {
      this.table.take('nonFinite');
      sum.release();
      this.nonFinite = chunk.index;
      return options.coordinator.tell({ type: 'non-finite', round: number, chunk: chunk.index });
    }
    if (decision?.skip) {
      sum.release();
      this.make(chunk, undefined);
    } else {
      this.shard.reduced(chunk, sum, decision !== undefined);
      this.make(chunk, sum);
    }
    this.pass('apply', chunk);
  }

  private publish(chunk: RoundChunk): void {
    const { generations } = this;
    const sinceMs = spans.now();
    this.shard.publish(chunk);
    spans.add('publish', sinceMs);
    if (this.decision) return; // all chunks together
    if (generations.isWhole) this.reportReduced('chunkComplete');
    else this.table.take('chunkComplete');
  }

  private tellComplete(replica: number): void {
    if (this.leaves[replica] !== this.chunks.length) return;
    this.table.take('replicaComplete');
    this.options.coordinator.tell({ type: 'replica-complete', round: this.number, replica });
  }

  private reportScalars(row: 'chunkGathered' | 'include' | 'nothingOwned' | 'toldAgain'): void {
    this.table.take(row, 'DECIDING');
    const chunks: ChunkScalars[] = [];
    this.work.begin(this.measureChunks(chunks), () => this.options.coordinator.tell({ type: 'scalars', round: this.number, chunks }));
  }

  private *measureChunks(measured: ChunkScalars[]): Generator<void> {
    const { store } = this.options;
    for (const chunk of this.chunks) {
      if (chunk.place > 0) yield;
      if (!chunk.sum) continue;
      const scalars = store.measure!(chunk, chunk.sum, this.generations.present(chunk.place), this.number);
      measured.push(Object.assign({ chunk: chunk.index }, scalars));
    }
  }

  private reportReduced(row: 'chunkComplete' | 'decision' | 'nothingOwned'): void {
    this.table.take(row, 'REDUCED');
    this.options.coordinator.tell({ type: 'reduced', round: this.number });
  }
}
