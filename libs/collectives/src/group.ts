/**
 * A group of members that do collective operations together, one after the other, over one connection between each two.
 *
 *     CALLS  every member tells all others which operation it begins. No data moves before all calls are here: so all members agree on what they
 *            do, know where data goes before it comes, and leave an operation out together when one of them cannot take its part.
 *     DATA   operations exchange their frames.
 *     END    everything has come, and what this member sends has left. The next operation may begin; others may be in this one still.
 *
 * A member that is gone, silent for the deadline, or at another operation ends the group: whoever notices tells all others who it was.
 */
import { StallTolerantClock, type CancelTimer, type Clock, type Connection } from '@paceline/exchange';
import { ProtocolError, type FrameHeader, type Message, type MessageOf } from '@paceline/protocol';
import { MemberLostError, type LossKind } from './errors.js';
import type { Link } from './link.js';
import type { Operation } from './operation.js';

export type Failure = MessageOf<'call'>['failures'][number];

export interface GroupOptions {
  readonly self: number;
  /** The names of all members, for people. */
  readonly names: readonly string[];
  /** By member; undefined for this one. */
  readonly links: readonly (Link | undefined)[];
  readonly clock: Clock;
  /** An operation in which nothing comes for so long is given up. */
  readonly deadlineMs: number;
}

export interface Collective {
  /** For people too; it must be the same for all members. */
  readonly what: string;
  /** Small values of this member that all get. */
  readonly values?: Uint8Array;
  /** Why this member cannot take its part. */
  readonly failures?: readonly Failure[];
  readonly operations: readonly Operation[];
}

export interface Called {
  /** By member. */
  readonly values: readonly Uint8Array[];
  /** The failures of all members; with one or more, no data has moved. */
  readonly failures: readonly Failure[];
}

/** How often a group looks whether something moves: a StallTolerantClock takes a longer gap for a stall of this process. */
const LOOK_MS = 100;
/** Members say so often in a deadline that they live: who waits for somebody else is told from who stands still. */
const BEATS = 8;
/** Codes of what members tell each other when a group ends. */
const CODES = { gone: 'STRATEGY_MEMBER', differs: 'STRATEGY_MEMBER_DIFFERS', joins: 'STRATEGY_MEMBER_JOINS' };
/** Bytes that are handed to a connection at a time. */
const WINDOW_BYTES = 8 << 20;

interface Waiting {
  readonly header: Parameters<Connection['sendData']>[0];
  readonly payload: Uint8Array;
}

interface Peer {
  readonly member: number;
  readonly link: Link;
  readonly queue: Waiting[];
  /** Frames that have not left. */
  unsent: number;
  /** Calls of the present operation and of the next one: a member may be ahead by one. */
  calls: MessageOf<'call'>[];
  gone: string | undefined;
  /** It has said something, so its group is there: what it is told is heard. */
  listens: boolean;
  /** Bytes that had come when it was last looked at, and since when there are no more. */
  heard: { readonly bytes: number; readonly atMs: number };
}

interface Active extends Collective {
  readonly number: number;
  readonly resolve: (called: Called) => void;
  readonly reject: (error: Error) => void;
  called: Called | undefined;
}

const callOf = ({ calls }: Peer, number: number): MessageOf<'call'> | undefined => calls.find((call) => call.number === number);

export class Group {
  readonly members: number;
  private readonly peers: readonly Peer[];
  private number = 0;
  private active: Active | undefined;
  private lost: MemberLostError | undefined;
  private progress = 0;
  /** Members that this one has heard nothing of for half a deadline, in the present operation. */
  private silent: readonly number[] = [];
  private cancelLook: CancelTimer | undefined;
  private cancelBeat: CancelTimer | undefined;
  /** Heard when the group ends, also between two operations. */
  onLost: ((error: MemberLostError) => void) | undefined;

  constructor(private readonly options: GroupOptions) {
    this.members = options.names.length;
    this.peers = options.links.flatMap((link, member) =>
      link
        ? [{ member, link, queue: [], unsent: 0, calls: [], gone: undefined, listens: false, heard: { bytes: -1, atMs: 0 } } satisfies Peer]
        : [],
    );
    for (const peer of this.peers) {
      peer.link.take({
        message: (message) => this.heard(peer, message),
        payloadFor: (header) => this.operationOf(header).destination(peer.member, header),
        data: (header) => {
          this.operationOf(header).received(peer.member, header);
          this.counters.receivedBytes += header.length;
          this.moved();
        },
        closed: (why) => this.closed(peer, why),
      });
    }
  }

  /** Why it has ended. */
  get end(): MemberLostError | undefined {
    return this.lost;
  }

  /** Bytes that this member has received and sent as payloads of data frames. */
  readonly counters = { sentBytes: 0, receivedBytes: 0, frames: 0 };

  /** @throws MemberLostError */
  run(collective: Collective): Promise<Called> {
    if (this.lost) return Promise.reject(this.lost);
    if (this.active) throw new Error(`${collective.what} begins while ${this.active.what} is not over`);
    const number = ++this.number;
    for (const peer of this.peers) peer.calls = peer.calls.filter((call) => call.number >= number);
    return new Promise((resolve, reject) => {
      this.active = { ...collective, number, resolve, reject, called: undefined };
      const values = Buffer.from(collective.values ?? []).toString('base64');
      for (const { link } of this.peers)
        this.tell(link, { type: 'call', number, what: collective.what, values, failures: [...(collective.failures ?? [])] });
      this.watch();
      this.beat();
      this.moved();
    });
  }

  /** Says that this member lives, from its first operation on: who waits for the call of another one is not silent. */
  private beat(): void {
    this.cancelBeat ??= this.options.clock.every(Math.max(LOOK_MS, this.options.deadlineMs / BEATS), () => {
      for (const { link, listens } of this.peers) if (listens) this.tell(link, { type: 'heartbeat', progress: this.number });
    });
  }

  /** Tells all others that this member goes, and why. */
  leave(reason: string): void {
    this.lost ??= new MemberLostError([this.options.self], `this member has left: ${reason}`);
    this.stopTimers();
    for (const { link } of this.peers) {
      this.tell(link, { type: 'leave', reason: reason.slice(0, 300) });
      link.connection.close();
    }
    this.active?.reject(this.lost);
    this.active = undefined;
  }

  /** Ends the group, and tells all others whose fault it is. */
  fail(error: MemberLostError): void {
    if (this.lost) return;
    this.lost = error;
    this.stopTimers();
    const [root = this.options.self] = error.members;
    for (const { link } of this.peers) {
      this.tell(link, {
        type: 'failed',
        code: CODES[error.kind === 'differs' || error.kind === 'joins' ? error.kind : 'gone'],
        message: error.message.slice(0, 2000),
        // A process that comes is no member of this group, so it has no number here.
        ...(error.kind === 'joins' ? { round: root, replica: -1 } : { round: 0, replica: root }),
      });
      link.connection.close();
    }
    this.active?.reject(error);
    this.active = undefined;
    this.onLost?.(error);
  }

  private stopTimers(): void {
    this.cancelLook?.();
    this.cancelBeat?.();
  }

  private tell({ connection }: Link, message: Message): void {
    connection.sendMessage(message, { attempt: 1, term: 0, view: 0, round: this.number });
  }

  private name(member: number): string {
    return this.options.names[member] ?? `member ${member}`;
  }

  private heard(peer: Peer, message: Message): void {
    peer.listens = true;
    switch (message.type) {
      case 'call':
        if (message.number === 0) break; // its report, after this member has heard the decision of another one (agreement.ts)
        peer.calls.push(message);
        if (peer.calls.length > 2) throw new ProtocolError('BAD_ROUND', 'a member is more than one operation ahead');
        this.moved();
        break;
      case 'leave':
        peer.gone = `${this.name(peer.member)} has left: ${message.reason}`;
        this.moved();
        break;
      case 'failed': {
        if (message.code === CODES.joins) return this.fail(new MemberLostError([message.round], message.message, 'joins'));
        const root = message.replica < 0 || message.replica >= this.members ? peer.member : message.replica;
        const by = this.name(peer.member);
        const text =
          root === this.options.self ? `${by} has given this member up: ${message.message}` : `${message.message} (said by ${by})`;
        const kind: LossKind = message.code === CODES.differs ? 'differs' : root === this.options.self ? 'out' : 'gone';
        // The message names one lost member. Other members that are silent here too are not waited for once more.
        const also = kind === 'gone' ? this.silent.filter((member) => member !== root && member !== peer.member) : [];
        this.fail(new MemberLostError([root, ...also], text, kind));
        break;
      }
      case 'heartbeat':
      case 'refused':
        break;
      default:
        throw new ProtocolError('BAD_MESSAGE', `a member of a group says no ${message.type}`);
    }
  }

  private closed(peer: Peer, why: string): void {
    peer.gone ??= `the connection to ${this.name(peer.member)} has ended (${why}): its process has died or was ended; start all processes again, from what was saved last`;
    peer.unsent = 0;
    peer.queue.length = 0;
    this.moved();
    if (!this.active && !this.lost) this.onLost?.(new MemberLostError([peer.member], peer.gone));
  }

  private operationOf(header: FrameHeader): Operation {
    const operation = header.round === this.active?.number ? this.active.operations[header.view] : undefined;
    if (!operation) throw new ProtocolError('BAD_ROUND', `data of operation ${header.round}.${header.view}, which is not the present one`);
    return operation;
  }

  /** Something has come or left: what follows from it. */
  private moved(): void {
    this.progress++;
    const { active } = this;
    if (!active) return;
    if (!active.called) {
      const late = this.peers.filter((peer) => !callOf(peer, active.number));
      const gone = late.find((peer) => peer.gone !== undefined);
      if (gone) return this.fail(new MemberLostError([gone.member], gone.gone!));
      if (late.length > 0) return;
      if (!this.begin(active)) return;
    }
    const missing = this.peers.filter((peer) => this.owes(active, peer) > 0);
    const gone = missing.find((peer) => peer.gone !== undefined);
    if (gone) return this.fail(new MemberLostError([gone.member], gone.gone!));
    if (missing.length > 0 || this.peers.some(({ unsent }) => unsent > 0)) return;
    this.cancelLook?.();
    this.active = undefined;
    active.resolve(active.called!);
  }

  private owes({ operations, called }: Active, { member }: Peer): number {
    if (called && called.failures.length > 0) return 0;
    return operations.reduce((sum, operation) => sum + operation.missingOf(member), 0);
  }

  /** All calls are here. @returns false when the group is lost */
  private begin(active: Active): boolean {
    const calls = this.peers.map((peer) => callOf(peer, active.number)!);
    const other = this.peers.find((_, i) => calls[i]!.what !== active.what);
    if (other) {
      this.fail(
        new MemberLostError(
          [other.member],
          `${this.name(other.member)} is at "${callOf(other, active.number)!.what}", and ${this.name(this.options.self)} at "${active.what}": every process must build, set and train the same models with the same arguments, in the same order`,
          'differs',
        ),
      );
      return false;
    }
    const values = this.options.names.map((_, member) => {
      const peer = this.peers.findIndex((each) => each.member === member);
      return peer < 0 ? (active.values ?? new Uint8Array(0)) : new Uint8Array(Buffer.from(calls[peer]!.values, 'base64'));
    });
    const failures = [...(active.failures ?? []), ...calls.flatMap((call) => call.failures)];
    active.called = { values, failures: failures.sort((a, b) => a.replica - b.replica) };
    if (failures.length > 0) return true;
    for (const [view, operation] of active.operations.entries())
      operation.start((member, frame, payload) => {
        if (this.lost) return;
        const peer = this.peers.find((each) => each.member === member)!;
        if (peer.gone !== undefined && !peer.link.isOpen) return this.fail(new MemberLostError([member], peer.gone));
        const header = { ...frame, codec: frame.codec ?? 0, attempt: 1, term: 0, view, round: active.number };
        peer.queue.push({ header, payload });
        peer.unsent++;
        this.counters.sentBytes += payload.length;
        this.counters.frames++;
        this.pump(peer);
      });
    return !this.lost;
  }

  private pump(peer: Peer): void {
    const { connection } = peer.link;
    while (peer.queue.length > 0 && connection.isOpen && connection.queuedBytes < WINDOW_BYTES) {
      const { header, payload } = peer.queue.shift()!;
      connection.sendData(header, payload, () => {
        peer.unsent = Math.max(0, peer.unsent - 1);
        this.pump(peer);
        this.moved();
      });
    }
  }

  /** Gives the operation up when nothing moves for the deadline. Time in which this whole process stood still does not count. */
  private watch(): void {
    const clock = new StallTolerantClock(this.options.clock);
    clock.isDue(); // a stall before the first look gets its grace too
    const { deadlineMs } = this.options;
    const beganMs = clock.now();
    let [seen, sinceMs] = [-1, beganMs];
    this.silent = [];
    this.cancelLook?.();
    this.cancelLook = this.options.clock.every(LOOK_MS, () => {
      const isDue = clock.isDue();
      const now = clock.now();
      const progress = this.progress + this.peers.reduce((sum, { link }) => sum + link.connection.receivedDataBytes, 0);
      for (const peer of this.peers) {
        const { receivedBytes: bytes } = peer.link.connection;
        if (bytes !== peer.heard.bytes) peer.heard = { bytes, atMs: now };
      }
      const isSilent = ({ heard }: Peer): boolean => now - Math.max(heard.atMs, beganMs) > deadlineMs / 2;
      this.silent = isDue ? this.peers.filter(isSilent).map(({ member }) => member) : [];
      if (progress !== seen) [seen, sinceMs] = [progress, now];
      else if (isDue && now - sinceMs >= deadlineMs) this.fail(this.late(now));
    });
  }

  /** In a ring, or a tree, everybody waits for one before it: those that have said nothing at all are named first. */
  private late(now: number): MemberLostError {
    const { active, peers } = this;
    const { deadlineMs } = this.options;
    const silent = peers.filter(({ heard }) => now - heard.atMs > deadlineMs / 2);
    const isUncalled = (peer: Peer): boolean => !callOf(peer, active!.number);
    const [named] = [
      silent.filter(isUncalled),
      silent,
      peers.filter(isUncalled),
      peers.filter((peer) => this.owes(active!, peer) > 0 || peer.unsent > 0),
    ].filter(({ length }) => length > 0);
    const late = named ?? [];
    const who = late.map((peer) => this.name(peer.member)).join(', ');
    const what = late.some(isUncalled)
      ? `to begin "${active!.what}"`
      : late === silent
        ? `in "${active!.what}", and heard nothing at all`
        : `in "${active!.what}": ${late.map((peer) => `${this.owes(active!, peer)} pieces are to come and ${peer.unsent} to leave`).join('; ')}`;
    return new MemberLostError(
      late.map(({ member }) => member),
      `waited ${deadlineMs} ms for ${who} ${what}. Set deadlineMs where a step or what is done between two steps may take longer`,
    );
  }
}
