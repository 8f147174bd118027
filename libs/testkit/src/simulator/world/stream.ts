/** One side of a simulated connection: bytes leave when the receiver has room, travel, and are read; a break or a kill cuts them off. */
import type { ByteStream, ByteConsumer } from '@paceline/exchange';
import type { ScheduledEvent } from './world.js';
import type { SimProcess } from './process.js';
import type { World } from './world.js';

type Piece = Uint8Array | 'end' | 'reset';

/** A part of a write on a slow link: the byte that it ends before, and when it has left after the write has begun. */
export interface Leg {
  readonly upTo: number;
  readonly atMs: number;
}

/** On a slow link bytes leave this often. */
const TRICKLE_MS = 250;

/** The network as one of its streams sees it. */
export interface StreamNetwork {
  readonly world: World;
  readonly streams: Set<SimStream>;
  readonly weather: { readonly bytesPerMs: number; readonly windowBytes: number; readonly cuts: number };
  readonly eats: ((stream: SimStream, frames: Uint8Array) => boolean) | undefined;
  readonly paces: ((stream: SimStream, frames: Uint8Array) => readonly Leg[] | undefined) | undefined;
  count(fault: string): void;
  latency(): number;
  isBlocked(from: string, to: string): boolean;
}

export class SimStream implements ByteStream {
  readonly kind = 'tcp';
  peer: SimStream | undefined;
  /** Flip a bit of the next piece that this stream sends. */
  flipNext = false;
  /** Takes whole writes as they leave. */
  onWritten: ((bytes: Uint8Array) => void) | undefined;
  /** Sent by this side and not yet in the peer's inbox, in order. */
  private readonly travelling: { piece: Piece; arriveMs: number }[] = [];
  private travelEvent: ScheduledEvent | undefined;
  private leaving: { parts: readonly Uint8Array[]; bytes: number; done: () => void } | undefined;
  /** Some bytes of the write that is under way have left. */
  private isTrickling = false;
  private readonly inbox: Piece[] = [];
  private inboxBytes = 0;
  private lastArriveMs = 0;
  private linkFreeMs = 0;
  private reading = false;
  private open = true;
  private sentEnd = false;
  /** The connection is broken, and this side has not heard of it: what it sends goes nowhere. */
  private broken = false;
  private readScheduled = false;

  constructor(
    private readonly network: StreamNetwork,
    readonly process: SimProcess,
    private readonly consumer: ByteConsumer,
    readonly remote: string,
  ) {
    network.streams.add(this);
    process.onKill(() => this.processKilled());
  }

  get isOpen(): boolean {
    return this.open;
  }

  /** A write is under way. */
  get isSending(): boolean {
    return this.leaving !== undefined;
  }

  private get inMemory(): boolean {
    return this.peer?.process === this.process;
  }

  write(parts: readonly Uint8Array[], done: () => void): void {
    this.leaving = { parts, bytes: parts.reduce((sum, part) => sum + part.length, 0), done };
    this.tryLeave();
  }

  setReading(on: boolean): void {
    this.reading = on;
    this.scheduleRead();
  }

  end(): void {
    if (this.sentEnd) return;
    this.sentEnd = true;
    this.send('end');
  }

  destroy(): void {
    if (!this.open) return;
    this.open = false;
    const { leaving } = this;
    this.leaving = undefined;
    if (leaving) this.process.soon(leaving.done);
    this.end();
    this.inbox.length = 0;
    this.network.world.schedule(0, `${this.process.name} stream gone`, () => this.process.run(() => this.consumer.streamClosed(undefined)));
    this.forgetLater();
  }

  /** The connection breaks: both sides hear of it, each in its time. @param late the share of sides that hear of it up to 4 s later */
  break(late = 0.2): void {
    if (!this.open) return;
    this.network.count('broken connection');
    const { peer } = this;
    for (const side of [this, peer]) {
      if (!side?.open) continue;
      side.cutTravelling();
      side.broken = true;
      side.sentEnd = true;
      const lateMs = this.network.world.random.chance(late) ? this.network.world.random.between(0, 4_000) : this.network.latency();
      this.network.world.schedule(lateMs, `${side.process.name} hears of a broken connection`, () =>
        side.process.run(() => side.breakHere('ECONNRESET')),
      );
    }
  }

  /** A partition has gone: what waited travels on. */
  wake(): void {
    this.scheduleTravel();
  }

  /** The first bytes of what this side still has under way go lost with it; a prefix may already be through. */
  private cutTravelling(): void {
    const { random } = this.network.world;
    const keep = random.int(0, this.travelling.length);
    const cut = this.travelling[keep];
    this.travelling.length = keep;
    if (cut && cut.piece instanceof Uint8Array && cut.piece.length > 1)
      this.travelling.push({ piece: cut.piece.subarray(0, random.int(1, cut.piece.length - 1)), arriveMs: cut.arriveMs });
  }

  private breakHere(code: string): void {
    if (!this.open) return;
    this.open = false;
    const { leaving } = this;
    this.leaving = undefined;
    this.inbox.length = 0;
    this.consumer.streamClosed(new Error(code));
    if (leaving) this.process.soon(leaving.done);
    this.forgetLater();
  }

  private processKilled(): void {
    if (!this.open) return;
    this.open = false;
    const { leaving, peer } = this;
    this.leaving = undefined;
    if (leaving) {
      const all = Buffer.concat(leaving.parts);
      const through = this.network.world.random.int(0, all.length);
      if (through > 0 && through < all.length) this.network.count('killed half-way through a frame');
      if (through > 0) this.send(all.subarray(0, through));
    }
    // Unread bytes turn the end into a reset.
    if (!this.sentEnd && !this.inMemory) this.send(this.inboxBytes > 0 ? 'reset' : 'end');
    this.sentEnd = true;
    this.network.streams.delete(this);
    if (peer?.inMemory === false && !peer.open) this.travelling.length = 0;
  }

  private tryLeave(): void {
    const { leaving, peer } = this;
    if (!leaving || !this.open || this.isTrickling) return;
    if (peer && peer.inboxBytes + this.travellingBytes() > this.network.weather.windowBytes && !this.inMemory) return;
    const { world, weather } = this.network;
    const startMs = Math.max(world.nowMs, this.linkFreeMs);
    const legs = this.network.paces?.(this, Buffer.concat(leaving.parts));
    if (legs) return this.trickle(leaving, startMs, legs);
    this.linkFreeMs = this.inMemory ? startMs : startMs + leaving.bytes / weather.bytesPerMs;
    world.schedule(this.linkFreeMs - world.nowMs, `${this.process.name} sends ${leaving.bytes}`, () => {
      if (this.leaving !== leaving) return;
      this.leaving = undefined;
      // The bytes are read now: a region that was reused too early shows.
      const bytes = Buffer.concat(leaving.parts);
      this.onWritten?.(bytes);
      const isEaten = this.network.eats?.(this, bytes);
      if (!this.open) return; // whoever looks at it has killed the process
      if (this.flipNext) {
        this.flipNext = false;
        this.network.count('bit flip in a frame');
        bytes[world.random.int(0, bytes.length - 1)]! ^= 1 << world.random.int(0, 7);
      }
      if (isEaten) this.network.count('eaten frame');
      else for (const piece of this.cut(bytes)) this.send(piece);
      this.process.run(leaving.done);
    });
  }

  /** A slow link: the peer sees some of the bytes long before the last one. They are read as they leave. */
  private trickle(leaving: NonNullable<SimStream['leaving']>, startMs: number, legs: readonly Leg[]): void {
    const { world } = this.network;
    this.linkFreeMs = startMs + legs.at(-1)!.atMs;
    this.isTrickling = true;
    let sent = 0;
    const go = (): void => {
      if (this.leaving !== leaving) return;
      const upTo = bytesAt(legs, world.nowMs - startMs);
      if (upTo > sent) this.send(Buffer.concat(leaving.parts).subarray(sent, upTo));
      sent = upTo;
      if (sent < leaving.bytes) return void world.schedule(TRICKLE_MS, `${this.process.name} sends some of ${leaving.bytes}`, go);
      this.leaving = undefined;
      this.isTrickling = false;
      this.process.run(leaving.done);
    };
    world.schedule(startMs - world.nowMs, `${this.process.name} begins to send ${leaving.bytes}`, go);
  }

  private cut(bytes: Uint8Array): Uint8Array[] {
    const { random } = this.network.world;
    if (this.inMemory || bytes.length < 2 || !random.chance(this.network.weather.cuts)) return [bytes];
    const at = random.int(1, bytes.length - 1);
    return [bytes.subarray(0, at), bytes.subarray(at)];
  }

  private travellingBytes(): number {
    let bytes = 0;
    for (const { piece } of this.travelling) if (piece instanceof Uint8Array) bytes += piece.length;
    return bytes;
  }

  private send(piece: Piece): void {
    if (!this.peer || this.broken) return;
    const { world } = this.network;
    this.lastArriveMs = Math.max(this.lastArriveMs, world.nowMs + (this.inMemory ? 0 : this.network.latency()));
    this.travelling.push({ piece, arriveMs: this.lastArriveMs });
    this.scheduleTravel();
  }

  private scheduleTravel(): void {
    const first = this.travelling[0];
    if (this.travelEvent || !first || !this.peer) return;
    this.travelEvent = this.network.world.schedule(first.arriveMs - this.network.world.nowMs, `→ ${this.peer.process.name}`, () => {
      this.travelEvent = undefined;
      if (!this.inMemory && this.network.isBlocked(this.process.host, this.peer!.process.host)) return;
      const arrived = this.travelling.shift();
      if (arrived) this.peer!.receive(arrived.piece);
      this.scheduleTravel();
    });
  }

  private receive(piece: Piece): void {
    if (!this.open) return;
    if (piece === 'reset') return this.process.run(() => this.breakHere('ECONNRESET'));
    this.inbox.push(piece);
    if (piece instanceof Uint8Array) this.inboxBytes += piece.length;
    this.read();
  }

  private scheduleRead(): void {
    if (this.readScheduled || !this.reading || this.inbox.length === 0) return;
    this.readScheduled = true;
    this.network.world.schedule(0, `${this.process.name} reads`, () => {
      this.readScheduled = false;
      this.read();
    });
  }

  private read(): void {
    if (!this.reading || !this.open || !this.process.isAlive) return;
    this.process.run(() => {
      const piece = this.reading && this.open ? this.inbox.shift() : undefined;
      if (piece === undefined) return;
      if (piece === 'end') this.consumer.streamEnded();
      else if (piece instanceof Uint8Array) {
        this.inboxBytes -= piece.length;
        this.network.world.note('read', checksum(piece));
        try {
          this.deliver(piece);
        } finally {
          this.peer?.tryLeave();
        }
      }
      this.scheduleRead();
    });
  }

  /** In place where the consumer says, as a socket with `onread` does. */
  private deliver(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length && this.open;) {
      const target = this.consumer.destination();
      const count = Math.min(target.length, bytes.length - at);
      target.set(bytes.subarray(at, at + count));
      this.consumer.filled(count);
      at += count;
    }
  }

  private forgetLater(): void {
    this.network.streams.delete(this);
  }
}

/** How far a write is after so long. */
function bytesAt(legs: readonly Leg[], ms: number): number {
  let from: Leg = { upTo: 0, atMs: 0 };
  for (const leg of legs) {
    if (ms < leg.atMs) return from.upTo + Math.floor(((leg.upTo - from.upTo) * (ms - from.atMs)) / (leg.atMs - from.atMs));
    from = leg;
  }
  return from.upTo;
}

function checksum(bytes: Uint8Array): number {
  let hash = bytes.length;
  for (let i = 0; i < bytes.length; i++) hash = Math.imul(hash ^ bytes[i]!, 0x01000193);
  return hash;
}
