/**
 * A Connection over a byte stream: the one framing of all transports.
 *
 *   GREETED  who accepts says its challenge at once; who dials holds what it has to send until that has come, and HELLO repeats it.
 *   OPEN     frames go both ways. Sent frames wait in two queues: messages, and data with the messages that belong behind it. A batch takes
 *            messages first: a heartbeat or a COMMIT waits for the data frames that are leaving, not for all that wait. One batch at a time is
 *            with the stream (a vectored write; of payloads only small ones are joined), and `onFlushed` follows when it has left.
 *   CLOSING  entered once, by either side or by a fault. No frame is delivered any more, waiting data frames are given up. Messages that
 *            waited before them, and the `refused`, still leave; of what belongs behind a data frame only what stands
 *            alone (`STANDS_ALONE`): anything else may build on what was given up, and its reader would find a hole. What the peer sends is read and dropped: its end is noticed at
 *            once, and no unread bytes turn the end of a TCP connection into a reset that destroys the last message.
 *   CLOSED   the stream is gone: the peer closed too, or the linger time is over.
 *
 * The receiver hears `closed` once, in a later turn than the call that caused it, and no region is touched after that, except
 * that a payload being sent stays in use until its `onFlushed`.
 *
 * A ProtocolError thrown by the receiver refuses the peer. Any other error is a fault of this process: the connection is
 * closed and the error goes on, to be loud.
 */
import {
  FrameFlag,
  HEADER_BYTES,
  MAX_ROW_BYTES,
  MAX_CHUNK_BYTES,
  Codec,
  ProtocolError,
  type DataPlaneErrorCode,
  type FrameHeader,
  type Message,
} from '@paceline/protocol';
import type { CancelTimer } from '../clock.js';
import type { Connection, ConnectionClosed, FrameNumbers, FrameReceiver, MessagePlace, TransportKind } from '../connection.js';
import type { ByteConsumer, ByteStream } from './byte-stream.js';
import { countRefused } from './counters.js';
import { FrameReader, type FrameSink } from './frame-reader.js';
import { MAX_DRAINED_BYTES, type ResolvedOptions } from './limits.js';
import { spans } from '../trace/spans.js';
import { controlFrame, isChecked, NO_NUMBERS, written, type OutgoingFrame } from './outgoing-frame.js';
import { sendingChecksums } from './payload-checksums.js';

/** One write takes about this much: a larger one frees its regions later, a smaller one costs more turns. */
const BATCH_BYTES = 1 << 20;
const BATCH_FRAMES = 64;
/** So much is written at once, while it is in the cache; about what a Unix socket takes. Less waits for what else is made of the bytes that have come. */
const EAGER_BYTES = 192 << 10;
/** Before the challenge has come a peer has little to say: HELLO and where it stands. */
const MAX_HELD = 256;
/** Counts connections, for their names. It is an object because oxlint reports a counter that only texts read. */
const numbers = { next: 1 };
const tracksOf = (connection: number) => ({ from: `from connection ${connection}`, to: `to connection ${connection}` });

/** How a connection begins. Two ends inside one process know each other. */
export type Greeting =
  | { readonly kind: 'none' }
  | { readonly kind: 'dials' }
  /** `challenge` is of this connection alone. `admit` is called when the hello has come; it must set the receiver before it returns. */
  | { readonly kind: 'accepts'; readonly challenge: string; admit(): void };

export class FramedConnection implements Connection, ByteConsumer, FrameSink {
  private readonly reader: FrameReader;
  private stream!: ByteStream;
  private receiver: FrameReceiver | undefined;
  /** Data, and the messages behind it. */
  private queue: OutgoingFrame[] = [];
  /** Messages that leave before it. */
  private messages: OutgoingFrame[] = [];
  private inFlight: readonly OutgoingFrame[] | undefined;
  private state: 'open' | 'closing' | 'closed' = 'open';
  private ended = false;
  private parsing = false;
  private drainedBytes = 0;
  private cancelLinger: CancelTimer | undefined;
  /** Why it closed before there was a receiver to tell. */
  private unheard: ConnectionClosed | undefined;
  /** What the peer refused this side with. */
  refusedByPeer: ProtocolError | undefined;
  /** On the dialling side: what to send when the challenge has come. */
  private held: (() => void)[] | undefined;
  private answer: string | undefined;
  /** What is queued leaves when all that has come is read. */
  private isPumpDue = false;
  private readonly pumpDue = (): void => {
    this.isPumpDue = false;
    this.pump();
  };
  queuedBytes = 0;
  sentBytes = 0;
  receivedBytes = 0;
  savedSentBytes = 0;
  savedReceivedBytes = 0;
  /** In traces. A name that is made for each span costs as much as the span. */
  private readonly tracks = tracksOf(numbers.next++);
  /** The run that sends over it: `owner` of the recorder when it first does. */
  private owner: unknown;
  /** Since when the present payload is read, where that is recorded. */
  private receivingMs = 0;

  constructor(
    private readonly options: ResolvedOptions,
    private readonly greeting: Greeting = { kind: 'none' },
    private readonly whenGone?: () => void,
  ) {
    this.reader = new FrameReader(this, greeting.kind === 'accepts');
    if (greeting.kind === 'dials') this.held = [];
  }

  /** Called once, before anything else. An accepted connection reads at once, any other when it has a receiver. */
  attach(stream: ByteStream): void {
    this.stream = stream;
    const { challenge } = this;
    if (challenge === undefined) return;
    stream.setReading(true);
    this.sendMessage({ type: 'challenge', challenge }, NO_NUMBERS);
  }

  get kind(): TransportKind {
    return this.stream.kind;
  }

  get remote(): string {
    return this.stream.remote;
  }

  get receivedDataBytes(): number {
    return this.reader.dataBytes;
  }

  get isOpen(): boolean {
    return this.state === 'open';
  }

  get challenge(): string | undefined {
    return this.greeting.kind === 'accepts' ? this.greeting.challenge : undefined;
  }

  setReceiver(receiver: FrameReceiver): void {
    this.receiver = receiver;
    const { unheard } = this;
    this.unheard = undefined;
    if (unheard) this.options.clock.soon(() => receiver.closed(unheard));
    if (this.state === 'open') this.stream.setReading(true);
  }

  sendMessage(message: Message, numbers: FrameNumbers, place: MessagePlace = 'first'): void {
    if (this.held) return this.hold(() => this.sendMessage(message, numbers, place));
    if (this.state !== 'open') return;
    const { answer } = this;
    const isAnswer = message.type === 'hello' && answer !== undefined;
    const frame = controlFrame(isAnswer ? { ...message, challenge: answer } : message, numbers, this.checks);
    this.enqueue(frame, place === 'first' ? this.messages : this.queue);
  }

  sendData(fields: Omit<FrameHeader, 'length' | 'payloadChecksum' | 'flags'>, payload: Uint8Array, onFlushed?: () => void): void {
    const bound = fields.codec === Codec.rows ? MAX_ROW_BYTES : MAX_CHUNK_BYTES;
    if (payload.length > bound) throw new RangeError(`a payload of ${payload.length} bytes is over the bound of ${bound}`);
    if (this.held) return this.hold(() => this.sendData(fields, payload, onFlushed));
    if (this.state !== 'open') {
      if (onFlushed) this.options.clock.soon(onFlushed);
      return;
    }
    const { type, codec, attempt, term, view, round, nodeLo, nodeHi, chunk } = fields;
    const flags = this.checks ? FrameFlag.payloadChecksum : 0;
    const header = { type, codec, flags, attempt, term, view, round, nodeLo, nodeHi, chunk, length: payload.length, payloadChecksum: 0 };
    if (this.checks) sendingChecksums.hold(payload);
    this.enqueue({ payload, header, standsAlone: false, bytes: HEADER_BYTES + payload.length, onFlushed }, this.queue);
  }

  close(error?: ProtocolError): void {
    this.shutDown({ error, description: error ? error.message : 'closed by this side' }, error);
  }

  /** For listeners: ends the connection without any wait. */
  destroy(): void {
    this.shutDown({ description: 'destroyed by this side' });
    this.stream.destroy();
  }

  // What the reader calls.

  payloadFor(header: FrameHeader): Uint8Array {
    if (this.held) throw new ProtocolError('BAD_FRAME', 'data came before the challenge');
    this.receivingMs = spans.now();
    return this.receiver!.payloadFor(header);
  }

  check(header: FrameHeader): void {
    if (!this.held) this.receiver!.check?.(header);
  }

  arrived(savedBytes: number): void {
    this.options.counters.framesIn++;
    this.savedReceivedBytes += savedBytes;
  }

  data(header: FrameHeader, payload: Uint8Array): void {
    if (this.receivingMs > 0) spans.add('receive', this.receivingMs, this.tracks.from, header.round, this.owner);
    this.receiver!.data(header, payload);
  }

  message(message: Message, header: FrameHeader): void {
    if (this.held && message.type !== 'refused') return this.challenged(message);
    if (!this.receiver) {
      if (message.type === 'refused') return this.refused(message.code, message.message);
      if (this.greeting.kind === 'accepts') this.greeting.admit();
      if (this.state !== 'open') return;
      if (!this.receiver) throw new Error('a new connection was taken without setting its receiver');
    }
    this.receiver!.message(message, header);
    if (message.type === 'refused') this.refused(message.code, message.message);
  }

  // What the stream calls.

  destination(): Uint8Array {
    return this.reader.destination();
  }

  filled(count: number): void {
    if (this.counts(count)) this.parse(undefined, count);
  }

  fed(bytes: Uint8Array): void {
    if (this.counts(bytes.length)) this.parse(bytes, bytes.length);
  }

  streamEnded(): void {
    this.shutDown({ description: 'closed by the peer' });
    this.stream.destroy();
  }

  streamClosed(cause: Error | undefined): void {
    if (this.state === 'closed') return;
    this.shutDown({ description: cause ? `the connection broke: ${cause.message}` : 'closed by the peer' });
    this.state = 'closed';
    this.cancelLinger?.();
    const left = [...(this.inFlight ?? []), ...this.messages, ...this.queue];
    this.inFlight = undefined;
    this.messages = [];
    this.queue = [];
    this.release(left);
    this.whenGone?.();
  }

  private refused(code: DataPlaneErrorCode, detail: string): void {
    this.refusedByPeer = new ProtocolError(code, detail);
    this.shutDown({ error: this.refusedByPeer, description: `refused by the peer: ${this.refusedByPeer.message}` });
  }

  /** Counts what has come. False when nobody reads it any more. */
  private counts(count: number): boolean {
    this.options.counters.bytesIn += count;
    this.receivedBytes += count;
    if (this.state === 'open') return true;
    this.drainedBytes += count;
    if (this.drainedBytes > MAX_DRAINED_BYTES) this.stream.destroy();
    return false;
  }

  /** @param bytes where they lie elsewhere than in the last destination */
  private parse(bytes: Uint8Array | undefined, count: number): void {
    this.parsing = true;
    try {
      if (bytes) this.reader.feed(bytes);
      else this.reader.filled(count);
    } catch (error) {
      if (error instanceof ProtocolError) return this.close(error);
      this.shutDown({ description: `a fault of this process: ${(error as Error).message}` });
      throw error;
    } finally {
      this.parsing = false;
    }
  }

  /** It waits for the challenge. */
  private hold(act: () => void): void {
    this.held!.push(act);
    if (this.held!.length > MAX_HELD) this.close(new ProtocolError('SLOW_CONSUMER', `${this.remote} has not said its challenge`));
  }

  private challenged(message: Message): void {
    if (message.type !== 'challenge') throw new ProtocolError('BAD_MESSAGE', `${message.type} came before the challenge`);
    this.answer = message.challenge;
    this.letHeldGo();
  }

  private letHeldGo(): void {
    const held = this.held ?? [];
    this.held = undefined;
    for (const act of held) act();
  }

  private enqueue(frame: OutgoingFrame, queue: OutgoingFrame[]): void {
    queue.push(frame);
    this.owner ??= spans.owner;
    this.queuedBytes += frame.bytes;
    if (this.queuedBytes > this.options.maxQueuedBytes) {
      this.close(new ProtocolError('SLOW_CONSUMER', `${this.queuedBytes} bytes wait for ${this.remote}, which does not read them`));
      return;
    }
    if (this.inFlight || this.isPumpDue) return;
    if (this.queuedBytes >= EAGER_BYTES || !this.stream.afterReads) return this.pump();
    this.isPumpDue = true;
    this.stream.afterReads(this.pumpDue);
  }

  /** Hands the next batch to the stream, if it is idle. */
  private pump(): void {
    if (this.inFlight || this.state === 'closed') return;
    const batch = this.nextBatch();
    if (batch.length === 0) {
      if (this.state === 'closing' && !this.ended) {
        this.ended = true;
        this.stream.end();
      }
      return;
    }
    const { parts, frames, bytes, savedBytes } = written(batch);
    this.sentBytes += bytes;
    this.savedSentBytes += savedBytes;
    this.options.counters.framesOut += frames;
    this.options.counters.bytesOut += bytes;
    this.inFlight = batch;
    const sinceMs = spans.now();
    this.stream.write(parts, () => {
      if (sinceMs > 0) spans.add('send', sinceMs, this.tracks.to, undefined, this.owner);
      if (this.inFlight !== batch) return;
      this.inFlight = undefined;
      for (const frame of batch) this.letGo(frame);
      for (const frame of batch) frame.onFlushed?.();
      this.pump();
    });
  }

  /** Messages first, then data and what belongs behind it. */
  private nextBatch(): OutgoingFrame[] {
    const batch: OutgoingFrame[] = [];
    let bytes = 0;
    for (const queue of [this.messages, this.queue]) {
      let count = 0;
      for (; count < queue.length && batch.length + count < BATCH_FRAMES && bytes < BATCH_BYTES; count++) bytes += queue[count]!.bytes;
      batch.push(...queue.splice(0, count));
    }
    return batch;
  }

  private shutDown(reason: ConnectionClosed, refusal?: ProtocolError): void {
    if (this.state !== 'open') return;
    this.state = 'closing';
    // A peer that was not even challenged is told nothing.
    const isGreeted = this.held === undefined;
    this.letHeldGo();
    const unfinished = this.reader.stop();
    // Between reads the operating system still holds the region of an unfinished frame: stop reading, at the price of a reset.
    if (unfinished && !this.parsing) this.stream.setReading(false);
    const hole = this.queue.findIndex((frame) => frame.payload);
    const behind = hole < 0 ? [] : this.queue.splice(hole);
    this.queue.push(...behind.filter(({ standsAlone }) => standsAlone));
    this.release(behind.filter(({ standsAlone }) => !standsAlone));
    if (refusal && isGreeted) {
      countRefused(this.options.counters, refusal.code);
      const frame = controlFrame({ type: 'refused', code: refusal.code, message: refusal.detail.slice(0, 2000) }, NO_NUMBERS, this.checks);
      this.queue.push(frame);
      this.queuedBytes += frame.bytes;
    }
    this.cancelLinger = this.options.clock.after(this.options.lingerMs, () => this.stream.destroy());
    this.pump();
    const { receiver } = this;
    if (receiver) this.options.clock.soon(() => receiver.closed({ ...reason, unfinished }));
    else this.unheard = reason;
  }

  /** Whether what leaves here carries a checksum. */
  private get checks(): boolean {
    return this.options.checksum ?? this.kind === 'tcp';
  }

  private letGo(frame: OutgoingFrame): void {
    this.queuedBytes -= frame.bytes;
    if (isChecked(frame)) sendingChecksums.release(frame.payload!);
  }

  private release(frames: readonly OutgoingFrame[]): void {
    for (const frame of frames) {
      this.letGo(frame);
      if (frame.onFlushed) this.options.clock.soon(frame.onFlushed);
    }
  }
}
