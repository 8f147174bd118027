/** The ParameterStore of libs/hosting in an arena that outlives seeds; what is applied, restored and taken is compared with the reference. */
import type { OwnedChunk, Region, RoundDecision, AsyncUpdate } from '@paceline/exchange';
import { ParameterStore, type Snapshot, type StorePlan } from '@paceline/hosting';
import type { Arena } from '@paceline/kernels';
import type { AsyncUpdateOptions } from '@paceline/learning';
import type { CheckpointReader } from '@paceline/storage';
import { blockBytes } from '../checks/bounds.js';
import type { Cluster } from '../cluster.js';
import type { Part } from './part.js';
import { giveArena, takeArena } from '../run/tiny-run.js';

export class WatchedStore extends ParameterStore {
  part!: Part;
  readonly arena: Arena;

  constructor(
    plan: StorePlan,
    private readonly cluster: Cluster,
  ) {
    const arena = takeArena();
    super({ ...plan, createArena: () => arena });
    this.arena = arena;
  }

  override update(chunk: OwnedChunk, round: number, paramIn: Region, paramOut: Region, gradient: Region, decision?: RoundDecision): void {
    const { checks, reference, run, invariants, kept } = this.cluster;
    invariants.applied(this.part, chunk.index, round);
    const isCompared = kept ? kept.applying(this.part, chunk.index, round, gradient, decision) : this.cluster.isFollowed(this.part);
    super.update(chunk, round, paramIn, paramOut, gradient, decision);
    const what = () => `chunk ${chunk.index} of generation ${round + 1} on ${this.part.name}`;
    checks.expect(chunk.arena.kernels.allFinite(paramOut.pointer, chunk.length), 'I8', () => `${what()} has what is no number`);
    const isRight = !isCompared || reference.holds(round + 1, run.layout.chunks[chunk.index]!, paramOut.floats);
    checks.expect(isRight, 'I8', () => `${what()} is not that of the undisturbed run`);
  }

  override updateRows(
    chunk: OwnedChunk,
    round: number,
    params: Region,
    rows: { readonly at: Uint32Array; readonly width: number },
    gradient: Region,
  ): void {
    const { checks, reference, run, invariants } = this.cluster;
    invariants.applied(this.part, chunk.index, round);
    super.updateRows(chunk, round, params, rows, gradient);
    const isRight = !this.cluster.isFollowed(this.part) || reference.holds(round + 1, run.layout.chunks[chunk.index]!, params.floats);
    checks.expect(
      isRight,
      'I8',
      () => `rows of chunk ${chunk.index} of generation ${round + 1} on ${this.part.name} are not those of the undisturbed run`,
    );
  }

  override updateFromItem(
    chunk: OwnedChunk,
    update: AsyncUpdate,
    paramIn: Region,
    paramOut: Region,
    gradient: Region,
    examples: number,
    options: AsyncUpdateOptions,
  ): void {
    const items = this.cluster.items!;
    items.applying(this.part, chunk.index, update, gradient);
    super.updateFromItem(chunk, update, paramIn, paramOut, gradient, examples, options);
    items.applied(this.part, chunk.index, update, paramOut);
  }

  override async restore(checkpoint: CheckpointReader): Promise<void> {
    await super.restore(checkpoint);
    const { round, attempt } = checkpoint.manifest;
    if (!this.cluster.isFollowed(this.part)) return;
    for (const [i, { index }] of this.chunks.entries()) {
      const isRight = this.cluster.holdsRound(attempt, round, index, this.initial[i]!.floats);
      this.cluster.checks.expect(isRight, 'I5', () => `chunk ${index} was restored to other bits than those of round ${round}`);
    }
  }

  override takeSnapshot(generation: number, regions: readonly Region[]): Snapshot {
    this.cluster.items?.checkpoint(this.part, generation, regions);
    return super.takeSnapshot(generation, regions);
  }

  /** Bytes in use without the slots. After the part is over, these are what sockets still read for peers that take nothing any more. */
  get heldBytes(): number {
    const { chunks } = this.cluster.run.layout;
    const slots = [...this.slots].reduce((sum, [index, pointers]) => sum + pointers.length * blockBytes(chunks[index]!.length), 0);
    return this.arena.bytesInUse - slots;
  }

  /** After the run: slots are the store's own; everything else must have been given back. Returns the bytes that were not. */
  release(): number {
    for (const pointers of this.slots.values()) for (const pointer of pointers) this.arena.free(pointer);
    this.slots.clear();
    const leaked = this.arena.bytesInUse;
    giveArena(this.arena);
    return leaked;
  }
}
