/**
 * Measuring the evaluation split on the live members: fixed blocks of rows, handed out in turn, added up in block order so
 * that the result does not depend on who measured what. A member that goes away gives its blocks back.
 */
import type { Message, MessageOf } from '@paceline/protocol';

const BLOCK_EXAMPLES = 500;
/** A control message is small: more of them go in several. */
const BLOCKS_PER_MESSAGE = 1_000;

interface Block {
  readonly from: number;
  readonly to: number;
  holder: string | undefined;
  result: { examples: number; sums: number[] } | undefined;
}

type Send = (id: string, message: Message) => void;

export class Evaluation {
  private readonly blocks: Block[] = [];

  constructor(
    private readonly generation: number,
    examples: number,
  ) {
    for (let from = 0; from < examples; from += BLOCK_EXAMPLES) {
      this.blocks.push({ from, to: Math.min(from + BLOCK_EXAMPLES, examples), holder: undefined, result: undefined });
    }
  }

  owes(id: string): boolean {
    return this.blocks.some((block) => block.holder === id && !block.result);
  }

  /** Hands blocks without a holder to the live members in turn. */
  offer(live: readonly { id: string }[], send: Send): void {
    if (live.length === 0) return;
    const given = new Map<string, Block[]>();
    let turn = 0;
    for (const block of this.blocks) {
      if (block.holder !== undefined || block.result) continue;
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
    for (const block of this.blocks) if (block.holder === id && !block.result) block.holder = undefined;
    this.offer(live, send);
  }

  /** Keeps a block's measures (the first that come); returns the means when all blocks are there. */
  done(message: MessageOf<'evaluated'>): { loss: number | null; accuracy: number | null } | undefined {
    const block = this.blocks.find((b) => b.from === message.from && b.to === message.to);
    if (!block || block.result || message.generation !== this.generation || message.examples !== block.to - block.from) return undefined;
    block.result = { examples: message.examples, sums: message.sums };
    if (this.blocks.some((b) => !b.result)) return undefined;
    let examples = 0;
    const sums: number[] = [];
    for (const { result } of this.blocks) {
      examples += result!.examples;
      result!.sums.forEach((value, i) => (sums[i] = (sums[i] ?? 0) + value));
    }
    const mean = (sum: number | undefined) => (sum === undefined || !Number.isFinite(sum) ? null : sum / examples);
    return { loss: mean(sums[0]), accuracy: mean(sums[1]) };
  }
}
