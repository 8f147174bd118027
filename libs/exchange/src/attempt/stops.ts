/**
 * How the coordinator keeps checkpoints and comes to a stop before the end: checkpoints.ts with its events, and a pause or the end of a
 * server with its deadlines.
 *
 *   a stop is asked for → the present round is committed within the deadline → that commit takes a checkpoint → it is published
 *   within the deadline again → the attempt ends on it. Whatever does not come in time: it ends on the checkpoint before.
 */
import type { MessageOf } from '@paceline/protocol';
import type { Attempt } from './attempt.js';
import type { CheckpointTracker, CheckpointContent, CheckpointReason } from './checkpoints.js';
import type { Ending } from './ending.js';
import type { Finish } from './finish.js';
import type { Validations } from './validations.js';
import type { Coordinated } from './work-plan.js';
import { counted, sizeText } from '../words.js';

type StopReason = 'pause' | 'shutdown' | 'deserted';

interface Stop {
  readonly reason: StopReason;
  readonly why: string;
  readonly deadlineMs: number;
  byMs: number;
}

/** A checkpoint whose manifest is stored. */
export interface PublishedCheckpoint {
  readonly bytes: number;
  readonly sha256: string;
  readonly loss: number | null;
}

/** What a validation wants of the commit that it belongs to. */
interface AskedCheckpoint {
  readonly isBest?: boolean;
  readonly isLast?: boolean;
}

/** A part of the coordinator that waits until the best checkpoint is written. */
export interface CheckpointWaiter {
  checkpointSettled(): void;
}

export class Stops {
  private stop: Stop | undefined;
  /** The present round is not committed before the best checkpoint is written: the run would end, or better ones come faster than they are written. */
  waiter: CheckpointWaiter | undefined;

  constructor(
    private readonly attempt: Attempt,
    private readonly checkpoints: CheckpointTracker,
    private readonly ending: Ending,
    private readonly finish: Finish,
    private readonly coordinator: Coordinated,
  ) {}

  get isAsked(): boolean {
    return this.stop !== undefined;
  }

  /** Generation of the newest checkpoint that is known to be complete: where a new attempt would begin. */
  get newest(): number {
    return this.checkpoints.newest;
  }

  /** The best generation is being written: the run does not end before that is done. */
  get isBestUnderWay(): boolean {
    return this.checkpoints.isBestUnderWay;
  }

  /** Another best checkpoint has to wait for the one that is being written. */
  get isCrowded(): boolean {
    return this.checkpoints.isCrowded;
  }

  /** Whether a checkpoint of `generation` would be written now. */
  wantsCheckpoint(generation: number): boolean {
    return this.reasonForCheckpoint(generation) !== undefined;
  }

  /** The checkpoint that the commit before `generation` takes, if it takes one; it begins with this call. */
  beginCheckpoint(generation: number, content: () => CheckpointContent, asked: AskedCheckpoint = {}): boolean {
    const reason = this.reasonForCheckpoint(generation, asked);
    if (reason) this.checkpoints.begin(generation, reason, content());
    return reason !== undefined;
  }

  /**
   * The coordinator before has committed the last round, which began the final checkpoint, and may have been lost before that was written: the servers
   * are asked for it once more. Not where it has what codecs keep of replicas: the workers may have let go of that, and two coordinators could write different parts.
   */
  takeFinalAgain(validations: Validations): void {
    const { attempt, coordinator } = this;
    const { round, view, term, options } = attempt;
    if (this.newest >= round || options.residualNames) return;
    const isBest = validations.isBest(round);
    const content = { loss: null, ledger: coordinator.plan.ledger.state(), course: validations.course, isBest };
    if (!this.beginCheckpoint(round, () => content, { isBest, isLast: true })) return;
    attempt.servers.send({ type: 'commit', round: round - 1, view, term, checkpoint: true }, attempt.numbers());
  }

  private reasonForCheckpoint(generation: number, { isBest = false, isLast = false }: AskedCheckpoint = {}): CheckpointReason | undefined {
    const { checkpoints, schedule } = this.attempt.options;
    if (!checkpoints) return undefined;
    if (generation === schedule.totalRounds || isLast) return checkpoints.final ? 'final' : isBest ? 'best' : undefined;
    if (this.stop && (isBest || !this.checkpoints.isBestUnderWay)) return this.stop.reason === 'pause' ? 'pause' : 'shutdown';
    if (isBest) return 'best';
    return this.checkpoints.isDue(generation) ? 'cadence' : undefined;
  }

  /** A server has written its part. Where it has residuals, `missing` is there, and their names follow those that came. */
  partWritten(server: number, { generation, file, missing }: MessageOf<'part-written'>): void {
    this.attempt.table.take('partWritten');
    const names = missing ? (this.attempt.options.residualNames?.(server) ?? []) : [];
    const checkpoint = this.checkpoints.written(server, generation, { ...file, tensors: [...file.tensors, ...names] }, missing);
    if (checkpoint) this.attempt.options.surroundings.publishCheckpoint(checkpoint);
  }

  /** The manifest of a checkpoint is stored. False when nobody waits for it any more: then nobody is told of it. */
  published(generation: number, record: PublishedCheckpoint): boolean {
    const { attempt, checkpoints } = this;
    const { reason, isBestUnderWay: isBest } = checkpoints;
    if (attempt.isOver || !checkpoints.settle(generation, true)) return false;
    const { bytes, sha256, loss } = record;
    attempt.event('checkpoint.written', `checkpoint of round ${generation} written: ${sizeText(bytes)}`, {
      attempt: attempt.options.attempt,
      round: generation,
      reason,
      bytes,
      sha256,
      loss,
      ...(isBest ? { isBest } : {}),
    });
    this.settled();
    return true;
  }

  /** The checkpoint before it stays the newest, and training goes on. */
  failed(generation: number, why: string): void {
    const { attempt, checkpoints } = this;
    if (attempt.isOver || !checkpoints.settle(generation, false)) return;
    attempt.event('checkpoint.failed', `no checkpoint of round ${generation}: ${why}`, { round: generation, newest: this.newest });
    this.settled();
  }

  /** A checkpoint that is being written cannot become whole any more. */
  partLost(why: string): void {
    const { generation } = this.checkpoints;
    if (generation !== undefined) this.failed(generation, why);
  }

  private settled(): void {
    const { table } = this.attempt;
    table.take('checkpointSettled');
    if (table.state === 'STOPPING') this.end();
    else this.finish.checkpointSettled();
    this.waiter?.checkpointSettled();
  }

  /** Finishes the round, takes a checkpoint and ends the attempt as paused. After the last round there is nothing to pause. */
  pause(): void {
    this.ask('pause', 'a pause was asked for');
  }

  /** The same before this process, or the one of another server, ends: the attempt fails with the cause STOPPED. */
  shutdown(why: string): void {
    this.ask('shutdown', why);
  }

  /** The last workers leave, and what is kept of replicas goes with them (EF21): the attempt ends on a checkpoint that has it. */
  deserted(): void {
    this.ask('deserted', 'the last worker leaves');
  }

  /** Nothing new is asked when a server has to end already: that is more urgent than a pause. */
  private ask(reason: StopReason, why: string): void {
    const { attempt, coordinator } = this;
    if (!attempt.isTraining || (this.stop && (this.stop.reason === 'shutdown' || reason !== 'shutdown'))) return;
    const { pauseDeadlineMs = 4_500, shutdownDeadlineMs = 1_500, checkpoints } = attempt.options;
    this.stop = { reason, why, deadlineMs: reason === 'shutdown' ? shutdownDeadlineMs : pauseDeadlineMs, byMs: 0 };
    this.extend();
    attempt.table.take('stop');
    if (this.isAtCheckpoint() || !checkpoints) this.end();
    else coordinator.plan.drain?.();
  }

  /** Nothing is committed since the newest checkpoint, and nobody is about to commit anything. Who has taken the place of another, and has not begun, does not know. */
  private isAtCheckpoint(): boolean {
    const { attempt, coordinator } = this;
    if (attempt.round !== this.newest) return false;
    return coordinator.plan.ledger.hasBegun ? coordinator.waitingFor() !== null : !attempt.options.succession;
  }

  /** A pause waits for the validation that has begun, as long as that goes on. */
  validates(): void {
    if (this.stop?.reason === 'pause') this.extend();
  }

  /** The round is committed: as long again for its checkpoint. */
  extend(): void {
    if (this.stop) this.stop.byMs = this.attempt.options.now() + this.stop.deadlineMs;
  }

  /** Deadlines. */
  tick(): void {
    const { attempt, checkpoints, stop } = this;
    const late = checkpoints.late();
    if (late) this.failed(late.generation, late.why);
    if (!attempt.isOver && stop && attempt.options.now() > stop.byMs && attempt.table.allows('stopped')) this.end();
  }

  /** The attempt ends on its newest checkpoint. */
  end(): void {
    const { attempt, newest } = this;
    const { reason, why } = this.stop!;
    const redone = Math.max(0, attempt.round - newest);
    const again = redone > 0 ? `, ${counted(redone, 'round')} will be redone` : '';
    const message = `${why}; stopped at the checkpoint of round ${newest}${again}`;
    if (reason === 'pause') {
      attempt.event('run.paused', message, { round: newest, redone });
      this.ending.over('stopped', 'paused', message);
    } else this.ending.over('stopped', 'failed', message, { cause: reason === 'deserted' ? 'WORKERS_LEFT' : 'STOPPED', redone });
  }
}
