/**
 * The coordinator of an attempt, in every mode: it takes what servers and members say to the part whose subject that is, and begins the work when
 * everything is there. How work is given out and counted is its plan's (work-plan.ts).
 *
 *   attempt.ts      round, view, members, servers       finish.ts         evaluation at the end, weights
 *   attendance.ts   workers come, fall silent, leave    stops.ts          checkpoints, a pause, a server that has to end
 *   stall-watch.ts  work that stands still              ending.ts         the end, said to everybody
 *   validations.ts  decisions of validations            measurements.ts   examples that members measure
 *   ../standby/server-takeovers.ts  standbys of servers
 *
 * The machine takes its clock as an argument; `tick` must be called every 100 ms or so.
 */
import { ProtocolError, type FailureCause, type Message, type MessageOf } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import { Attempt } from './attempt.js';
import { Attendance } from './attendance.js';
import type { AttemptOptions } from './attempt-options.js';
import { CheckpointTracker } from './checkpoints.js';
import { Ending } from './ending.js';
import { Finish } from './finish.js';
import { Measurements } from './measurements.js';
import type { CoordinatedMember as Member } from './membership.js';
import type { CoordinatorParts } from './parts.js';
import { StallDetector } from './stall.js';
import { StallWatch } from './stall-watch.js';
import { Stops } from './stops.js';
import type { KnownNumbers } from './succession.js';
import { Validations } from './validations.js';
import type { Coordinated, WorkPlan } from './work-plan.js';
import { ServerTakeovers } from '../standby/server-takeovers.js';

const NO_CADENCE = { everyRounds: 0, everyMs: 0, deadlineMs: 60_000 };

export class Coordinator<Plan extends WorkPlan = WorkPlan, Options extends AttemptOptions = AttemptOptions>
  implements CoordinatorParts, Coordinated
{
  readonly attempt: Attempt;
  readonly attendance: Attendance;
  readonly measurements: Measurements;
  readonly validations: Validations;
  readonly stall: StallWatch;
  readonly stops: Stops;
  readonly takeovers: ServerTakeovers;
  readonly finish: Finish;
  readonly ending: Ending;
  readonly plan: Plan;

  /** @param planClass how work is given out and counted: Rounds or WorkItems */
  constructor(options: Options, planClass: new (parts: CoordinatorParts, options: Options) => Plan) {
    const { succession, firstRound = 0, checkpoints: cadence = NO_CADENCE, now } = options;
    this.attempt = new Attempt(options, this);
    const checkpoints = new CheckpointTracker(options.servers, cadence, succession?.newest ?? firstRound, now);
    const detector = new StallDetector(now, options.stall);
    this.validations = new Validations(options.validation, options.schedule.totalRounds, options);
    this.measurements = new Measurements(this.attempt);
    this.ending = new Ending(this.attempt, checkpoints);
    this.attendance = new Attendance(this.attempt, this.measurements, detector, this.ending, this);
    this.finish = new Finish(this.attempt, checkpoints, this.measurements, this.validations, this.attendance, this.ending);
    this.stops = new Stops(this.attempt, checkpoints, this.ending, this.finish, this);
    this.stall = new StallWatch(this.attempt, detector, this.attendance, this.measurements, this.ending, this);
    this.takeovers = new ServerTakeovers(this.attempt, this.stops, this);
    this.plan = new planClass(this, options);
  }

  get table(): Plan['table'] {
    return this.plan.table;
  }

  get ledger(): Plan['ledger'] {
    return this.plan.ledger;
  }

  get round(): number {
    return this.attempt.round;
  }

  get view(): number {
    return this.attempt.view;
  }

  numbers(): FrameNumbers {
    return this.attempt.numbers();
  }

  get phase(): 'waiting' | 'training' | 'pausing' | 'evaluating' | 'finished' {
    if (this.attempt.isOver) return 'finished';
    if (this.table.state === 'STOPPING' || this.stops.isAsked) return 'pausing';
    if (!this.attempt.isTraining) return 'evaluating';
    return this.waitingFor() === null ? 'training' : 'waiting';
  }

  waitingFor(): string | null {
    const { state } = this.table;
    if (state === 'OVER') return null;
    const missing = this.takeovers.waitingFor() ?? this.plan.waitingFor();
    if (missing !== null) return missing;
    if (this.attempt.members.live().length === 0 && state !== 'COLLECTING') return 'a worker to take a step task';
    if (state === 'STOPPING') return 'its last checkpoint to be written';
    if (this.stops.waiter && this.attempt.isTraining) return 'its best checkpoint to be written';
    return state === 'COLLECTING' ? this.finish.waitingFor : null;
  }

  seats(): { seat: number; incarnation: number; workerId: string; replicas: number[] }[] {
    return this.attempt.members.all().map((member) => {
      const { seat, incarnation, id: workerId } = member;
      return { seat, incarnation, workerId, replicas: this.plan.replicasOf(member) };
    });
  }

  // ---- servers ----

  /** Before it takes the place of another: HELLO of a server. @throws ProtocolError STALE_TERM when its standby leads */
  serverComes(index: number, term: number): void {
    this.attempt.servers.comes(index, term);
  }

  serverJoined(index: number, connection: Connection): void {
    const { attempt, plan } = this;
    attempt.table.take('serverJoins');
    attempt.servers.add(index, connection);
    if (this.takeovers.isAsking) return;
    connection.sendMessage(attempt.viewMessage(), attempt.numbers());
    this.begin();
    // While a server was away nothing was given out, and who joined is in no view.
    if (attempt.servers.isComplete && attempt.isTraining && plan.ledger.hasBegun) plan.cover();
  }

  serverLost(index: number, why: string): void {
    const { attempt } = this;
    if (attempt.isOver || !attempt.servers.remove(index) || this.takeovers.covers(index, why)) return;
    const message = `parameter server ${index} was lost in round ${attempt.round}: ${why}`;
    this.ending.over('serverLost', 'failed', message, { cause: 'SERVER_LOST', server: index });
  }

  serverMessage(index: number, message: Message): void {
    if (this.attempt.isOver || !this.attempt.servers.heard(index)) return;
    switch (message.type) {
      case 'heartbeat':
        return;
      case 'member-link':
        return this.attendance.link(index, message);
      case 'part-written':
        return this.stops.partWritten(index, message);
      case 'part-failed':
        if (message.code === 'ALREADY_EXISTS') return this.attempt.options.surroundings.findCheckpoint(message.generation);
        return this.stops.failed(message.generation, `parameter server ${index}: ${message.code}: ${message.message}`);
      case 'stopping':
        return this.stops.shutdown(`parameter server ${index}: ${message.reason}`);
      case 'standing':
        return this.takeovers.stands(index, message);
      case 'standby-link':
        return this.takeovers.link(index, message);
      default:
        if (!this.plan.fromServer(index, message))
          throw new ProtocolError('BAD_MESSAGE', `a server does not send ${message.type} to the coordinator`);
    }
  }

  // ---- members ----

  /**
   * Admits a worker, or takes back one that was away.
   * @param known the round that the worker is in, and its view: after a takeover it may know of a commit, and of views, that no
   *   server has heard of
   * @throws ProtocolError RUN_OVER, SEAT_TAKEN, FINGERPRINT_MISMATCH; NOT_PRIMARY while this coordinator does not know where the servers stand
   */
  memberJoined(hello: MessageOf<'hello'>, connection: Connection, known?: KnownNumbers): void {
    const { attempt, plan } = this;
    const isAhead = known !== undefined && this.takeovers.memberComes(known);
    if (attempt.isOver) throw new ProtocolError('RUN_OVER');
    this.attendance.join(hello, connection);
    if (attempt.isTraining) {
      if (attempt.servers.isComplete) plan.cover();
      this.begin();
    }
    // The newcomer learns the present view even when nothing was given to it.
    connection.sendMessage(attempt.viewMessage(), attempt.numbers());
    // What was sent over an earlier connection, or came back over it, may be lost with it.
    this.measurements.withdraw(hello.id);
    plan.memberBack(hello.id, isAhead);
  }

  memberClosed(id: string, connection: Connection, why: string): void {
    if (!this.attempt.isOver) this.attendance.closed(id, connection, why);
  }

  memberMessage(id: string, message: Message): void {
    const member = this.attempt.members.get(id);
    if (!member || this.attempt.isOver) return;
    member.lastHeardMs = this.attempt.options.now();
    switch (message.type) {
      case 'heartbeat':
        return this.attendance.heartbeat(member, message);
      case 'evaluated':
        return this.evaluated(member, message);
      case 'leave':
        return this.attendance.leave(member, message.reason);
      case 'failed':
        // A store that is away is away for the next worker too: that says nothing of the round.
        return this.attendance.lose(member, `${message.code}: ${message.message}`, 'NOT_A_MEMBER', message.code !== 'DATASET_AWAY');
      default:
        if (!this.plan.fromMember(member, message))
          throw new ProtocolError('BAD_MESSAGE', `a worker does not send ${message.type} to the coordinator`);
    }
  }

  private evaluated(from: Member, message: MessageOf<'evaluated'>): void {
    if (!this.measurements.isOf(message.generation)) return;
    const misfit = this.measurements.misfitOf(message);
    if (misfit !== undefined) return this.attendance.lose(from, misfit, 'NOT_A_MEMBER');
    this.stall.moved();
    this.measurements.add(message);
  }

  // ---- time ----

  /** Deadlines. Call it every 100 ms or so. */
  tick(): void {
    const { attempt, plan } = this;
    const { servers } = attempt;
    plan.succession?.tick?.();
    if (attempt.isOver) return;
    const silent = servers.silent();
    if (silent) return this.serverLost(silent.index, `nothing heard for ${silent.silentMs} ms`);
    if (servers.isLate) {
      const why = `waited too long for ${this.waitingFor()}`;
      return this.ending.over('fail', 'failed', why, { cause: 'SERVER_LOST', servers: servers.missing });
    }
    this.stops.tick();
    if (!attempt.isOver) this.attendance.tick();
    if (!attempt.isOver) this.stall.tick();
  }

  /** Tells the servers that the coordinator lives; call it every second. */
  heartbeat(): void {
    this.attempt.servers.send({ type: 'heartbeat', progress: this.round }, this.numbers());
  }

  begin(): void {
    const { attempt, plan, validations } = this;
    if (plan.ledger.hasBegun || this.waitingFor() !== null) return;
    plan.ledger.begin();
    this.stall.moved();
    plan.cover();
    const { servers, replicas, schedule, succession } = attempt.options;
    const { round } = attempt;
    if (!succession) {
      if (round > 0) attempt.event('run.restored', `goes on from the checkpoint of round ${round}`, { round });
      const workers = attempt.members.live().length;
      const facts = { workers, servers, replicas, totalRounds: schedule.totalRounds, fingerprint: this.attendance.fingerprint ?? '' };
      attempt.event('training.started', `training started; workers: ${workers}, servers: ${servers}, replicas: ${replicas}`, facts);
    }
    // Restored from a checkpoint of its last round, or of the one that a validation has ended it with, or taken over behind it: only the end is left.
    if (round < schedule.totalRounds && validations.stop === undefined) return;
    if (succession) this.stops.takeFinalAgain(validations);
    plan.finishTraining();
  }

  // ---- the end ----

  cancel(): void {
    this.ending.cancel();
  }

  fail(message: string, cause?: FailureCause): void {
    this.ending.fail(message, cause);
  }
}
