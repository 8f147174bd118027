/**
 * The two generations of the parameters that a member has, in two vectors that take turns, and which chunks of each have come.
 *
 * Where a round exchanges a part of the chunks alone (fragments), the others are those of the next generation too: they are carried over, also where a member
 * has missed rounds in between.
 */
import { partOf, type MemberChunk } from '../transfer/chunks.js';
import type { ParameterArrivals } from './member-table.js';

interface Slot {
  generation: number;
  /** Chunks that have come, by their index. */
  readonly have: Set<number>;
}

interface Options {
  readonly chunks: ReadonlyMap<number, MemberChunk>;
  /** The vector of a generation: that of the one two before it. */
  bytes(generation: number): Uint8Array;
  /** Whether a round changes a chunk; undefined: every round changes all. */
  readonly isExchanged: ((round: number, chunk: number) => boolean) | undefined;
  /** Chunks of a generation come for the first time. */
  opens(generation: number): void;
  readonly arrivals?: ParameterArrivals | undefined;
}

export class HeldGenerations {
  /** The present round: what is of earlier generations is not wanted any more. */
  round = 0;
  private readonly slots: readonly [Slot, Slot] = [
    { generation: -1, have: new Set() },
    { generation: -1, have: new Set() },
  ];

  constructor(private readonly options: Options) {}

  /** What is here of this generation, or of another one in its place. */
  at(generation: number): Readonly<Slot> {
    return this.slots[generation & 1]!;
  }

  has(generation: number, chunk: number): boolean {
    const slot = this.at(generation);
    return slot.generation === generation && slot.have.has(chunk);
  }

  /** A chunk has to come again. */
  forget(generation: number, chunk: number): void {
    const slot = this.slots[generation & 1]!;
    if (slot.generation === generation && slot.have.delete(chunk)) this.options.arrivals?.gone(generation, chunk);
  }

  /** A chunk of a generation that has its slot is whole. */
  came(generation: number, chunk: number): void {
    this.add(this.slots[generation & 1]!, chunk);
  }

  isComplete(generation: number): boolean {
    const slot = this.at(generation);
    return slot.generation === generation && slot.have.size === this.options.chunks.size;
  }

  exchanges(round: number, chunk: number): boolean {
    return this.options.isExchanged?.(round, chunk) !== false;
  }

  /** The slot that takes chunks of `generation`, or undefined when the generation is not wanted any more. */
  slotFor(generation: number): Readonly<Slot> | undefined {
    const slot = this.slots[generation & 1]!;
    if (slot.generation === generation) return slot;
    if (slot.generation > generation || generation < this.round) return undefined;
    this.options.opens(generation);
    if (generation === slot.generation + 2) this.carry(slot.generation, slot.have);
    // The vectors of both generations lie in one place.
    const kept = [...slot.have].filter((chunk) => this.standsStill(chunk, slot.generation, generation));
    slot.generation = generation;
    slot.have.clear();
    for (const chunk of kept) slot.have.add(chunk);
    this.options.arrivals?.opens(generation, kept);
    const other = this.slots[(generation + 1) & 1]!;
    if (other.generation < generation) this.copy(other, slot, (chunk) => this.standsStill(chunk, other.generation, generation));
    return slot;
  }

  /** The round is about to be `round`. What is here of a generation that is not complete counts too. */
  moveTo(round: number): void {
    if (this.options.isExchanged)
      for (let generation = Math.max(this.round, round - 2); generation < round; generation++) {
        const slot = this.at(generation);
        if (slot.generation === generation) this.carry(generation, slot.have);
      }
    this.round = round;
    if (this.options.isExchanged) this.slotFor(round);
  }

  /** Chunks that a round does not exchange are those of the next generation too. */
  carry(round: number, chunks: Iterable<number>): void {
    if (!this.options.isExchanged) return;
    const next = this.slotFor(round + 1);
    if (next) this.copy({ generation: round, have: chunks }, next, (chunk) => !this.exchanges(round, chunk));
  }

  private copy(from: { readonly generation: number; readonly have: Iterable<number> }, to: Slot, isSame: (chunk: number) => boolean): void {
    const [source, target] = [this.options.bytes(from.generation), this.options.bytes(to.generation)];
    for (const index of from.have) {
      if (to.have.has(index) || !isSame(index)) continue;
      const chunk = this.options.chunks.get(index)!;
      partOf(target, chunk).set(partOf(source, chunk));
      this.add(to, index);
    }
  }

  private add(slot: Slot, chunk: number): void {
    slot.have.add(chunk);
    this.options.arrivals?.came(slot.generation, chunk);
  }

  /** Whether a chunk of one generation is that of a later one too. Each chunk is exchanged once in so many rounds: this ends soon. */
  private standsStill(chunk: number, from: number, to: number): boolean {
    if (!this.options.isExchanged) return false;
    for (let round = from; round < to; round++) if (this.exchanges(round, chunk)) return false;
    return true;
  }
}
