/**
 * Parameter chunks on their way to one connection. No more than a window of them is in its queue: to a peer that reads slowly the rest is owed, and
 * follows as the queue drains. A chunk that was committed away meanwhile is not owed any more, so a peer that is far behind gets the present
 * generations, and old ones are not kept in memory for it.
 *
 *   offer ── not in the queue, nor owed ──> owed ── the window has room ──> queue ── flushed ──> the next one that is owed
 */
import { FrameType } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import { sendPublished } from './chunk-frames.js';
import type { OwnedChunk } from './chunks.js';
import type { PublishedChunk } from './published.js';

/** A few writes: the socket never waits for the next chunk. */
const WINDOW_BYTES = 8 << 20;
/** More than any layout has. */
const MOST_CHUNKS = 2 ** 21;
/** A number, since one is made of each chunk for each peer. */
const keyOf = (generation: number, chunk: OwnedChunk, isBase: boolean): number =>
  (generation * MOST_CHUNKS + chunk.index) * 2 + (isBase ? 1 : 0);

interface Owed<C> {
  readonly generation: number;
  readonly chunk: C;
}

export interface OutletOptions<C> {
  readonly connection: Connection;
  numbers(): FrameNumbers;
  /** A chunk of a generation, where it is there. @param base the generation of it that was sent last */
  find(generation: number, chunk: C, base: number | undefined): PublishedChunk | undefined;
  /** What is sent may be the difference to what was sent before, which the peer may lack. */
  readonly sendsDifferences?: boolean | undefined;
  /** Bytes in the queue of the connection; one chunk is always sent. */
  readonly windowBytes?: number | undefined;
}

export class ParameterOutlet<C extends OwnedChunk> {
  private readonly owed = new Map<number, Owed<C>>();
  /** In the queue of the connection. */
  private readonly leaving = new Set<number>();
  private leavingBytes = 0;
  /** Of each chunk, by its index: the generation that was sent last. */
  private readonly sent = new Map<number, number>();
  private isPumping = false;
  private isOver = false;

  constructor(private readonly options: OutletOptions<C>) {}

  /**
   * The peer is to have this chunk. One that is on its way, or owed, is not sent twice.
   * @param isAsked it has asked for it: where differences are sent, it lacks what they are to, and gets the chunk as it is
   */
  offer(generation: number, chunk: C, isAsked = false): void {
    const isBase = isAsked && this.options.sendsDifferences === true;
    if (isBase) this.sent.delete(chunk.index);
    const key = keyOf(generation, chunk, isBase);
    if (this.isOver || this.leaving.has(key) || this.owed.has(key)) return;
    this.owed.set(key, { generation, chunk });
    this.pump();
  }

  /** It is to have the chunk of this generation, which is not in the queue yet. */
  owes(generation: number, chunk: C): boolean {
    return this.owed.has(keyOf(generation, chunk, false)) || this.owed.has(keyOf(generation, chunk, true));
  }

  /** The connection is gone. */
  end(): void {
    this.isOver = true;
    this.owed.clear();
  }

  private pump(): void {
    if (this.isPumping) return; // a chunk that leaves at once goes on with it
    this.isPumping = true;
    const { connection, windowBytes = WINDOW_BYTES } = this.options;
    for (const [key, { generation, chunk }] of this.owed) {
      const found = this.options.find(generation, chunk, this.sent.get(chunk.index));
      const bytes = found?.bytes ?? 0;
      if (this.leavingBytes > 0 && this.leavingBytes + bytes > windowBytes) break;
      this.owed.delete(key);
      if (!found) continue;
      found.region.retain();
      this.sent.set(chunk.index, generation);
      this.leaving.add(key);
      this.leavingBytes += bytes;
      const vector = { type: FrameType.parameters, round: generation, lo: 0, hi: 0 };
      sendPublished(connection, this.options.numbers(), vector, chunk.index, found, () => {
        this.leaving.delete(key);
        this.leavingBytes -= bytes;
        this.pump();
      });
    }
    this.isPumping = false;
  }
}
