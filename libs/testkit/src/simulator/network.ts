/**
 * The simulated network: byte streams under the real framing. A frame is cut into pieces, waits, is held up by a partition, loses
 * its end with the connection that carried it, or arrives with a bit flipped; FramedConnection and FrameReader of libs/exchange
 * make of that what they make of it in production.
 *
 *   write ──> leaves when the receiver's buffer has room (bytes are read then, not before; `done` follows)
 *         ──> travels: latency, bandwidth, partitions; order is kept within a stream, never between streams
 *         ──> is put into the receiver's regions, when its process reads
 *
 * A killed process leaves a prefix of what it was writing, then its end; a lost host leaves nothing at all.
 */
import { FramedConnection, resolveOptions, type ByteConsumer, type ByteStream, type Connection } from '@paceline/exchange';
import type { ServerAddress } from '@paceline/control-plane';
import { SimProcess } from './process.js';
import { Recordings } from './replay.js';
import type { ScheduledEvent, World } from './world.js';

export interface NetworkWeather {
  /** One way, each piece draws its own. */
  readonly latencyMs: readonly [from: number, to: number];
  /** Share of pieces that take ten to a hundred times as long. */
  readonly spikes: number;
  readonly bytesPerMs: number;
  /** Bytes that a receiver's buffer takes beyond what was read. */
  readonly windowBytes: number;
  /** Share of writes that arrive in several pieces. */
  readonly cuts: number;
}

const LONGEST_MS = 800;

/** As the network knows it: host, then the rest. */
export const addressOf = ({ host, port }: Pick<ServerAddress, 'host' | 'port'>): string => `${host}/${port}`;

type Listener = (stream: (consumer: ByteConsumer) => ByteStream) => void;

export class Network {
  readonly streams = new Set<SimStream>();
  private readonly listeners = new Map<string, { readonly process: SimProcess; readonly accept: Listener }>();
  /** `from→to` between hosts, '*' for all: bytes wait until the entry goes. */
  private readonly blocked = new Set<string>();
  private challenges = 0;
  readonly fired = new Map<string, number>();
  readonly recordings = new Recordings();
  /** True for a write (of whole frames) that is to go nowhere, though its connection holds: no network does that, a mistake in our code may. */
  eats: ((stream: SimStream, frames: Uint8Array) => boolean) | undefined;

  constructor(
    readonly world: World,
    public weather: NetworkWeather,
  ) {}

  count(fault: string): void {
    this.fired.set(fault, (this.fired.get(fault) ?? 0) + 1);
  }

  /**
   * Takes connections at an address until the process dies or closes the listener; `accept` gives each its framing.
   * @returns closes it with all connections that it has taken, as that of libs/exchange: settled when they are gone
   */
  listen(
    address: string,
    process: SimProcess,
    accept: (framed: (admit: (connection: Connection) => void) => void) => void,
  ): () => Promise<void> {
    const taken = new Set<FramedConnection>();
    let whenEmpty: (() => void) | undefined;
    const gone = (connection: FramedConnection): void => {
      taken.delete(connection);
      if (taken.size > 0) return;
      this.world.microtasksWait = true;
      whenEmpty?.();
    };
    const forget = (): void => {
      if (this.listeners.get(address)?.process === process) this.listeners.delete(address);
    };
    this.listeners.set(address, {
      process,
      accept: (open) =>
        accept((admit) => {
          const challenge = `challenge ${this.challenges++}`;
          const connection: FramedConnection = new FramedConnection(
            resolveOptions({ clock: process, checksum: true }),
            { ...({ kind: 'accepts', challenge } as const), admit: () => admit(connection) },
            () => gone(connection),
          );
          taken.add(connection);
          connection.attach(open(connection));
        }),
    });
    process.onKill(forget);
    return () => {
      forget();
      if (taken.size === 0) return Promise.resolve();
      const empty = new Promise<void>((resolve) => (whenEmpty = resolve));
      for (const connection of taken) connection.close();
      return empty;
    };
  }

  /** As `connect` of libs/exchange: a connection that reads nothing before it has its receiver. */
  connect(from: SimProcess, address: string, deadlineMs: number): Promise<Connection> {
    return new Promise((resolve, reject) => {
      const startedMs = this.world.nowMs;
      const settle = (label: string, act: () => void): void =>
        void this.world.schedule(this.latency(), label, () => {
          this.world.microtasksWait = true;
          from.run(act);
        });
      const attempt = (): void => {
        const target = this.listeners.get(address);
        const host = address.split('/')[0]!;
        if (this.isCut(from.host, host)) {
          if (this.world.nowMs - startedMs > deadlineMs)
            return settle('connect: no answer', () =>
              reject(new Error(`CONNECT_DEADLINE: no answer from ${address} within ${deadlineMs} ms`)),
            );
          return void this.world.schedule(200, 'connect: tried again', attempt);
        }
        if (!target?.process.isAlive)
          return settle('connect: refused', () => reject(new Error(`UNREACHABLE: cannot connect to ${address}`)));
        const near = new FramedConnection(resolveOptions({ clock: from, checksum: true, maxQueuedBytes: 2 ** 31 }), { kind: 'dials' });
        const nearStream = new SimStream(this, from, near, address);
        near.attach(nearStream);
        nearStream.onWritten = this.recordings.begin(address, from.host, nearStream);
        this.meet(nearStream, target, from.name);
        settle(`${from.name} connected to ${address}`, () => resolve(near));
      };
      this.world.schedule(this.latency(), `${from.name} connects to ${address}`, attempt);
    });
  }

  isListening(address: string): boolean {
    return this.listeners.get(address)?.process.isAlive ?? false;
  }

  /** A stream without framing, to an address that is listened at. */
  openRaw(host: string, address: string, consumer: ByteConsumer): SimStream {
    const process = new SimProcess(this.world, 'replay', host, (error) => {
      throw error;
    });
    const stream = new SimStream(this, process, consumer, address);
    this.meet(stream, this.listeners.get(address)!, process.name);
    return stream;
  }

  private meet(near: SimStream, target: { readonly process: SimProcess; readonly accept: Listener }, name: string): void {
    target.process.run(() =>
      target.accept((consumer) => {
        const far = new SimStream(this, target.process, consumer, name);
        near.peer = far;
        far.peer = near;
        return far;
      }),
    );
  }

  /** Two connections inside one process, as memoryPair: no host, no weather. */
  pair(process: SimProcess): [Connection, Connection] {
    const ends = [0, 1].map(() => new FramedConnection(resolveOptions({ clock: process, checksum: false }))) as [
      FramedConnection,
      FramedConnection,
    ];
    const streams = ends.map((end) => new SimStream(this, process, end, 'memory')) as [SimStream, SimStream];
    streams[0].peer = streams[1];
    streams[1].peer = streams[0];
    ends.forEach((end, i) => end.attach(streams[i]!));
    return ends;
  }

  /** From now on nothing travels from one host to the other. */
  block(from: string, to: string): void {
    this.blocked.add(`${from}→${to}`);
  }

  unblock(from: string, to: string): void {
    this.blocked.delete(`${from}→${to}`);
    for (const stream of this.streams) stream.wake();
  }

  /** All partitions end. */
  heal(): void {
    this.blocked.clear();
    for (const stream of this.streams) stream.wake();
  }

  isBlocked(from: string, to: string): boolean {
    if (this.blocked.size === 0 || from === to) return false;
    return this.blocked.has(`${from}→${to}`) || this.blocked.has(`${from}→*`) || this.blocked.has(`*→${to}`);
  }

  /** In one direction at least. */
  isCut(one: string, other: string): boolean {
    return this.isBlocked(one, other) || this.isBlocked(other, one);
  }

  latency(): number {
    const { random } = this.world;
    const [from, to] = this.weather.latencyMs;
    const base = random.between(from, to);
    // Beyond this a link is partitioned, not slow: deadlines count in seconds.
    return this.weather.spikes > 0 && random.chance(this.weather.spikes) ? Math.min(base * random.between(10, 100), LONGEST_MS) : base;
  }
}

type Piece = Uint8Array | 'end' | 'reset';

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
    private readonly network: Network,
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

  /** The connection breaks: both sides hear of it, each in its time. */
  break(): void {
    if (!this.open) return;
    this.network.count('broken connection');
    const { peer } = this;
    for (const side of [this, peer]) {
      if (!side?.open) continue;
      side.cutTravelling();
      side.broken = true;
      side.sentEnd = true;
      const lateMs = this.network.world.random.chance(0.2) ? this.network.world.random.between(0, 4_000) : this.network.latency();
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
    if (!leaving || !this.open) return;
    if (peer && peer.inboxBytes + this.travellingBytes() > this.network.weather.windowBytes && !this.inMemory) return;
    const { world, weather } = this.network;
    const startMs = Math.max(world.nowMs, this.linkFreeMs);
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

function checksum(bytes: Uint8Array): number {
  let hash = bytes.length;
  for (let i = 0; i < bytes.length; i++) hash = Math.imul(hash ^ bytes[i]!, 0x01000193);
  return hash;
}
