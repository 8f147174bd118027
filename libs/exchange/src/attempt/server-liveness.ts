/** The servers of an attempt as its coordinator sees them: who is there, who is missing, who has fallen silent. */
import { ProtocolError, type Message } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import { ReceivedBytes } from '../transports/received-bytes.js';

/** Three of a server's heartbeats. */
const SPEAKS_WITHIN_MS = 3_000;

export interface ServerDeadlines {
  /** A server that says nothing for this long is lost. */
  readonly silentMs: number;
  /** All have to connect within this of the first. */
  readonly completeMs: number;
  /** A shard with a standby is waited for this long: while the control plane is away, nobody is promoted. */
  readonly takeoverMs?: number;
}

export class ServerLiveness {
  private readonly servers = new Map<number, { readonly connection: Connection; readonly received: ReceivedBytes; lastHeardMs: number }>();
  /** Since when not all are there, from the first on. */
  private incompleteSinceMs: number | undefined;
  /** Servers whose loss a standby covers, with its id. */
  readonly covered = new Map<number, string>();
  /** The highest term in which each place is led, as far as is known: the arbiter has said so, or its server. */
  private readonly terms: Map<number, number>;

  constructor(
    private readonly count: number,
    private readonly deadlines: ServerDeadlines,
    private readonly now: () => number,
    terms: readonly number[] = [],
  ) {
    this.terms = new Map(terms.entries());
  }

  get isComplete(): boolean {
    return this.servers.size === this.count;
  }

  get indices(): number[] {
    return Array.from({ length: this.count }, (_, index) => index);
  }

  /** Indices that are not connected. */
  get missing(): number[] {
    return this.indices.filter((index) => !this.servers.has(index));
  }

  /** Somebody wants this place. @throws ProtocolError STALE_TERM for a former primary that has not heard who leads its shard now */
  comes(index: number, term: number): void {
    const present = this.terms.get(index) ?? 0;
    if (term < present)
      throw new ProtocolError(
        'STALE_TERM',
        `it leads parameter server ${index} in term ${term}, but another server leads it in term ${present}`,
      );
  }

  /** It says in which term it leads. True when its standby, which nothing covers any more, has taken its place. */
  leads(index: number, term: number): boolean {
    const isHigher = term > (this.terms.get(index) ?? 1);
    if (isHigher) this.covered.delete(index);
    this.terms.set(index, term);
    return isHigher;
  }

  /** Shards that a standby has taken over. */
  get takenOver(): number {
    return [...this.terms.values()].filter((term) => term > 1).length;
  }

  add(index: number, connection: Connection): void {
    if (this.servers.size === 0) this.incompleteSinceMs ??= this.now();
    this.servers.set(index, { connection, received: new ReceivedBytes(connection), lastHeardMs: this.now() });
  }

  /** False when it was not there. */
  remove(index: number): boolean {
    if (this.isComplete) this.incompleteSinceMs = this.now();
    return this.servers.delete(index);
  }

  connectionOf(index: number): Connection | undefined {
    return this.servers.get(index)?.connection;
  }

  /** One that is not there, and that its standby takes over. */
  isAwaited(index: number): boolean {
    return this.covered.has(index) && !this.servers.has(index);
  }

  /** Something has come from it. False when it is not there. */
  heard(index: number): boolean {
    const server = this.servers.get(index);
    if (server) server.lastHeardMs = this.now();
    return server !== undefined;
  }

  send(message: Message, numbers: FrameNumbers): void {
    for (const { connection } of this.servers.values()) connection.sendMessage(message, numbers);
  }

  /** All are connected and speak. While one does not, members come and go because of it, and not of what they compute. */
  get allSpeak(): boolean {
    return this.isComplete && [...this.servers.values()].every(({ lastHeardMs }) => this.now() - lastHeardMs <= SPEAKS_WITHIN_MS);
  }

  /** A server that is silent past its deadline, with the time since it was heard. */
  silent(): { index: number; silentMs: number } | undefined {
    for (const [index, server] of this.servers) {
      if (server.received.haveCome()) server.lastHeardMs = this.now();
      const silentMs = Math.round(this.now() - server.lastHeardMs);
      if (silentMs > this.deadlines.silentMs) return { index, silentMs };
    }
    return undefined;
  }

  get isLate(): boolean {
    if (this.incompleteSinceMs === undefined || this.isComplete) return false;
    const { completeMs, takeoverMs = completeMs } = this.deadlines;
    const allowedMs = this.missing.some((index) => this.covered.has(index)) ? takeoverMs : completeMs;
    return this.now() - this.incompleteSinceMs > allowedMs;
  }
}
