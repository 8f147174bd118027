/**
 * The workers that take part: they come, fall silent, go away, come back, are lost, leave. What a change means for
 * replicas or work items is the plan's (work-plan.ts).
 *
 *   joined ── socket closes ──> away ── comes back within `awayMs` ──> back
 *     │                          └── does not ──> lost
 *     ├── silent, or computes nothing past its deadline ──> lost
 *     └── asks to leave, or is surplus ──> leaving ── owes nothing any more ──> left
 */
import { ProtocolError, type DataPlaneErrorCode, type MessageOf } from '@paceline/protocol';
import type { Connection } from '../connection.js';
import type { Attempt } from './attempt.js';
import type { Ending } from './ending.js';
import { PoisonRounds, MAX_LOSSES } from './poison-rounds.js';
import type { Measurements } from './measurements.js';
import type { CoordinatedMember as Member } from './membership.js';
import type { StallDetector } from './stall.js';
import type { Coordinated } from './work-plan.js';
import { counted } from '../words.js';

export class Attendance {
  private readonly losses = new PoisonRounds();
  private workerTarget = Infinity;
  fingerprint: string | undefined;
  /** Members have changed since it was set to false: the next commit rebalances. */
  hasChanged = false;

  constructor(
    private readonly attempt: Attempt,
    private readonly measurements: Measurements,
    private readonly stall: StallDetector,
    private readonly ending: Ending,
    private readonly coordinator: Coordinated,
  ) {}

  private get members(): Attempt['members'] {
    return this.attempt.members;
  }

  private get options(): Attempt['options'] {
    return this.attempt.options;
  }

  /** Admits a worker, or takes back one that was away. @throws ProtocolError SEAT_TAKEN, FINGERPRINT_MISMATCH */
  join(hello: MessageOf<'hello'>, connection: Connection): void {
    const holder = this.members.holderOf(hello.seat);
    if (holder && (holder.id !== hello.id || hello.incarnation < holder.incarnation)) {
      this.attempt.table.take('seatTaken');
      throw new ProtocolError('SEAT_TAKEN', `seat ${hello.seat} is held by ${holder.id}`);
    }
    this.fingerprint ??= this.options.mixedEngines ? 'mixed' : (this.options.fingerprint ?? hello.fingerprint);
    if (!this.options.mixedEngines && this.fingerprint !== hello.fingerprint) {
      throw new ProtocolError('FINGERPRINT_MISMATCH', `the run is pinned to ${this.fingerprint}, this worker has ${hello.fingerprint}`);
    }
    const previous = this.members.get(hello.id);
    if (previous) this.coordinator.plan.takeBack?.(hello.id);
    this.attempt.table.take('join');
    if (previous?.connection.isOpen && previous.connection !== connection) previous.connection.close();
    this.members.add(hello, connection);
    if (previous) this.event('worker.back', hello, 'is back');
    else this.event('worker.joined', hello, 'joined');
    this.hasChanged = true;
    this.stall.excused();
  }

  closed(id: string, connection: Connection, why: string): void {
    const member = this.members.get(id);
    if (!member || member.connection !== connection) return;
    member.up = false;
    if (member.leaving !== undefined) this.remove(member, 'worker.left', member.leaving);
    else this.goAway(member, why);
  }

  heartbeat(member: Member, { progress, rests = false, traffic, pace, echo }: MessageOf<'heartbeat'>): void {
    if (echo !== undefined)
      member.connection.sendMessage({ type: 'heartbeat', progress: this.attempt.round, echo }, this.attempt.numbers());
    if (pace) {
      this.attempt.codec.heard(member.id, pace);
      this.attempt.measuring.heard(member.id, pace);
      // Once it has trained, no other strategy is of use to the attempt.
      if (this.attempt.isTraining) this.attempt.measuring.tellIfEnough(this.attempt.members.live());
    }
    if (traffic) this.attempt.traffic.heard(member.id, traffic);
    member.rests = rests;
    if (progress === member.progress) return;
    member.progress = progress;
    member.lastProgressMs = this.options.now();
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
    this.stall.excused();
    if (this.attempt.isTraining) this.coordinator.plan.cover();
    this.measurements.offer();
  }

  /** Deadlines. */
  tick(): void {
    const now = this.options.now();
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
      } else if (this.owes(member) && now - Math.max(member.lastProgressMs, this.coordinator.plan.lastWorkMs) > stepDeadlineMs) {
        this.lose(member, 'its compute thread makes no progress', 'NOT_A_MEMBER');
      }
      if (this.attempt.isOver) return;
    }
  }

  /** The member has something to compute or to measure. At rest its progress moves too. */
  owes(member: Member): boolean {
    if (this.measurements.owes(member.id)) return true;
    return this.attempt.isTraining && this.coordinator.plan.owesWork(member);
  }

  leave(member: Member, reason: string): void {
    this.attempt.table.take('leave');
    member.leaving = reason;
    this.hasChanged = true;
    if (this.mayGoNow(member)) this.letGo(member);
  }

  /** A leaving member that owes nothing may go at once. */
  private mayGoNow(member: Member): boolean {
    const { attempt, coordinator, measurements } = this;
    if (attempt.isTraining) return !coordinator.plan.owesWork(member) || coordinator.waitingFor() !== null;
    return attempt.table.state !== 'EVALUATING' || !measurements.owes(member.id);
  }

  letGo(member: Member): void {
    member.connection.sendMessage({ type: 'end', outcome: 'finished', message: 'you have left the run' }, this.attempt.numbers());
    this.remove(member, 'worker.left', member.leaving ?? 'left');
  }

  /**
   * @param isCounted so many of these over one piece of work end the attempt
   * @param code tells the worker whether it may come back at once (SILENT_PEER) or has to give up its seat
   */
  lose(member: Member, why: string, code: DataPlaneErrorCode, isCounted = true): void {
    if (this.attempt.isOver) return; // the loss of another one has ended the attempt
    this.goAway(member, why);
    this.attempt.table.take('lost');
    this.remove(member, 'worker.lost', why);
    if (member.connection.isOpen) member.connection.close(new ProtocolError(code, why));
    if (isCounted) this.countLosses(member, why);
  }

  /** A work item is counted: nobody is lost over it any more. */
  counted(round: number, replica: number): void {
    this.losses.forget(round, replica);
  }

  /** The round is committed. */
  committed(): void {
    this.losses.clear();
  }

  /** Most members that may compute. */
  get target(): number {
    return this.workerTarget;
  }

  /** Most members that may compute from the next commit on; before the first round at once, which waits for no more than these. */
  setTarget(workers: number): void {
    if (workers === this.workerTarget || !(workers >= 1)) return;
    this.workerTarget = workers;
    this.hasChanged = true;
    if (this.attempt.isTraining) this.coordinator.begin();
    this.attempt.event('scale.changed', `at most ${counted(workers, 'worker')} from now on`, { workers, round: this.attempt.round });
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
    this.attempt.table.take('away');
    member.awaySinceMs = this.options.now();
    this.hasChanged = true;
    this.event('worker.away', member, 'is away', why);
    member.owed = this.attempt.isTraining ? this.coordinator.plan.owed(member) : undefined;
    this.coverFor(member);
  }

  /** Somebody is not there any more: what it had goes to the others. */
  private coverFor(member: Member): void {
    if (this.attempt.isTraining) this.coordinator.plan.cover();
    this.measurements.withdraw(member.id);
  }

  private remove(member: Member, type: 'worker.lost' | 'worker.left', why: string): void {
    if (!this.members.remove(member.id)) return;
    this.hasChanged = true;
    this.event(type, member, type === 'worker.lost' ? 'was lost' : 'left', why);
    this.coverFor(member);
  }

  private countLosses({ id, host, owed }: Member, why: string): void {
    if (!owed || this.attempt.isOver || !this.attempt.servers.allSpeak || !this.coordinator.plan.isStillOwed(owed)) return;
    const tooMany = this.losses.count(owed.round, owed.replicas, host, this.options.now(), why);
    if (!tooMany) return;
    const lost = `replica ${tooMany.replica} of round ${owed.round} has lost its worker ${MAX_LOSSES} times`;
    const message = `${tooMany.cause}; ${lost}, ${tooMany.howOften} by this (a poison round); the last one was ${id}`;
    this.ending.over('lost', 'failed', message, { cause: 'POISON_ROUND', replica: tooMany.replica });
  }

  private event(type: string, { id, seat }: { readonly id: string; readonly seat: number }, what: string, why?: string): void {
    const round = this.attempt.round;
    const message = why === undefined ? `worker ${id} ${what} in round ${round}` : `worker ${id} ${what}: ${why}`;
    this.attempt.event(type, message, { workerId: id, seat, round });
  }
}
