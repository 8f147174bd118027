/**
 * One shard at the moment of a checkpoint, while it is being written in the background: copy on write.
 *
 * Parameters cost nothing to keep: generations are reference-counted regions (docs/decisions/010), and the checkpoint holds on to its own
 * until it is written. Slots have one generation and are updated in place, so a chunk's slots are copied before the first update
 * that comes after the checkpoint, or when their turn to be written comes. Memory of a checkpoint: P + S, and at most s·P for copies.
 */
import { acquireRegion, type OwnedChunk, type Region } from '@paceline/exchange';
import type { TensorSource } from '@paceline/storage';

export const parametersName = (chunk: number): string => `parameters/${chunk}`;
export const slotName = (slot: string, chunk: number): string => `slots/${slot}/${chunk}`;

interface Slot {
  readonly name: string;
  /** Into the chunk's arena; updated in place. */
  readonly pointer: number;
}

interface Part {
  readonly chunk: OwnedChunk;
  parameters: Region | undefined;
  readonly slots: readonly Slot[];
  /** By slot; undefined where the live one is still what was taken, or when it is written. */
  readonly copies: (Region | undefined)[];
  readonly isWritten: boolean[];
}

export class Snapshot {
  /** Raised when the checkpoint is given up. */
  readonly abandoned = new AbortController();
  private readonly parts: readonly Part[];
  private readonly byChunk = new Map<number, Part>();

  /** Takes over one reference to each region. */
  constructor(
    readonly generation: number,
    chunks: readonly OwnedChunk[],
    regions: readonly Region[],
    slotsOf: (chunk: number) => readonly Slot[],
  ) {
    this.parts = chunks.map((chunk, i) => {
      const slots = slotsOf(chunk.index);
      return { chunk, parameters: regions[i]!, slots, copies: slots.map(() => undefined), isWritten: slots.map(() => false) };
    });
    for (const part of this.parts) this.byChunk.set(part.chunk.index, part);
  }

  /** The slots of the chunk are about to change. @throws ArenaFullError when there is no room for a copy */
  preserve(chunk: number): void {
    const part = this.byChunk.get(chunk);
    if (part) for (let slot = 0; slot < part.slots.length; slot++) this.copy(part, slot);
  }

  /** What is written, chunk by chunk; each tensor is let go when it is done. */
  *tensors(): Iterable<TensorSource> {
    for (const part of this.parts) {
      const { chunk } = part;
      yield {
        name: parametersName(chunk.index),
        shape: [chunk.length],
        read: () => this.still(part.parameters),
        done: () => {
          part.parameters?.release();
          part.parameters = undefined;
        },
      };
      for (const [slot, { name }] of part.slots.entries()) {
        yield {
          name: slotName(name, chunk.index),
          shape: [chunk.length],
          read: () => {
            if (!this.abandoned.signal.aborted) this.copy(part, slot);
            return this.still(part.copies[slot]);
          },
          done: () => this.letGo(part, slot),
        };
      }
    }
  }

  /** Lets everything go that is not written. @param why for whoever waits for the file, where the checkpoint has failed by itself */
  abandon(why?: Error): void {
    this.abandoned.abort(why);
    for (const part of this.parts) {
      part.parameters?.release();
      part.parameters = undefined;
      for (let slot = 0; slot < part.slots.length; slot++) this.letGo(part, slot);
    }
  }

  private copy(part: Part, slot: number): void {
    if (part.copies[slot] || part.isWritten[slot]) return;
    const region = acquireRegion(part.chunk.arena, part.chunk.length);
    part.chunk.arena.kernels.copy(region.pointer, part.slots[slot]!.pointer, part.chunk.length);
    part.copies[slot] = region;
  }

  private letGo(part: Part, slot: number): void {
    part.copies[slot]?.release();
    part.copies[slot] = undefined;
    part.isWritten[slot] = true;
  }

  /** A write that was given up may still hold its piece: it gets bytes of its own, which nobody keeps. */
  private still(region: Region | undefined): Uint8Array {
    if (!region) throw new Error(`the checkpoint of round ${this.generation} was given up`);
    return region.bytes;
  }
}
