/**
 * The memory of one shard: parameters, optimizer slots and gradients in flight, in arenas of at most 1 GiB. Everything that
 * belongs to a chunk lies in one arena, because the kernels work inside one WebAssembly memory.
 *
 * Memory, in bytes, for a shard of P parameter and S state bytes with s slots: 2·(P + S) + s·P + gradients in flight
 * (at most one partial tree per chunk and member; a planning allowance of 3·(P + S) is kept free for them).
 */
import { acquireRegion, type OwnedChunk, type Region } from '@paceline/exchange';
import { Arena } from '@paceline/kernels';
import { createInitialValues, createOptimizer, type InitialValues, type Layout, type Optimizer } from '@paceline/learning';
import type { ModelDescription, OptimizerSpec } from '@paceline/spec';

const ARENA_MAX_BYTES = 1 << 30;
const ARENA_PLAN_BYTES = 640 << 20;
const PAGE_BYTES = 65_536;

export interface ParameterStoreOptions {
  readonly layout: Layout;
  /** Chunk indices of this shard. */
  readonly owned: readonly number[];
  readonly model: ModelDescription;
  readonly optimizer: OptimizerSpec;
  readonly seed: number;
  /** Examples of a round: the sum-gradient is scaled once by its inverse. */
  examplesIn(round: number): number;
}

export class ParameterStore {
  readonly chunks: OwnedChunk[] = [];
  /** Generation 0: a pure function of the seed, computed here for the shard's part alone. */
  readonly initial: Region[] = [];
  private readonly optimizer: Optimizer;
  private readonly initialValues: InitialValues;
  private readonly slots = new Map<number, number[]>();
  private readonly sections = new Map<number, 'trainable' | 'state'>();

  constructor(private readonly options: ParameterStoreOptions) {
    this.optimizer = createOptimizer(options.optimizer);
    this.initialValues = createInitialValues(options.model, options.seed);
    this.placeChunks();
    for (const chunk of this.chunks) this.fillChunk(chunk);
  }

  /** Applies the optimizer (or, for state, the weighted mean) of round `round` to one chunk. */
  update(chunk: OwnedChunk, round: number, paramIn: Region, paramOut: Region, gradient: Region): void {
    const scale = Math.fround(1 / this.options.examplesIn(round));
    const { kernels } = chunk.arena;
    if (this.sections.get(chunk.index) === 'state') {
      kernels.scaleInto(paramOut.pointer, gradient.pointer, chunk.length, scale);
      return;
    }
    this.optimizer.apply(kernels, {
      paramIn: paramIn.pointer,
      paramOut: paramOut.pointer,
      grad: gradient.pointer,
      slots: this.slots.get(chunk.index)!,
      count: chunk.length,
      step: round + 1,
      gradScale: scale,
    });
  }

  private placeChunks(): void {
    const { layout, owned } = this.options;
    const copies = 5 + this.optimizer.slots.length;
    let group: number[] = [];
    let planned = 0;
    const close = () => {
      if (group.length === 0) return;
      const initialBytes = Math.min(ARENA_MAX_BYTES, Math.ceil((planned * 0.6) / PAGE_BYTES + 16) * PAGE_BYTES);
      const arena = Arena.create({ initialBytes, maximumBytes: ARENA_MAX_BYTES });
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

  private fillChunk(chunk: OwnedChunk): void {
    const { offset, length, section } = this.options.layout.chunks[chunk.index]!;
    const region = acquireRegion(chunk.arena, length);
    this.initialValues.fill(offset, region.floats);
    this.initial.push(region);
    if (section === 'state') return;
    this.slots.set(
      chunk.index,
      this.optimizer.slots.map(({ initialValue }) => {
        const pointer = chunk.arena.alloc(length * 4);
        chunk.arena.kernels.fill(pointer, length, initialValue);
        return pointer;
      }),
    );
  }
}
