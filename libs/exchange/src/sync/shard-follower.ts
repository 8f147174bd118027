/**
 * A shard of mode sync as long as it is a standby: chunks that its primary has reduced enter the round at `apply`, each once. Nothing is published; the
 * primary is told what is applied.
 */
import { ProtocolError, type FrameHeader, type Message, type MessageOf } from '@paceline/protocol';
import { copyOf } from './agreement.js';
import type { Region } from '../attempt/regions.js';
import type { ShardRound } from './shard-round.js';
import type { SHARD_ROWS, ShardState } from './shard-table.js';
import type { StateTable } from '../attempt/state-table.js';

/** Those that the control plane has not stored are few: it stores what a run has done several times a second. */
const MOST_LEFT_OUT = 10_000;

export class ShardFollower {
  /** Rounds that were decided to be left out, the newest of them, in their order. */
  readonly leftOut: number[] = [];

  constructor(
    private readonly round: ShardRound,
    private readonly table: StateTable<ShardState, typeof SHARD_ROWS>,
    private readonly isTwoPhase: boolean,
  ) {}

  /** False when the chunk is applied already. @throws ProtocolError */
  wants({ round, chunk }: FrameHeader): boolean {
    const { number, decision, generations } = this.round;
    if (round > number) throw new ProtocolError('BAD_ROUND', `round ${round}, this standby is in ${number}`);
    if (round < number || generations.next(this.round.chunkAt(chunk)!.place)) return false;
    // Unscaled it would be another update than that of the primary, and nobody would notice.
    if (this.isTwoPhase && !decision) throw new ProtocolError('BAD_ROUND', `the DECISION of round ${round} has not come`);
    return true;
  }

  /** Applies what the primary has reduced. */
  arrived({ round, chunk: index }: FrameHeader, sum: Region | undefined, acknowledge: (message: Message) => void): void {
    const chunk = this.round.chunkAt(index)!;
    const { number, generations } = this.round;
    if (sum && round === number && !generations.next(chunk.place) && this.table.state === 'GATHERING') {
      this.round.make(chunk, sum);
      this.table.take('replica', generations.isWhole ? 'REDUCED' : undefined);
    } else sum?.release();
    acknowledge({ type: 'replicated', round, chunk: index });
  }

  /** Plan two-phase: what comes next is applied like this, or not at all. Returns the chunks that are done with it. */
  decide({ round, ...decision }: MessageOf<'decision'>): number[] {
    const { chunks, generations, number } = this.round;
    if (round === number && decision.skip && this.leftOut.at(-1) !== round) this.leftOut.push(round);
    if (this.leftOut.length > MOST_LEFT_OUT) this.leftOut.shift();
    if (round !== number || this.table.state !== 'GATHERING') return [];
    this.round.decision = copyOf(decision);
    if (!decision.skip) return [];
    for (const chunk of chunks) if (!generations.next(chunk.place)) this.round.make(chunk, undefined);
    this.table.take('replica', 'REDUCED');
    return chunks.map(({ index }) => index);
  }
}
