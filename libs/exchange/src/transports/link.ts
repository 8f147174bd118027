/**
 * A slow link between a connection and its socket: so many bytes a second each way, and a delay each way. For runs and benches on one machine that are
 * to behave as over a network that is slower.
 *
 *   write ── segment by segment ──> lane (token bucket) ── delay ──> socket
 *   consumer <── delay ── lane <── read from the socket, which waits while its queue is full
 *
 * All connections of a process share its link, as they share a network card: segments of several take turns. What is in a queue is bounded: by what the
 * link holds during its delay, and some segments more.
 */
import type { CancelTimer, Clock } from '../clock.js';
import type { TransportKind } from '../connection.js';
import type { ByteConsumer, ByteStream } from './byte-stream.js';

export interface LinkSpeed {
  /** Each way. */
  readonly bytesPerSecond: number;
  /** Each way: an answer comes after twice as long, at least. */
  readonly delayMs: number;
}

const SEGMENT_BYTES = 16 << 10;
const QUEUE_BYTES = 128 << 10;
/** An idle lane has saved up so much time, so that timers which fire late cost no speed. */
const BURST_MS = 4;

/** One direction: who takes bytes waits until those before them have left. */
class Lane {
  private freeAtMs = -Infinity;

  constructor(
    private readonly bytesPerMs: number,
    private readonly clock: Clock,
  ) {}

  /**
   * @param sinceMs they have waited since then, behind others: a timer that fires late on a busy machine costs no speed
   * @returns when they have left; now, or later
   */
  take(bytes: number, sinceMs = Infinity): number {
    const nowMs = this.clock.now();
    this.freeAtMs = Math.max(this.freeAtMs, Math.min(sinceMs, nowMs - BURST_MS)) + bytes / this.bytesPerMs;
    return Math.max(nowMs, this.freeAtMs);
  }
}

/** What all connections of a process share. */
export class Link {
  readonly out: Lane;
  readonly in: Lane;
  readonly delayMs: number;
  /** Bytes of one connection that may be under way in one direction. */
  readonly queueBytes: number;

  constructor(
    { bytesPerSecond, delayMs }: LinkSpeed,
    readonly clock: Clock,
  ) {
    const bytesPerMs = bytesPerSecond / 1000;
    this.out = new Lane(bytesPerMs, clock);
    this.in = new Lane(bytesPerMs, clock);
    this.delayMs = delayMs;
    this.queueBytes = QUEUE_BYTES + Math.ceil(bytesPerMs * delayMs);
  }
}

interface Due {
  readonly atMs: number;
  readonly bytes: Uint8Array;
}

/** A stream over another one, whose consumer it is. */
export class LinkedStream implements ByteStream, ByteConsumer {
  private inner!: ByteStream;
  /** What is left of the present write. */
  private slices: Uint8Array[] = [];
  private done: (() => void) | undefined;
  private isTaking = false;
  /** Has left, and is not there yet. */
  private readonly leaving: Due[] = [];
  private leavingBytes = 0;
  private isWriting = false;
  private hasEnded = false;
  private readonly coming: Due[] = [];
  private comingBytes = 0;
  private isWanted = false;
  private isReading = false;
  private whenRead: (() => void) | undefined;
  private isOver = false;
  private cancelLeaving: CancelTimer | undefined;
  private cancelComing: CancelTimer | undefined;

  constructor(
    private readonly link: Link,
    private readonly consumer: ByteConsumer,
  ) {}

  /** Called once, before anything else. @param inner made with this stream as its consumer, and hands over what it has read by `fed` */
  over(inner: ByteStream): this {
    this.inner = inner;
    return this;
  }

  get kind(): TransportKind {
    return this.inner.kind;
  }

  get remote(): string {
    return this.inner.remote;
  }

  write(parts: readonly Uint8Array[], done: () => void): void {
    for (const part of parts)
      for (let at = 0; at < part.length; at += SEGMENT_BYTES) this.slices.push(part.subarray(at, at + SEGMENT_BYTES));
    this.done = done;
    this.takeNext();
  }

  afterReads(act: () => void): void {
    this.link.clock.soon(act);
  }

  setReading(on: boolean): void {
    this.isWanted = on;
    this.read();
    if (on) this.deliver();
  }

  end(): void {
    this.hasEnded = true;
    this.endWhenEmpty();
  }

  destroy(): void {
    this.drop();
    this.inner.destroy();
  }

  // ---- what the inner stream calls ----

  destination(): Uint8Array {
    throw new Error('a link takes bytes that were read elsewhere');
  }

  filled(): void {
    throw new Error('a link takes bytes that were read elsewhere');
  }

  fed(bytes: Uint8Array): void {
    if (this.isOver) return;
    this.coming.push({ atMs: this.link.in.take(bytes.length) + this.link.delayMs, bytes });
    this.comingBytes += bytes.length;
    this.read();
    if (this.coming.length === 1) this.deliver();
  }

  streamEnded(): void {
    this.after(() => this.consumer.streamEnded());
  }

  streamClosed(cause: Error | undefined): void {
    // Nobody reads what is still on its way.
    if (!this.isWanted) this.drop();
    this.after(() => {
      this.drop();
      this.consumer.streamClosed(cause);
    });
  }

  // ---- outwards ----

  /** The next segment of the present write enters the lane. @param sinceMs when the one before it has left, where it waited for that */
  private takeNext(sinceMs?: number): void {
    if (this.isTaking || this.isOver || this.slices.length === 0 || this.leavingBytes >= this.link.queueBytes) return;
    this.isTaking = true;
    const slice = this.slices.shift()!;
    this.leavingBytes += slice.length;
    const atMs = this.link.out.take(slice.length, sinceMs);
    const { clock } = this.link;
    const waitMs = atMs - clock.now();
    const leave = (): void => this.hasLeft(slice, atMs);
    // A timer takes a millisecond at least, in which many small frames could leave.
    if (waitMs > 0) clock.after(waitMs, leave);
    else clock.soon(leave);
  }

  private hasLeft(slice: Uint8Array, atMs: number): void {
    this.isTaking = false;
    if (this.isOver) return;
    // Its memory is the caller's again once all has left.
    this.leaving.push({ atMs: atMs + this.link.delayMs, bytes: Uint8Array.from(slice) });
    if (this.leaving.length === 1) this.arrive();
    if (this.slices.length > 0) return this.takeNext(atMs);
    const { done } = this;
    this.done = undefined;
    done?.();
  }

  /** What is due goes to the socket. */
  private arrive(): void {
    const { clock } = this.link;
    if (this.isWriting || this.isOver || this.leaving.length === 0) return;
    const nowMs = clock.now();
    const count = this.leaving.findIndex(({ atMs }) => atMs > nowMs);
    const due = this.leaving.splice(0, count < 0 ? this.leaving.length : count);
    if (due.length === 0) {
      this.cancelLeaving?.();
      this.cancelLeaving = clock.after(this.leaving[0]!.atMs - nowMs, () => this.arrive());
      return;
    }
    this.isWriting = true;
    this.inner.write(
      due.map(({ bytes }) => bytes),
      () => {
        this.isWriting = false;
        for (const { bytes } of due) this.leavingBytes -= bytes.length;
        this.takeNext();
        this.arrive();
        this.endWhenEmpty();
      },
    );
  }

  private endWhenEmpty(): void {
    if (this.hasEnded && !this.isOver && this.leavingBytes === 0 && this.slices.length === 0) this.inner.end();
  }

  // ---- inwards ----

  /** The socket is read while its queue has room. */
  private read(): void {
    const isReading = this.isWanted && this.comingBytes < this.link.queueBytes;
    if (isReading === this.isReading) return;
    this.isReading = isReading;
    this.inner.setReading(isReading);
  }

  private deliver(): void {
    const { clock } = this.link;
    this.cancelComing?.();
    while (this.isWanted && this.coming.length > 0) {
      const waitMs = this.coming[0]!.atMs - clock.now();
      if (waitMs > 0) {
        this.cancelComing = clock.after(waitMs, () => this.deliver());
        break;
      }
      const { bytes } = this.coming.shift()!;
      this.comingBytes -= bytes.length;
      this.consumer.fed(bytes);
    }
    if (!this.isOver) this.read();
    if (this.coming.length > 0) return;
    const { whenRead } = this;
    this.whenRead = undefined;
    whenRead?.();
  }

  /** Behind all that is still on its way. */
  private after(act: () => void): void {
    const { whenRead } = this;
    this.whenRead = () => {
      whenRead?.();
      act();
    };
    if (this.coming.length === 0) this.deliver();
  }

  private drop(): void {
    this.isOver = true;
    this.cancelLeaving?.();
    this.cancelComing?.();
    this.slices = [];
    this.leaving.length = 0;
    this.coming.length = 0;
    this.comingBytes = 0;
  }
}
