/** The memory of one simulated shard, as libs/hosting/src/parameter-store.ts: parameters, slots, the update, what a checkpoint takes and gives. */
import { acquireRegion, type OwnedChunk, type Region, type RoundDecision, type TokenUpdate } from '@paceline/exchange';
import type { Arena } from '@paceline/kernels';
import { applyTokenUpdate, shardChunks, type TokenUpdateOptions } from '@paceline/learning';
import type { CheckpointReader, TensorSource } from '@paceline/storage';
import type { Cluster } from './cluster.js';
import { scaled } from './gradient-shape.js';
import { parametersName, slotName } from './sim-storage.js';
import { giveArena, takeArena } from './tiny-run.js';

export class ShardMemory {
  readonly arena: Arena = takeArena();
  readonly chunks: readonly OwnedChunk[];
  readonly initial: readonly Region[];
  private readonly slots = new Map<number, number[]>();
  private slotBytes = 0;

  constructor(
    private readonly cluster: Cluster,
    private readonly server: number,
  ) {
    const { layout, shape } = cluster.run;
    this.chunks = shardChunks(layout, shape.servers, server).map((index) => ({
      index,
      length: layout.chunks[index]!.length,
      arena: this.arena,
    }));
    this.initial = this.chunks.map((chunk) => this.initialRegion(chunk));
  }

  /** @throws StorageError */
  async restore(reader: CheckpointReader): Promise<void> {
    const { run, checks } = this.cluster;
    const { round, attempt } = reader.manifest;
    for (const [i, { index, length }] of this.chunks.entries()) {
      const region = this.initial[i]!;
      region.bytes.set(await reader.tensor(parametersName(index)));
      for (const [k, pointer] of (this.slots.get(index) ?? []).entries())
        this.arena.bytes(pointer, length * 4).set(await reader.tensor(slotName(run.optimizer.slots[k]!.name, index)));
      const isRight = this.cluster.holdsRound(attempt, round, index, region.floats);
      checks.expect(isRight, 'I5', () => `chunk ${index} was restored to other bits than those of round ${round}`);
    }
  }

  /** Copies of what is cut; takes over one reference to each region. */
  tensors(regions: readonly Region[]): TensorSource[] {
    const { optimizer } = this.cluster.run;
    return this.chunks.flatMap(({ index, length }, i) => {
      const shape = [length];
      const parameters = Uint8Array.from(regions[i]!.bytes);
      regions[i]!.release();
      const slots = (this.slots.get(index) ?? []).map((pointer) => Uint8Array.from(this.arena.bytes(pointer, length * 4)));
      return [
        { name: parametersName(index), shape, read: () => parameters },
        ...slots.map((bytes, k) => ({ name: slotName(optimizer.slots[k]!.name, index), shape, read: () => bytes })),
      ];
    });
  }

  update(chunk: OwnedChunk, round: number, paramIn: Region, paramOut: Region, gradient: Region, decision?: RoundDecision): void {
    const { run, reference, checks } = this.cluster;
    const { kernels } = chunk.arena;
    const gradScale = decision
      ? scaled(run, kernels, chunk.index, gradient.pointer, decision)
      : Math.fround(1 / run.schedule.round(round).count);
    const place = run.layout.chunks[chunk.index]!;
    if (place.section === 'state') kernels.scaleInto(paramOut.pointer, gradient.pointer, chunk.length, gradScale);
    else
      run.optimizer.apply(kernels, {
        ...{ paramIn: paramIn.pointer, paramOut: paramOut.pointer, grad: gradient.pointer, slots: this.slots.get(chunk.index)! },
        ...{ count: chunk.length, step: round + 1, gradScale },
      });
    checks.expect(
      kernels.allFinite(paramOut.pointer, chunk.length),
      'I8',
      () => `chunk ${chunk.index} of generation ${round + 1} on server ${this.server} has what is no number`,
    );
    checks.expect(
      reference.holds(round + 1, place, paramOut.floats),
      'I8',
      () => `chunk ${chunk.index} of generation ${round + 1} on server ${this.server} is not that of the undisturbed run`,
    );
  }

  updateToken(
    chunk: OwnedChunk,
    { token, step, staleness, fetched }: TokenUpdate,
    paramIn: Region,
    paramOut: Region,
    gradient: Region,
    options: TokenUpdateOptions,
  ): void {
    const { run } = this.cluster;
    applyTokenUpdate(chunk.arena.kernels, run.optimizer, options, {
      ...{ section: run.layout.chunks[chunk.index]!.section, paramIn: paramIn.pointer, paramOut: paramOut.pointer, grad: gradient.pointer },
      ...{ slots: this.slots.get(chunk.index) ?? [], count: chunk.length, examples: run.replicaExamples(token.round, token.replica) },
      ...{ step, staleness, fetched: fetched?.pointer },
    });
  }

  /** Nothing but slots is held. */
  get isIdle(): boolean {
    return this.arena.bytesInUse <= this.slotBytes;
  }

  /** After the run: slots are the memory's own; everything else must have been given back. Returns the bytes that were not. */
  release(): number {
    for (const pointers of this.slots.values()) for (const pointer of pointers) this.arena.free(pointer);
    this.slots.clear();
    const leaked = this.arena.bytesInUse;
    giveArena(this.arena);
    return leaked;
  }

  private initialRegion(chunk: OwnedChunk): Region {
    const { layout, optimizer } = this.cluster.run;
    const { offset, section } = layout.chunks[chunk.index]!;
    const region = acquireRegion(chunk.arena, chunk.length);
    region.floats.forEach((_, i, all) => (all[i] = this.cluster.run.initialValue(offset + i)));
    if (section === 'trainable')
      this.slots.set(
        chunk.index,
        optimizer.slots.map(({ initialValue }) => {
          const before = chunk.arena.bytesInUse;
          const pointer = chunk.arena.alloc(chunk.length * 4);
          this.slotBytes += chunk.arena.bytesInUse - before;
          chunk.arena.kernels.fill(pointer, chunk.length, initialValue);
          return pointer;
        }),
      );
    return region;
  }
}
