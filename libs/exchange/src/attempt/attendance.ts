/**
 * Who takes part: workers come, fall silent, go away, come back, are lost, leave. The coordinators share it; what a change means
 * for replicas or work items is theirs (`AttendanceHooks`).
 *
 *   joined ── socket closes ──> away ── comes back within `awayMs` ──> back
 *     │                          └── does not ──> lost
 *     ├── silent, or computes nothing past its deadline ──> lost
 *     └── asks to leave, or is surplus ──> leaving ── owes nothing any more ──> left
 */
import { ProtocolError, type DataPlaneErrorCode, type MessageOf } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import { LossCounter, MAX_LOSSES } from './loss-counter.js';
import type { CoordinatedMember as Member, Membership } from './membership.js';
import { counted } from '../words.js';

export interface AttendanceOptions {
  readonly fingerprint?: string | undefined;
  readonly mixedEngines?: boolean;
  readonly heartbeatDeadlineMs?: number | undefined;
  readonly stepDeadlineMs?: number | undefined;
  readonly awayMs?: number | undefined;
}

export interface Owed {
  readonly round: number;
  readonly replicas: readonly number[];
}

export interface AttendanceHooks {
  take(row: 'join' | 'seatTaken' | 'away' | 'lost' | 'leave'): void;
  event(type: string, message: string, data: Record<string, unknown>): void;
  numbers(): FrameNumbers;
  round(): number;
  isOver(): boolean;
  /** When work was last given out to all: no progress is expected before. */
  lastWorkMs(): number;
  /** The member has something to compute, so that its progress must move. */
  owes(member: Member): boolean;
  /** What is lost if it is lost now: replicas of a round that it was to compute and has not. */
  owed(member: Member): Owed | undefined;
  /** It is not done by somebody else meanwhile. */
  isStillOwed(owed: Owed): boolean;
  /** A leaving member that owes nothing may go at once. */
  mayGoNow(member: Member): boolean;
  /** A member is about to be taken in once more, for the same seat or another: what it was given went with its former connection. */
  comesAgain(id: string): void;
  /** It is not there for now: others have to do its part. */
  wentAway(member: Member): void;
  cameBack(member: Member): void;
  /** It is no member any more. */
  removed(member: Member): void;
  /** False while a server is away or silent: a member that is lost then is no poison. */
  serversSpeak(): boolean;
  /** The same replica has lost its worker too often in one round. */
  poisoned(replica: number, message: string): void;
}

export class Attendance {
  private readonly losses = new LossCounter();
  private workerTarget = Infinity;
  fingerprint: string | undefined;
  /** Members have changed since it was set to false: the next commit rebalances. */
  hasChanged = false;

  constructor(
    private readonly members: Membership,
    private readonly options: AttendanceOptions,
    private readonly now: () => number,
    private readonly hooks: AttendanceHooks,
  ) {}

  /** Admits a worker, or takes back one that was away. @throws ProtocolError SEAT_TAKEN, FINGERPRINT_MISMATCH */
  join(hello: MessageOf<'hello'>, connection: Connection): void {
    const holder = this.members.holderOf(hello.seat);
    if (holder && (holder.id !== hello.id || hello.n < holder.n)) {
      this.hooks.take('seatTaken');
      throw new ProtocolError('SEAT_TAKEN', `seat ${hello.seat} is held by ${holder.id}`);
    }
    this.fingerprint ??= this.options.mixedEngines ? 'mixed' : (this.options.fingerprint ?? hello.fingerprint);
    if (!this.options.mixedEngines && this.fingerprint !== hello.fingerprint) {
      throw new ProtocolError('FINGERPRINT_MISMATCH', `the run is pinned to ${this.fingerprint}, this worker has ${hello.fingerprint}`);
    }
    const previous = this.members.get(hello.id);
    if (previous) this.hooks.comesAgain(hello.id);
    this.hooks.take('join');
    if (previous?.connection.isOpen && previous.connection !== connection) previous.connection.close();
    this.members.add(hello, connection);
    if (previous) this.event('worker.back', hello, 'is back');
    else this.event('worker.joined', hello, 'joined');
    this.hasChanged = true;
  }

  closed(id: string, connection: Connection, why: string): void {
    const member = this.members.get(id);
    if (!member || member.connection !== connection) return;
    member.up = false;
    if (member.leaving !== undefined) this.remove(member, 'worker.left', member.leaving);
    else this.goAway(member, why);
  }

  heartbeat(member: Member, { progress, rests = false }: MessageOf<'heartbeat'>): void {
    member.rests = rests;
    if (progress === member.progress) return;
    member.progress = progress;
    member.lastProgressMs = this.now();
  }

  /** A shard's view of the member's socket. */
  link(server: number, { id, up }: MessageOf<'member-link'>): void {
    const member = this.members.get(id);
    if (!member) return;
    if (!up) {
      member.brokenShards.add(server);
      return this.goAway(member, `its socket to parameter server ${server} closed`);
    }
    member.brokenShards.delete(server);
    if (member.brokenShards.size > 0 || !member.up || member.awaySinceMs === undefined) return;
    member.awaySinceMs = undefined;
    this.hasChanged = true;
    this.event('worker.back', member, 'is back');
    this.hooks.cameBack(member);
  }

  /** Deadlines. */
  tick(): void {
    const now = this.now();
    const { heartbeatDeadlineMs = 3000, stepDeadlineMs = 60_000, awayMs = 3000 } = this.options;
    for (const member of this.members.all()) {
      // Its heartbeats may be late behind a long frame.
      if (member.received.haveCome()) member.lastHeardMs = now;
      if (member.received.haveDataCome()) {
        member.lastProgressMs = now;
        member.rests = false;
      }
      if (member.awaySinceMs !== undefined) {
        if (now - member.awaySinceMs > awayMs) this.lose(member, 'its socket closed and it did not come back', 'SILENT_PEER');
      } else if (now - member.lastHeardMs > heartbeatDeadlineMs) {
        this.lose(member, `nothing heard for ${Math.round(now - member.lastHeardMs)} ms`, 'SILENT_PEER');
      } else if (this.hooks.owes(member) && now - Math.max(member.lastProgressMs, this.hooks.lastWorkMs()) > stepDeadlineMs) {
        this.lose(member, 'its compute thread makes no progress', 'NOT_A_MEMBER');
      }
      if (this.hooks.isOver()) return;
    }
  }

  leave(member: Member, reason: string): void {
    this.hooks.take('leave');
    member.leaving = reason;
    this.hasChanged = true;
    if (this.hooks.mayGoNow(member)) this.letGo(member);
  }

  letGo(member: Member): void {
    member.connection.sendMessage({ type: 'end', outcome: 'finished', message: 'you have left the run' }, this.hooks.numbers());
    this.remove(member, 'worker.left', member.leaving ?? 'left');
  }

  /** @param code tells the worker whether it may come back at once (SILENT_PEER) or has to give up its seat */
  lose(member: Member, why: string, code: DataPlaneErrorCode): void {
    if (this.hooks.isOver()) return; // the loss of another one has ended the attempt
    this.goAway(member, why);
    this.hooks.take('lost');
    this.remove(member, 'worker.lost', why);
    if (member.connection.isOpen) member.connection.close(new ProtocolError(code, why));
    this.countLosses(member, why);
  }

  /** A work item is counted: nobody is lost over it any more. */
  counted(round: number, replica: number): void {
    this.losses.forget(round, replica);
  }

  /** The round is committed. */
  committed(): void {
    this.losses.clear();
  }

  /** Most members that may compute from the next commit on. */
  setTarget(workers: number): void {
    if (workers === this.workerTarget || !(workers >= 1)) return;
    this.workerTarget = workers;
    this.hasChanged = true;
    this.hooks.event('scale.changed', `at most ${counted(workers, 'worker')} from now on`, { workers, round: this.hooks.round() });
  }

  /** Scaled in: the members of the highest seats go, and are asked for nothing more. Returns all that are leaving. */
  leaving(): Member[] {
    const staying = this.members.live().filter((member) => member.leaving === undefined);
    const bySeat = staying.sort((a, b) => a.seat - b.seat);
    for (const member of bySeat.slice(this.workerTarget)) {
      member.leaving = `scaled in to ${counted(this.workerTarget, 'worker')}`;
      this.hasChanged = true;
    }
    return this.members.all().filter((member) => member.leaving !== undefined && member.up);
  }

  private goAway(member: Member, why: string): void {
    if (member.awaySinceMs !== undefined) return;
    this.hooks.take('away');
    member.awaySinceMs = this.now();
    this.hasChanged = true;
    this.event('worker.away', member, 'is away', why);
    member.owed = this.hooks.owed(member);
    this.hooks.wentAway(member);
  }

  private remove(member: Member, type: 'worker.lost' | 'worker.left', why: string): void {
    if (!this.members.remove(member.id)) return;
    this.hasChanged = true;
    this.event(type, member, type === 'worker.lost' ? 'was lost' : 'left', why);
    this.hooks.removed(member);
  }

  private countLosses({ id, host, owed }: Member, why: string): void {
    if (!owed || this.hooks.isOver() || !this.hooks.serversSpeak() || !this.hooks.isStillOwed(owed)) return;
    const tooMany = this.losses.count(owed.round, owed.replicas, host, this.now(), why);
    if (!tooMany) return;
    const lost = `replica ${tooMany.replica} of round ${owed.round} has lost its worker ${MAX_LOSSES} times`;
    this.hooks.poisoned(tooMany.replica, `poison round: ${lost}; ${tooMany.cause}; the last one was ${id}`);
  }

  private event(type: string, { id, seat }: { readonly id: string; readonly seat: number }, what: string, why?: string): void {
    const round = this.hooks.round();
    const message = why === undefined ? `worker ${id} ${what} in round ${round}` : `worker ${id} ${what}: ${why}`;
    this.hooks.event(type, message, { workerId: id, seat, round });
  }
}
