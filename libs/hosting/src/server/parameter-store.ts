/**
 * The memory of one shard: parameters, optimizer slots and gradients in flight, in arenas of at most 1 GiB. Everything that
 * belongs to a chunk lies in one arena, because the kernels work inside one WebAssembly memory.
 *
 * Memory, in bytes, for a shard of P parameter and S state bytes with s slots: 2·(P + S) + s·P + gradients in flight
 * (one gradient of each replica for the chunks of the window, R·w chunks in every arena, with a codec less, see credit-window.ts of libs/exchange; with backup
 * replicas every leaf is kept, R·(P + S); in modes async and ssp up to two work items of each worker, and with the delay compensation the parameters
 * that they were computed from, as far as they have changed since) + with `earlyStopping.restoreBest` (P + S) of the best generation + while a
 * checkpoint is written (P + S) + s·P (snapshot.ts).
 */
import { acquireRegion, type ChunkScalars, type OwnedChunk, type Region, type RoundDecision, type AsyncUpdate } from '@paceline/exchange';
import { ArenaFullError, type Arena, type ArenaOptions } from '@paceline/kernels';
import {
  applyAsyncUpdate,
  averageShares,
  createInitialValues,
  createOptimizer,
  rateOf,
  type InitialValues,
  type Layout,
  type Optimizer,
  type OptimizerUpdate,
  type AsyncUpdateOptions,
} from '@paceline/learning';
import { AVERAGE_SLOT, isLayerwise, type AppliedOptimizer, type ModelDescription } from '@paceline/spec';
import { StorageError, type CheckpointReader } from '@paceline/storage';
import { AppliedRounds, isLeftOut } from './applied-rounds.js';
import { ChunkVariables } from './chunk-variables.js';
import { parametersName, slotName, Snapshot } from './snapshot.js';

const ARENA_MAX_BYTES = 1 << 30;
const ARENA_PLAN_BYTES = 640 << 20;
const PAGE_BYTES = 65_536;

/** What the store of one shard has to hold. */
export interface StorePlan {
  readonly layout: Layout;
  /** Chunk indices of this shard. */
  readonly owned: readonly number[];
  readonly model: ModelDescription;
  readonly optimizer: AppliedOptimizer;
  readonly seed: number;
  /** Each element of the mean gradient is cut to at most this, either way. */
  readonly clipValue?: number | undefined;
  /** Variables that keep the values that they begin with; see matchesPatterns. */
  readonly freeze?: readonly string[] | undefined;
  /** Gradients of a chunk that may be kept at once. */
  readonly gradientsInFlight: number;
  /** Beside them: of so many chunks in a row at once, wherever they lie, one gradient of each replica. `bytesOf` those of a chunk. */
  readonly window?: { readonly chunks: number; bytesOf(chunk: number): number } | undefined;
  /** Examples of a round: the sum-gradient is scaled once by its inverse. */
  examplesIn(round: number): number;
  /** The round after which the weights become their moving averages, where the run keeps them. */
  readonly lastRound?: number | undefined;
  /** What the learning rate of the optimizer is multiplied by in a round. */
  rateFactor?(round: number): number;
}

export interface ParameterStoreOptions extends StorePlan {
  createArena(options: ArenaOptions): Arena;
}

/** The update restricted to the elements [from, to). */
const partOf = (whole: OptimizerUpdate, from: number, to: number): OptimizerUpdate =>
  Object.assign({}, whole, {
    paramIn: whole.paramIn + from * 4,
    paramOut: whole.paramOut + from * 4,
    grad: whole.grad + from * 4,
    slots: whole.slots.map((pointer) => pointer + from * 4),
    count: to - from,
  });

type VariableSums = [variable: number, sum: number][];

interface PreparedRates {
  readonly gradScale: number;
  readonly rateFactor: number;
  readonly rateDivisor?: number;
}

export class ParameterStore {
  readonly chunks: OwnedChunk[] = [];
  /** The generation to begin with. Its values come with `begin`, or with `restore`. */
  readonly initial: Region[] = [];
  protected readonly optimizer: Optimizer;
  private readonly initialValues: InitialValues;
  private readonly variables: ChunkVariables;
  protected readonly slots = new Map<number, number[]>();
  private readonly sections = new Map<number, 'trainable' | 'state'>();
  /** The checkpoint that is being written: its slots are preserved before they change. */
  snapshot: Snapshot | undefined;
  /** Where the worker applies the optimizer. */
  readonly byWorker = new AppliedRounds({
    chunks: () => this.chunks,
    slotsOf: ({ index, arena, length }) => ({
      from: this.options.layout.chunks[index]!.offset,
      slots: (this.slots.get(index) ?? []).map((pointer) => arena.f32(pointer, length)),
    }),
    preserve: (chunk) => this.preserve(chunk),
  });

  constructor(private readonly options: ParameterStoreOptions) {
    this.optimizer = createOptimizer(options.optimizer);
    this.initialValues = createInitialValues(options.model, options.seed);
    this.variables = new ChunkVariables(options);
    this.placeChunks();
    for (const chunk of this.chunks) this.allocate(chunk);
  }

  /**
   * Computes what a run begins with: a pure function of the seed, for the shard's part alone. The memory of a large shard takes most of a
   * minute, and the event loop that serves the other runs of this server is left free: it yields after every few milliseconds.
   */
  *begin(): Iterable<undefined> {
    const { layout } = this.options;
    for (const [i, { index, arena, length }] of this.chunks.entries()) {
      yield* this.initialValues.pieces(layout.chunks[index]!.offset, this.initial[i]!.floats);
      for (const [slot, pointer] of (this.slots.get(index) ?? []).entries()) {
        arena.kernels.fill(pointer, length, this.optimizer.slots[slot]!.initialValue);
        yield;
      }
    }
  }

  /** The weight decay goes before the gradient is read, and with trust ratios a variable is updated by itself: these take memory of their own. */
  canReplaceGradient(chunk: OwnedChunk): boolean {
    if (this.options.optimizer.isApplied) return true;
    return this.sections.get(chunk.index) === 'state' || (this.variables.weightDecay === 0 && !isLayerwise(this.options.optimizer));
  }

  /** Applies the optimizer (or, for state, the weighted mean) of round `round` to one chunk. @throws Error where the worker should have applied it and is not here */
  update(chunk: OwnedChunk, round: number, paramIn: Region, paramOut: Region, gradient: Region, decision?: RoundDecision): void {
    if (this.options.optimizer.isApplied) return this.byWorker.take(chunk, round, paramOut, gradient);
    const scale = Math.fround(1 / (decision?.examples ?? this.options.examplesIn(round)));
    const { kernels } = chunk.arena;
    if (this.sections.get(chunk.index) === 'state') {
      kernels.scaleInto(paramOut.pointer, gradient.pointer, chunk.length, scale);
      this.variables.keepFrozen(chunk, paramIn, paramOut);
      return;
    }
    this.preserve(chunk);
    const estimate = this.estimated(chunk, round, gradient);
    const slot = this.estimateSlot(chunk);
    if (slot !== undefined) kernels.copy(slot, estimate.pointer, chunk.length);
    this.applyTo(chunk, round, paramIn, paramOut, estimate, scale, decision);
    estimate.release();
  }

  /** With EF21 what was sent is added to the estimate that the servers have, in memory of its own: a standby may yet get the sum. Otherwise the sum itself. */
  private estimated(chunk: OwnedChunk, round: number, sum: Region): Region {
    const slot = this.estimateSlot(chunk);
    if (slot === undefined) return sum.retain();
    const { examplesIn } = this.options;
    // The estimate is a part of a sum over the examples of the round before.
    const growth = round > 0 ? examplesIn(round) / examplesIn(round - 1) : 1;
    const estimate = acquireRegion(chunk.arena, chunk.length);
    chunk.arena.kernels.sgd(sum.pointer, estimate.pointer, slot, chunk.length, 1, -growth);
    return estimate;
  }

  /** Whether what would be applied is finite: with EF21 a finite sum may lead beyond float32. */
  staysFinite(chunk: OwnedChunk, round: number, sum: Region): boolean {
    if (this.options.optimizer.isApplied) return !isLeftOut(sum);
    if (!sum.isFinite || this.sections.get(chunk.index) === 'state' || !this.options.optimizer.keepsEstimate) return sum.isFinite;
    const estimate = this.estimated(chunk, round, sum);
    const isFinite = chunk.arena.kernels.allFinite(estimate.pointer, chunk.length);
    estimate.release();
    return isFinite;
  }

  /** It is the last one of the chunk. */
  private estimateSlot({ index }: OwnedChunk): number | undefined {
    return this.options.optimizer.keepsEstimate ? this.slots.get(index)!.at(-1) : undefined;
  }

  private applyTo(
    chunk: OwnedChunk,
    round: number,
    paramIn: Region,
    paramOut: Region,
    gradient: Region,
    scale: number,
    decision: RoundDecision | undefined,
  ): void {
    const { kernels } = chunk.arena;
    if (decision && !isLayerwise(this.options.optimizer)) this.clipVariables(chunk, gradient, decision);
    const gradScale = decision ? Math.fround(scale * Math.fround(decision.scale)) : scale;
    const rateFactor = this.options.rateFactor?.(round) ?? 1;
    const update = {
      paramIn: this.prepare(chunk, paramIn, paramOut, gradient, { gradScale, rateFactor }),
      paramOut: paramOut.pointer,
      grad: gradient.pointer,
      slots: this.slots.get(chunk.index)!,
      count: chunk.length,
      step: round + 1,
      rateFactor,
      gradScale,
    };
    if (isLayerwise(this.options.optimizer)) this.updateVariables(chunk, update, decision);
    else this.optimizer.apply(kernels, update);
    this.average(chunk, round, paramOut);
    this.variables.keepFrozen(chunk, paramIn, paramOut);
  }

  /**
   * The same for some rows of a chunk, in place: neither weights nor slots of the others move. @param gradient of these rows, one behind the other, in
   * the arena of the chunk; it may be written to
   */
  updateRows(
    chunk: OwnedChunk,
    round: number,
    params: Region,
    rows: { readonly at: Uint32Array; readonly width: number },
    gradient: Region,
  ): void {
    this.preserve(chunk);
    const { at, width } = rows;
    const { kernels } = chunk.arena;
    const gradScale = Math.fround(1 / this.options.examplesIn(round));
    const rateFactor = this.options.rateFactor?.(round) ?? 1;
    const { clipValue } = this.options;
    if (clipValue !== undefined) kernels.clamp(gradient.pointer, gradient.length, clipValue / gradScale);
    const slots = this.slots.get(chunk.index)!;
    const common = { count: width, step: round + 1, rateFactor, gradScale };
    for (const [i, row] of at.entries()) {
      const bytes = row * width * 4;
      const param = params.pointer + bytes;
      const own = { paramIn: param, paramOut: param, grad: gradient.pointer + i * width * 4, slots: slots.map((slot) => slot + bytes) };
      this.optimizer.apply(kernels, Object.assign(own, common));
    }
  }

  /** One variable after the other, each by its trust ratio. */
  private updateVariables(chunk: OwnedChunk, whole: OptimizerUpdate, decision: RoundDecision | undefined): void {
    const ratios = new Map(decision?.variables);
    for (const { variable, from, to } of this.variables.piecesOf(chunk)) {
      const update = partOf(whole, from, to);
      const keepsWeight = this.variables.keepsWeight[variable]!;
      const isUntrusted = keepsWeight && this.options.optimizer.name === 'lars';
      const trustRatio = isUntrusted ? 1 : (ratios.get(variable) ?? 1);
      this.optimizer.apply(chunk.arena.kernels, Object.assign(update, { trustRatio, keepsWeight }));
    }
  }

  /** The moving average of the weights follows them; and they become their averages where the spec says so, and at the end of the run. */
  private average(chunk: OwnedChunk, round: number, params: Region): void {
    const { optimizer, lastRound } = this.options;
    if (optimizer.emaMomentum === undefined) return;
    const pointer = this.slots.get(chunk.index)![this.optimizer.slots.findIndex(({ name }) => name === AVERAGE_SLOT)]!;
    const { kernels } = chunk.arena;
    const { kept, rest } = averageShares(optimizer.emaMomentum, round + 1);
    kernels.average(pointer, params.pointer, chunk.length, kept, rest);
    const every = optimizer.emaOverwriteRounds;
    if (round === lastRound || (every !== undefined && (round + 1) % every === 0)) kernels.copy(params.pointer, pointer, chunk.length);
  }

  /** A round that is left out moves nothing but averages of weights, which go on towards them. @returns the next generation */
  leaveOut(chunk: OwnedChunk, round: number, params: Region): Region {
    if (this.options.optimizer.emaMomentum === undefined || this.sections.get(chunk.index) === 'state') return params.retain();
    this.preserve(chunk);
    const next = acquireRegion(chunk.arena, chunk.length);
    chunk.arena.kernels.copy(next.pointer, params.pointer, chunk.length);
    this.average(chunk, round, next);
    this.variables.keepFrozen(chunk, params, next);
    return next;
  }

  /** Applies the update of one work item (modes async and ssp) to one chunk. @param examples of the work item */
  updateFromItem(
    chunk: OwnedChunk,
    { item, step, staleness, fetched, isCompensated }: AsyncUpdate,
    paramIn: Region,
    paramOut: Region,
    gradient: Region,
    examples: number,
    options: AsyncUpdateOptions,
  ): void {
    const section = this.sections.get(chunk.index)!;
    if (section === 'trainable') this.preserve(chunk);
    this.variables.silenceFrozen(chunk, gradient);
    const frozen = this.variables.frozenValues(chunk, paramIn);
    const rateFactor = this.options.rateFactor?.(item.round) ?? 1;
    applyAsyncUpdate(chunk.arena.kernels, this.optimizer, options, {
      section,
      paramIn: paramIn.pointer,
      paramOut: paramOut.pointer,
      grad: gradient.pointer,
      count: chunk.length,
      slots: this.slots.get(chunk.index) ?? [],
      examples,
      step,
      staleness,
      rateFactor,
      prepare: ({ gradScale, rateDivisor }) => this.prepare(chunk, paramIn, paramOut, gradient, { gradScale, rateFactor, rateDivisor }),
      fetched: fetched?.pointer,
      isCompensated,
    });
    for (const { from, bytes } of frozen) paramOut.bytes.set(bytes, from * 4);
  }

  /**
   * Cuts the elements of the gradient, and decays the weights, as Keras does before an update. Cutting twice is cutting once, so a gradient that a
   * standby gets afterwards gives the same bits there.
   * @returns where the parameters lie that the optimizer goes on from
   */
  private prepare(chunk: OwnedChunk, paramIn: Region, paramOut: Region, gradient: Region, rates: PreparedRates): number {
    const { optimizer: spec, clipValue } = this.options;
    const { kernels } = chunk.arena;
    if (clipValue !== undefined) kernels.clamp(gradient.pointer, chunk.length, clipValue / rates.gradScale);
    const { weightDecay } = this.variables;
    if (weightDecay === 0) return paramIn.pointer;
    if (paramIn.pointer !== paramOut.pointer) kernels.copy(paramOut.pointer, paramIn.pointer, chunk.length);
    for (const { variable, from, to } of this.variables.piecesOf(chunk)) {
      const pointer = paramOut.pointer + from * 4;
      if (!this.variables.isFrozen[variable] && !this.variables.keepsWeight[variable])
        kernels.decayWeights(pointer, pointer, to - from, weightDecay, rateOf(spec, rates));
    }
    return paramOut.pointer;
  }

  /** What a two-phase round has to know of a chunk before anything is applied. */
  measure(chunk: OwnedChunk, gradient: Region, params: Region, round: number): Omit<ChunkScalars, 'chunk'> {
    if (this.options.optimizer.isApplied) return { isFinite: !isLeftOut(gradient), squares: [] }; // norms were those of the worker's steps
    const { isFinite } = gradient;
    if (!isFinite || this.sections.get(chunk.index) === 'state') return { isFinite, squares: [] };
    const estimate = this.estimated(chunk, round, gradient);
    try {
      return this.measureEstimate(chunk, estimate, params, round);
    } finally {
      estimate.release();
    }
  }

  private measureEstimate(chunk: OwnedChunk, gradient: Region, params: Region, round: number): Omit<ChunkScalars, 'chunk'> {
    const { squares, weights } = isLayerwise(this.options.optimizer)
      ? this.measureSteps(chunk, gradient, params, round)
      : { squares: this.squaresOf(chunk, gradient), weights: undefined };
    // Estimates and weights may be beyond float32 where what was sent is not yet. JSON has no such number, and nothing follows from it.
    const areNumbers = [...squares, ...(weights ?? [])].every(([, sum]) => Number.isFinite(sum));
    return areNumbers ? { isFinite: true, squares, ...(weights && { weights }) } : { isFinite: false, squares: [] };
  }

  private squaresOf(chunk: OwnedChunk, { pointer }: Region): VariableSums {
    return this.variables
      .piecesOf(chunk)
      .filter(({ variable }) => !this.variables.isFrozen[variable])
      .map(({ variable, from, to }) => [variable, chunk.arena.kernels.sumOfSquares(pointer + from * 4, to - from)]);
  }

  /** With lamb the squares are those of the step that it is about to take, and the weights have decayed, as in Keras. */
  private measureSteps(
    chunk: OwnedChunk,
    gradient: Region,
    params: Region,
    round: number,
  ): { squares: VariableSums; weights: VariableSums } {
    const { kernels } = chunk.arena;
    if (!this.optimizer.direction) return { squares: this.squaresOf(chunk, gradient), weights: this.squaresOf(chunk, params) };
    const scratch = acquireRegion(chunk.arena, chunk.length);
    try {
      const gradScale = Math.fround(1 / this.options.examplesIn(round));
      const rateFactor = this.options.rateFactor?.(round) ?? 1;
      const decayed = this.prepare(chunk, params, scratch, gradient, { gradScale, rateFactor }) === params.pointer ? params : scratch;
      const weights = this.squaresOf(chunk, decayed);
      const update = { grad: gradient.pointer, slots: this.slots.get(chunk.index)!, count: chunk.length, step: round + 1, gradScale };
      this.optimizer.direction(kernels, scratch.pointer, update);
      return { squares: this.squaresOf(chunk, scratch), weights };
    } finally {
      scratch.release();
    }
  }

  /**
   * Overwrites generation and slots with those of a checkpoint.
   * @param signal nobody waits for it any more: the rest is not read
   * @throws StorageError
   */
  async restore(checkpoint: Pick<CheckpointReader, 'tensor'>, signal?: AbortSignal): Promise<void> {
    const read = async (name: string, into: Uint8Array): Promise<void> => {
      const bytes = await checkpoint.tensor(name, signal);
      if (bytes.length !== into.length)
        throw new StorageError(
          'CONFIG_CHANGED',
          `${name} of the checkpoint has ${bytes.length} bytes, not ${into.length}: its chunks are cut in another way`,
        );
      into.set(bytes);
    };
    for (const [i, { index, arena, length }] of this.chunks.entries()) {
      await read(parametersName(index), this.initial[i]!.bytes);
      for (const [slot, pointer] of (this.slots.get(index) ?? []).entries())
        await read(slotName(this.optimizer.slots[slot]!.name, index), arena.bytes(pointer, length * 4));
    }
  }

  /**
   * Lays values over what `begin` has computed: those of another run, by the names of variables.
   * @param read little-endian float32 of a variable's elements [from, to); undefined for one that stays as it begins
   */
  async overlay(read: (path: string, from: number, to: number) => Promise<Uint8Array | undefined>): Promise<void> {
    const { variables, chunks } = this.options.layout;
    for (const [i, chunk] of this.chunks.entries()) {
      for (const { variable, from, to } of this.variables.piecesOf(chunk)) {
        const { path, offset } = variables[variable]!;
        const first = chunks[chunk.index]!.offset + from - offset;
        const bytes = await read(path, first, first + to - from);
        if (bytes) this.initial[i]!.bytes.set(bytes, from * 4);
      }
    }
  }

  /** A checkpoint: `regions` are the parameters of `generation`, by chunk; the slots are still its own. */
  takeSnapshot(generation: number, regions: readonly Region[]): Snapshot {
    this.byWorker.takeSlots(generation);
    this.snapshot = new Snapshot(generation, this.chunks, regions, (chunk) =>
      (this.slots.get(chunk) ?? []).map((pointer, slot) => ({ name: this.optimizer.slots[slot]!.name, pointer })),
    );
    return this.snapshot;
  }

  /** A checkpoint must not cost the run: where there is no room for a copy the checkpoint is given up. */
  private preserve(chunk: OwnedChunk): void {
    try {
      this.snapshot?.preserve(chunk.index);
    } catch (error) {
      if (!(error instanceof ArenaFullError)) throw error;
      this.snapshot?.abandon(error);
      this.snapshot = undefined;
    }
  }

  private clipVariables(chunk: OwnedChunk, gradient: Region, { variables }: RoundDecision): void {
    if (variables.length === 0) return;
    const scales = new Map(variables);
    for (const { variable, from, to } of this.variables.piecesOf(chunk)) {
      const scale = scales.get(variable);
      const pointer = gradient.pointer + from * 4;
      if (scale !== undefined) chunk.arena.kernels.scaleInto(pointer, pointer, to - from, Math.fround(scale));
    }
  }

  private placeChunks(): void {
    const { layout, owned, gradientsInFlight, window } = this.options;
    const copies =
      3 +
      gradientsInFlight +
      2 * this.optimizer.slots.length +
      (this.optimizer.direction ? 1 : 0) +
      (this.options.optimizer.keepsEstimate ? 1 : 0);
    let group: number[] = [];
    let planned = 0;
    let needed = 0;
    let largest = 0;
    const windowBytes = (count: number): number => Math.min(window?.chunks ?? 0, count) * largest;
    const close = () => {
      if (group.length === 0) return;
      // An allocator takes what is unused before what was given back: room that is not needed would become resident all the same.
      const initialBytes = Math.min(ARENA_MAX_BYTES, Math.ceil(needed / PAGE_BYTES + 16) * PAGE_BYTES);
      const arena = this.options.createArena({ initialBytes, maximumBytes: ARENA_MAX_BYTES });
      for (const index of group) this.chunks.push({ index, length: layout.chunks[index]!.length, arena });
      group = [];
      planned = 0;
      needed = 0;
    };
    for (const index of owned) {
      const bytes = layout.chunks[index]!.length * 4 * copies;
      largest = Math.max(largest, window?.bytesOf(index) ?? 0);
      if (planned + bytes + windowBytes(group.length + 1) > ARENA_PLAN_BYTES) close();
      group.push(index);
      planned += bytes;
      needed += layout.chunks[index]!.length * 4 * (2 + (layout.chunks[index]!.section === 'state' ? 0 : this.optimizer.slots.length));
      this.sections.set(index, layout.chunks[index]!.section);
    }
    close();
  }

  private allocate({ index, arena, length }: OwnedChunk): void {
    this.initial.push(acquireRegion(arena, length));
    if (this.sections.get(index) === 'state') return;
    const pointers = this.optimizer.slots.map(() => arena.alloc(length * 4));
    this.slots.set(index, pointers);
  }
}
