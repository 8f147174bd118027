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
import { SimStream, type Leg } from './stream.js';
import { FramedConnection, resolveOptions, type ByteConsumer, type ByteStream, type Connection } from '@paceline/exchange';
import type { ServerAddress } from '@paceline/control-plane';
import { SimProcess } from './process.js';
import { Recordings } from './recordings.js';
import type { World } from './world.js';

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

  /** For a write (of whole frames) on a slow link: when which of its bytes leave. */
  paces: ((stream: SimStream, frames: Uint8Array) => readonly Leg[] | undefined) | undefined;

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
