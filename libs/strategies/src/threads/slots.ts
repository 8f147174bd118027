/**
 * What the optimizer keeps, as the main thread sees it: vectors in the arena; or, where each process keeps a part (Rajbhandari et al., "ZeRO: memory optimizations
 * toward training trillion parameter models", 2020, stage 1), whole copies from when somebody reads or writes them until the next step.
 */
import type { Arena } from '@paceline/kernels';
import { slotRange, type ModelMemory } from './protocol.js';

export class Slots {
  /** The present values in the arena; of this process's part. */
  private readonly views: readonly Float32Array[];
  private readonly from: number;
  private copies: readonly SharedArrayBuffer[] | undefined;
  /** Nothing has changed since the start, in no process. */
  private isInitial = true;

  constructor(
    private readonly initial: readonly number[],
    private readonly trainableLength: number,
    private readonly memory: ModelMemory,
    arena: Arena,
  ) {
    const { offset, length } = slotRange(memory.own, trainableLength);
    this.from = offset;
    this.views = memory.slots.map((pointer) => arena.f32(pointer, length));
  }

  /** @param gather gets the parts of all processes */
  whole(gather: (into: readonly SharedArrayBuffer[]) => void): readonly Float32Array[] {
    if (!this.memory.own || this.views.length === 0) return this.views;
    if (!this.copies) {
      const copies = this.initial.map(() => new SharedArrayBuffer(this.trainableLength * 4));
      if (!this.isInitial) gather(copies);
      else for (const [i, copy] of copies.entries()) new Float32Array(copy).fill(this.initial[i]!);
      this.copies = copies;
    }
    return this.copies.map((copy) => new Float32Array(copy));
  }

  /** Whole copies to which somebody may have written. The processes take over those of the first one: they are no longer needed. */
  staged(): readonly SharedArrayBuffer[] | undefined {
    const { copies } = this;
    this.copies = undefined;
    this.isInitial = false;
    return copies;
  }

  /** Before a step: what was written to the whole copies counts. */
  unstage(): void {
    this.isInitial = false;
    for (const [i, copy] of this.copies?.entries() ?? []) {
      const view = this.views[i]!;
      view.set(new Float32Array(copy, this.from * 4, view.length));
    }
    this.copies = undefined;
  }
}
