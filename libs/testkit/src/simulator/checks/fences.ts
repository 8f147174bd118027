/**
 * I7: an old fence writes nothing. What says that it is of another attempt than the part of a server it comes to, or of an older term than its
 * sender's place has had, may be refused, or dropped and counted; it must move neither shard, coordinator, standby nor member. Looked at where it
 * comes in, by the rows that are taken.
 */
import type { Connection, ConnectionClosed, FrameReceiver } from '@paceline/exchange';
import type { FrameHeader, Message, ProtocolError } from '@paceline/protocol';
import type { Checks, TakenRows } from './checks.js';

/** Rows that drop and count. */
const HARMLESS = new Set([
  ...['chunkStale', 'contributionStale', 'commitRepeated', 'decisionRepeated', 'staleTerm', 'late', 'viewOld', 'commitOld'],
  'parametersStale',
]);

function moves(tables: readonly (Pick<TakenRows, 'taken'> | undefined)[]): number {
  let sum = 0;
  for (const table of tables) for (const [row, count] of table?.taken ?? []) if (!HARMLESS.has(String(row))) sum += count;
  return sum;
}

/** Whoever frames come to. */
export interface Fenced {
  readonly name: string;
  tables(): readonly (Pick<TakenRows, 'taken'> | undefined)[];
}

/** A part of an attempt that a server holds. */
export interface FencedPart extends Fenced {
  readonly attempt: number;
  readonly over: boolean;
  readonly terms: Readonly<Record<'coordinator' | 'primary', TermFence>>;
}

interface Guarded {
  readonly checks: Checks;
  readonly network: { count(fault: string): void };
}

interface GuardedServer extends Guarded {
  readonly plant: { readonly believesOldAttempts?: boolean } | undefined;
  readonly invariants: { included(round: number, replicas: readonly number[]): void };
  isFollowed(part: FencedPart): boolean;
  refused(by: string, error: ProtocolError | undefined): void;
}

/** Hands over something old, which must not move its receiver. */
function mustNotMove<T>(fenced: Fenced, cluster: Guarded, what: () => string, hand: () => T): T {
  const before = moves(fenced.tables());
  try {
    return hand();
  } finally {
    cluster.checks.expect(moves(fenced.tables()) === before, 'I7', () => `${what()} moved ${fenced.name}`);
  }
}

/** The highest term in which a place (a shard, the coordinator) has spoken to somebody. */
export class TermFence {
  private highest = 0;

  /** @param raises false for what follows from something that has raised it */
  pass<T>(fenced: Fenced, cluster: Guarded, term: number, what: string, hand: () => T, raises = true): T {
    if (term >= this.highest) {
      if (raises) this.highest = term;
      return hand();
    }
    cluster.network.count('something of an older term came');
    return mustNotMove(fenced, cluster, () => `${what} of term ${term}, after term ${this.highest},`, hand);
  }
}

/** A connection that is looked at from inside its process. */
abstract class TappedConnection implements Connection {
  constructor(protected readonly inner: Connection) {}

  get kind() {
    return this.inner.kind;
  }
  get remote() {
    return this.inner.remote;
  }
  get queuedBytes() {
    return this.inner.queuedBytes;
  }
  get sentBytes() {
    return this.inner.sentBytes;
  }
  get savedSentBytes() {
    return this.inner.savedSentBytes;
  }
  get savedReceivedBytes() {
    return this.inner.savedReceivedBytes;
  }
  get receivedBytes() {
    return this.inner.receivedBytes;
  }
  get receivedDataBytes() {
    return this.inner.receivedDataBytes;
  }
  get isOpen() {
    return this.inner.isOpen;
  }
  get challenge() {
    return this.inner.challenge;
  }

  setReceiver(receiver: FrameReceiver): void {
    const tap = this.tap();
    this.inner.setReceiver({
      payloadFor: (header) => tap(header, undefined, (passed) => receiver.payloadFor(passed)),
      check: (header) => tap(header, undefined, (passed) => receiver.check?.(passed)),
      data: (header, payload) => tap(header, undefined, (passed) => receiver.data(passed, payload)),
      message: (message, header) => tap(header, message, (passed) => receiver.message(message, passed)),
      closed: (reason) => {
        this.closed(reason);
        receiver.closed(reason);
      },
    });
  }

  /** For one receiver: sees all that comes in, and hands it over. */
  protected abstract tap(): <T>(header: FrameHeader, message: Message | undefined, hand: (header: FrameHeader) => T) => T;
  protected closed(_: ConnectionClosed): void {
    // Whoever wants to know overrides it.
  }

  sendMessage(...args: Parameters<Connection['sendMessage']>): void {
    this.inner.sendMessage(...args);
  }
  sendData(...args: Parameters<Connection['sendData']>): void {
    this.inner.sendData(...args);
  }
  close(...args: Parameters<Connection['close']>): void {
    this.inner.close(...args);
  }
}

/** A connection of a worker to one shard. */
export class WorkerConnection extends TappedConnection {
  constructor(
    inner: Connection,
    private readonly fence: TermFence,
    private readonly fenced: Fenced,
    private readonly cluster: Guarded,
  ) {
    super(inner);
  }

  protected tap(): ReturnType<TappedConnection['tap']> {
    return (header, message, hand) => {
      if (message?.type === 'refused') return hand(header);
      const what = message ? `a message (${message.type})` : 'a frame';
      return this.fence.pass(this.fenced, this.cluster, header.term, what, () => hand(header), message !== undefined);
    };
  }
}

/** A connection of a server process: what comes over it passes the fence checks of the part that the process holds. */
export class ServerConnection extends TappedConnection {
  /** The attempt that HELLO names, on a connection that somebody else has opened. */
  private helloAttempt: number | undefined;
  /** On a connection that this server has opened: whom it spoke to. */
  private peer: 'coordinator' | 'primary' | undefined;
  private helloChallenge: string | undefined;

  constructor(
    inner: Connection,
    private readonly owner: string,
    private readonly part: () => FencedPart | undefined,
    private readonly cluster: GuardedServer,
  ) {
    super(inner);
  }

  /** With the planted mistake the server believes a HELLO of an older attempt too. */
  override get challenge() {
    return this.cluster.plant?.believesOldAttempts ? this.helloChallenge : super.challenge;
  }

  override sendMessage(...args: Parameters<Connection['sendMessage']>): void {
    const [message] = args;
    if (message.type === 'hello') this.peer = message.role === 'standby' ? 'primary' : 'coordinator';
    super.sendMessage(...args);
  }

  protected override closed({ error }: ConnectionClosed): void {
    this.cluster.refused(this.owner, error);
  }

  protected tap(): ReturnType<TappedConnection['tap']> {
    // The gate looks for a part when HELLO comes; from then on the connection belongs to the one that took it.
    const taker = this.part();
    this.checkTaker(taker);
    return (header, message, hand) => {
      const part = message?.type === 'hello' ? this.part() : taker;
      if (message?.type === 'hello') this.helloAttempt = header.attempt;
      if (message?.type === 'hello') this.helloChallenge = message.challenge;
      if (!part || part.over || message?.type === 'refused') return hand(header);
      return this.fenced(part, header, message, hand);
    };
  }

  private checkTaker(taker: FencedPart | undefined): void {
    const { helloAttempt, cluster } = this;
    if (!taker || helloAttempt === undefined) return;
    const what = () => `a HELLO of attempt ${helloAttempt} was taken by ${taker.name}, which is in attempt ${taker.attempt}`;
    cluster.checks.expect(helloAttempt === taker.attempt, 'I7', what);
  }

  private fenced<T>(part: FencedPart, header: FrameHeader, message: Message | undefined, hand: (header: FrameHeader) => T): T {
    const { cluster, peer } = this;
    const what = message ? `a message (${message.type})` : 'a frame';
    if (message?.type === 'include' && part.attempt === header.attempt && cluster.isFollowed(part))
      cluster.invariants.included(message.round, message.replicas);
    if (header.attempt !== part.attempt) {
      cluster.network.count('something of another attempt came');
      const believed = cluster.plant?.believesOldAttempts ? { ...header, attempt: part.attempt } : header;
      return mustNotMove(
        part,
        cluster,
        () => `${what} of attempt ${header.attempt}, which is not ${part.attempt},`,
        () => hand(believed),
      );
    }
    return peer ? part.terms[peer].pass(part, cluster, header.term, what, () => hand(header)) : hand(header);
  }
}
