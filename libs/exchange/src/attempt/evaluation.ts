/**
 * Measuring the evaluation split on the live members: fixed blocks of rows, handed out in turn, added up in block order so
 * that the result does not depend on who measured what. A member that goes away gives its blocks back.
 */
import type { Message, MessageOf } from '@paceline/protocol';
import { ACCURACY_ALONE, addSums, type Measures, type Measuring } from './measures.js';

const BLOCK_EXAMPLES = 500;
/** A control message is small: more of them go in several. */
const BLOCKS_PER_MESSAGE = 1_000;

interface Block {
  readonly from: number;
  readonly to: number;
  holder: string | undefined;
  isDone: boolean;
  /** Until those of all blocks before it are added. */
  sums: readonly number[] | undefined;
}

type Send = (id: string, message: Message) => void;

/** Examples as they are counted: those of the evaluation split, then those held out. */
export interface MeasuredRange {
  readonly from: number;
  readonly to: number;
}

export class Evaluation {
  private readonly blocks: Block[] = [];
  /** Sums of the first `added` blocks. Blocks that arrive out of order wait, so little is kept of a large split. */
  private readonly sums: number[] = [];
  private added = 0;

  constructor(
    readonly generation: number,
    private readonly range: MeasuredRange,
    private readonly measured: Measuring = ACCURACY_ALONE,
  ) {
    for (let { from } = range; from < range.to; from += BLOCK_EXAMPLES) {
      this.blocks.push({ from, to: Math.min(from + BLOCK_EXAMPLES, range.to), holder: undefined, isDone: false, sums: undefined });
    }
  }

  owes(id: string): boolean {
    return this.blocks.some((block) => block.holder === id && !block.isDone);
  }

  /** Hands blocks without a holder to the live members in turn. */
  offer(live: readonly { id: string }[], send: Send): void {
    if (live.length === 0) return;
    const given = new Map<string, Block[]>();
    let turn = 0;
    for (const block of this.blocks) {
      if (block.holder !== undefined || block.isDone) continue;
      const { id } = live[turn++ % live.length]!;
      block.holder = id;
      const own = given.get(id);
      if (own) own.push(block);
      else given.set(id, [block]);
    }
    for (const [id, all] of given)
      for (let first = 0; first < all.length; first += BLOCKS_PER_MESSAGE) {
        const blocks = all.slice(first, first + BLOCKS_PER_MESSAGE).map(({ from, to }) => ({ from, to }));
        send(id, { type: 'evaluate', generation: this.generation, blocks });
      }
  }

  withdraw(id: string, live: readonly { id: string }[], send: Send): void {
    for (const block of this.blocks) if (block.holder === id && !block.isDone) block.holder = undefined;
    this.offer(live, send);
  }

  /** Keeps a block's measures (the first that come); returns the means when all blocks are there. */
  done(message: MessageOf<'evaluated'>): Measures | undefined {
    const block = this.blocks.find((b) => b.from === message.from && b.to === message.to);
    if (!block || block.isDone || message.generation !== this.generation || message.examples !== block.to - block.from) return undefined;
    block.isDone = true;
    block.sums = message.sums;
    for (let next = this.blocks[this.added]; next?.sums; next = this.blocks[this.added]) {
      addSums(this.sums, next.sums);
      next.sums = undefined;
      this.added++;
    }
    return this.added < this.blocks.length ? undefined : this.measured.finish(this.sums, this.range.to - this.range.from);
  }
}
