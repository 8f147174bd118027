/**
 * Rounds in which the worker applies the optimizer (strategy tpu): the shard takes the parameters that come as they are, and the slots from the worker, which is in the same process.
 *
 *     a worker has ended round k ──> every chunk of it has come ──> round k+1 begins, or its checkpoint is taken ──> the slots are copied
 *         └── the seat is lost before round k is committed ──> another one begins round k, with the slots of before
 */
import type { OwnedChunk, Region } from '@paceline/exchange';

/** The slots of the optimizer as a worker has moved them in a round. They hold still until it begins with another one. */
export interface AppliedSlots {
  /** @param from element of the trainable section */
  copySlot(slot: number, from: number, into: Float32Array): void;
  /** The same in memory of their own. */
  copied(): AppliedSlots;
}

interface SlotsOfChunk {
  /** The element of the trainable section that the chunk begins at. */
  readonly from: number;
  /** Its part of each slot; of a chunk of state there is none. */
  readonly slots: readonly Float32Array[];
}

export interface AppliedShard {
  readonly chunks: () => readonly OwnedChunk[];
  slotsOf(chunk: OwnedChunk): SlotsOfChunk;
  /** They are about to change. */
  preserve(chunk: OwnedChunk): void;
}

/** A round whose steps were not finite comes as NaN in every element; a weight may be infinite, as it may where the shard applies the optimizer. */
export const isLeftOut = ({ floats }: Region): boolean => Number.isNaN(floats[0]) && floats.every(Number.isNaN);

export class AppliedRounds {
  /** The last round that a worker has ended, and where its slots are. */
  private ended: { readonly round: number; readonly slots: AppliedSlots; readonly isCopy: boolean } | undefined;
  /** Chunks that have come of the round whose slots were not taken yet. */
  private come: { readonly round: number; chunks: number } | undefined;
  /** The last round whose slots were taken. */
  private slotsRound: number | undefined;

  constructor(private readonly shard: AppliedShard) {}

  /** A worker has ended a round, whose parameters come next. */
  end(round: number, slots: AppliedSlots): void {
    this.ended = { round, slots, isCopy: false };
  }

  /** Whether slots that are not here yet are those of a worker. */
  hasSlotsOf(slots: AppliedSlots): boolean {
    return this.ended?.slots === slots;
  }

  /** The parameters of a chunk. @param values as they came; they may be `paramOut` @throws Error where the slots of the round are not in this process */
  take(chunk: OwnedChunk, round: number, paramOut: Region, values: Region): void {
    if (this.ended?.round !== round)
      throw new Error(`parameters of round ${round} have come from a worker whose slots are not in this process`);
    if (paramOut.pointer !== values.pointer) chunk.arena.kernels.copy(paramOut.pointer, values.pointer, chunk.length);
    if (this.come?.round !== round) this.come = { round, chunks: 0 };
    this.come.chunks++;
  }

  /**
   * The worker begins with a round: the slots of the round before are taken, if its parameters are all here and that was not done. Not chunk by chunk as parameters come, and not of
   * the round itself: a worker that computes a round once more, as the one before it was lost, begins with the slots of before.
   * @returns whether the slots here are those that the round before has left, so that the worker has them too
   */
  takeSlots(round: number): boolean {
    const { come, shard, ended } = this;
    const chunks = shard.chunks();
    if (ended && come?.chunks === chunks.length && come.round < round) {
      for (const chunk of chunks) {
        const { from, slots } = shard.slotsOf(chunk);
        if (slots.length > 0) shard.preserve(chunk);
        for (const [slot, floats] of slots.entries()) ended.slots.copySlot(slot, from, floats);
      }
      this.slotsRound = come.round;
      this.come = undefined;
      if (ended.isCopy) this.ended = undefined;
    }
    return this.slotsRound === round - 1;
  }

  /** The slots that a round begins with. @param each gets a part of one, and the element of the trainable section that it begins at */
  readSlots(round: number, each: (slot: number, from: number, values: Float32Array) => void): void {
    this.takeSlots(round);
    for (const chunk of this.shard.chunks()) {
      const { from, slots } = this.shard.slotsOf(chunk);
      for (const [slot, floats] of slots.entries()) each(slot, from, floats);
    }
  }

  /** A worker does not leave its slots as they are any longer: they are kept where they may still be taken. */
  release(slots: AppliedSlots): void {
    if (!this.ended || !this.hasSlotsOf(slots)) return;
    const { round } = this.ended;
    this.ended = round === this.slotsRound ? undefined : { round, slots: slots.copied(), isCopy: true };
  }
}
