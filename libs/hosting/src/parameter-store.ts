/**
 * The memory of one shard: parameters, optimizer slots and gradients in flight, in arenas of at most 1 GiB. Everything that
 * belongs to a chunk lies in one arena, because the kernels work inside one WebAssembly memory.
 *
 * Memory, in bytes, for a shard of P parameter and S state bytes with s slots: 2·(P + S) + s·P + gradients in flight
 * (at most one partial tree per chunk and member; a planning allowance of 3·(P + S) is kept free for them; with backup replicas
 * every leaf is kept, R·(P + S); in modes async and ssp up to two tokens of each worker, and with the delay compensation the parameters
 * that they were computed from, as far as they have changed since) + while a checkpoint is written (P + S) + s·P (snapshot.ts).
 */
import { acquireRegion, type ChunkScalars, type OwnedChunk, type Region, type RoundDecision, type TokenUpdate } from '@paceline/exchange';
import { ArenaFullError, type Arena, type ArenaOptions } from '@paceline/kernels';
import {
  applyTokenUpdate,
  createInitialValues,
  createOptimizer,
  type InitialValues,
  type Layout,
  type Optimizer,
  type TokenUpdateOptions,
} from '@paceline/learning';
import type { ModelDescription, OptimizerSpec } from '@paceline/spec';
import type { CheckpointReader } from '@paceline/storage';
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
  readonly optimizer: OptimizerSpec;
  readonly seed: number;
  /** Gradients of a chunk that may be kept at once. */
  readonly gradientsInFlight: number;
  /** Examples of a round: the sum-gradient is scaled once by its inverse. */
  examplesIn(round: number): number;
}

export interface ParameterStoreOptions extends StorePlan {
  createArena(options: ArenaOptions): Arena;
}

export class ParameterStore {
  readonly chunks: OwnedChunk[] = [];
  /** The generation to begin with. Its values come with `begin`, or with `restore`. */
  readonly initial: Region[] = [];
  protected readonly optimizer: Optimizer;
  private readonly initialValues: InitialValues;
  protected readonly slots = new Map<number, number[]>();
  private readonly sections = new Map<number, 'trainable' | 'state'>();
  /** The cut that is being written: its slots are preserved before they change. */
  snapshot: Snapshot | undefined;

  constructor(private readonly options: ParameterStoreOptions) {
    this.optimizer = createOptimizer(options.optimizer);
    this.initialValues = createInitialValues(options.model, options.seed);
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

  /** Applies the optimizer (or, for state, the weighted mean) of round `round` to one chunk. */
  update(chunk: OwnedChunk, round: number, paramIn: Region, paramOut: Region, gradient: Region, decision?: RoundDecision): void {
    const scale = Math.fround(1 / (decision?.examples ?? this.options.examplesIn(round)));
    const { kernels } = chunk.arena;
    if (this.sections.get(chunk.index) === 'state') {
      kernels.scaleInto(paramOut.pointer, gradient.pointer, chunk.length, scale);
      return;
    }
    this.preserve(chunk);
    if (decision) this.clipVariables(chunk, gradient, decision);
    this.optimizer.apply(kernels, {
      paramIn: paramIn.pointer,
      paramOut: paramOut.pointer,
      grad: gradient.pointer,
      slots: this.slots.get(chunk.index)!,
      count: chunk.length,
      step: round + 1,
      gradScale: decision ? Math.fround(scale * Math.fround(decision.scale)) : scale,
    });
  }

  /** Applies the update of one token (modes async and ssp) to one chunk. @param examples of the token */
  updateToken(
    chunk: OwnedChunk,
    { step, staleness, fetched, isCompensated }: TokenUpdate,
    paramIn: Region,
    paramOut: Region,
    gradient: Region,
    examples: number,
    options: TokenUpdateOptions,
  ): void {
    const section = this.sections.get(chunk.index)!;
    if (section === 'trainable') this.preserve(chunk);
    applyTokenUpdate(chunk.arena.kernels, this.optimizer, options, {
      section,
      paramIn: paramIn.pointer,
      paramOut: paramOut.pointer,
      grad: gradient.pointer,
      count: chunk.length,
      slots: this.slots.get(chunk.index) ?? [],
      examples,
      step,
      staleness,
      fetched: fetched?.pointer,
      isCompensated,
    });
  }

  /** What a two-phase round has to know of a chunk before anything is applied. */
  measure(chunk: OwnedChunk, gradient: Region): Omit<ChunkScalars, 'chunk'> {
    const { kernels } = chunk.arena;
    const isFinite = kernels.allFinite(gradient.pointer, chunk.length);
    if (!isFinite || this.sections.get(chunk.index) === 'state') return { isFinite, squares: [] };
    const squares = this.piecesOf(chunk).map(({ variable, from, to }): [number, number] => [
      variable,
      kernels.sumOfSquares(gradient.pointer + from * 4, to - from),
    ]);
    return { isFinite, squares };
  }

  /**
   * Overwrites generation and slots with those of a checkpoint.
   * @param signal nobody waits for it any more: the rest is not read
   * @throws StorageError
   */
  async restore(checkpoint: Pick<CheckpointReader, 'tensor'>, signal?: AbortSignal): Promise<void> {
    for (const [i, { index, arena, length }] of this.chunks.entries()) {
      this.initial[i]!.bytes.set(await checkpoint.tensor(parametersName(index), signal));
      for (const [slot, pointer] of (this.slots.get(index) ?? []).entries())
        arena.bytes(pointer, length * 4).set(await checkpoint.tensor(slotName(this.optimizer.slots[slot]!.name, index), signal));
    }
  }

  /** A cut: `regions` are the parameters of `generation`, by chunk; the slots are still its own. */
  takeSnapshot(generation: number, regions: readonly Region[]): Snapshot {
    this.snapshot = new Snapshot(generation, this.chunks, regions, (chunk) =>
      (this.slots.get(chunk) ?? []).map((pointer, slot) => ({ name: this.optimizer.slots[slot]!.name, pointer })),
    );
    return this.snapshot;
  }

  /** A checkpoint must not cost the run: where there is no room for a copy the cut is given up. */
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
    for (const { variable, from, to } of this.piecesOf(chunk)) {
      const scale = scales.get(variable);
      const pointer = gradient.pointer + from * 4;
      if (scale !== undefined) chunk.arena.kernels.scaleInto(pointer, pointer, to - from, Math.fround(scale));
    }
  }

  /** The parts of variables that lie in a chunk; elements from its start. */
  private piecesOf(chunk: OwnedChunk): { variable: number; from: number; to: number }[] {
    const { variables, chunks } = this.options.layout;
    const { offset, length } = chunks[chunk.index]!;
    return variables.flatMap((each, variable) => {
      const from = Math.max(0, each.offset - offset);
      const to = Math.min(length, each.offset + each.length - offset);
      return from < to ? [{ variable, from, to }] : [];
    });
  }

  private placeChunks(): void {
    const { layout, owned, gradientsInFlight } = this.options;
    const copies = 3 + gradientsInFlight + 2 * this.optimizer.slots.length;
    let group: number[] = [];
    let planned = 0;
    const close = () => {
      if (group.length === 0) return;
      const initialBytes = Math.min(ARENA_MAX_BYTES, Math.ceil((planned * 0.6) / PAGE_BYTES + 16) * PAGE_BYTES);
      const arena = this.options.createArena({ initialBytes, maximumBytes: ARENA_MAX_BYTES });
      for (const index of group) this.chunks.push({ index, length: layout.chunks[index]!.length, arena });
      group = [];
      planned = 0;
    };
    for (const index of owned) {
      const bytes = layout.chunks[index]!.length * 4 * copies;
      if (planned + bytes > ARENA_PLAN_BYTES) close();
      group.push(index);
      planned += bytes;
      this.sections.set(index, layout.chunks[index]!.section);
    }
    close();
  }

  private allocate({ index, arena, length }: OwnedChunk): void {
    this.initial.push(acquireRegion(arena, length));
    if (this.sections.get(index) === 'state') return;
    this.slots.set(
      index,
      this.optimizer.slots.map(() => arena.alloc(length * 4)),
    );
  }
}
