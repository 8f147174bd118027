/**
 * How the coordinator keeps checkpoints and comes to a stop before the end: checkpoints.ts with its events, and a pause or the end of a
 * server with its deadlines.
 *
 *   a stop is asked for → the present round is committed within the deadline → that commit takes a checkpoint → it is published
 *   within the deadline again → the attempt ends on it. Whatever does not come in time: it ends on the checkpoint before.
 */
import type { CheckpointPart } from '@paceline/protocol';
import type { CoordinatorOptions } from './attempt-options.js';
import { CheckpointTracker, type CompletedCheckpoint, type CheckpointContent, type CheckpointReason } from './checkpoints.js';
import { counted, sizeText } from '../words.js';

export type StopReason = 'pause' | 'shutdown';

interface Stop {
  readonly reason: StopReason;
  readonly why: string;
  readonly deadlineMs: number;
  byMs: number;
}

type JournalEvent = (type: string, message: string, data: Record<string, unknown>) => void;

/** What a validation wants of the commit that it belongs to. */
interface AskedCheckpoint {
  readonly isBest?: boolean;
  readonly isLast?: boolean;
}

const NO_CADENCE = { everyRounds: 0, everyMs: 0, deadlineMs: 60_000 };

export class Stops {
  private readonly checkpoints: CheckpointTracker;
  private stop: Stop | undefined;

  constructor(
    private readonly options: CoordinatorOptions,
    private readonly journal: JournalEvent,
  ) {
    this.checkpoints = new CheckpointTracker(
      options.servers,
      options.checkpoints ?? NO_CADENCE,
      options.succession?.newest ?? options.firstRound ?? 0,
      options.now,
    );
  }

  get isAsked(): boolean {
    return this.stop !== undefined;
  }

  /** Generation of the newest checkpoint that is known to be complete: where a new attempt would begin. */
  get newest(): number {
    return this.checkpoints.newest;
  }

  /** Rounds in the checkpoint that is being written, if one is. */
  get underWay(): number | undefined {
    return this.checkpoints.generation;
  }

  /** The final checkpoint is being written: the run waits for it, however it ends. */
  get isFinalUnderWay(): boolean {
    return this.checkpoints.reason === 'final';
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

  private reasonForCheckpoint(generation: number, { isBest = false, isLast = false }: AskedCheckpoint = {}): CheckpointReason | undefined {
    const { checkpoints, schedule } = this.options;
    if (!checkpoints) return undefined;
    if (generation === schedule.totalRounds || isLast) return checkpoints.final ? 'final' : isBest ? 'best' : undefined;
    if (this.stop && (isBest || !this.checkpoints.isBestUnderWay)) return this.stop.reason;
    if (isBest) return 'best';
    return this.checkpoints.isDue(generation) ? 'cadence' : undefined;
  }

  /** Returns the checkpoint when the last part of it has come. */
  written(server: number, generation: number, file: CheckpointPart): CompletedCheckpoint | undefined {
    return this.checkpoints.written(server, generation, file);
  }

  /** False when it is none that is under way. */
  published(generation: number, record: { readonly bytes: number; readonly sha256: string; readonly loss: number | null }): boolean {
    const { reason, isBestUnderWay: isBest } = this.checkpoints;
    if (!this.checkpoints.settle(generation, true)) return false;
    const { bytes, sha256, loss } = record;
    this.journal('checkpoint.written', `checkpoint of round ${generation} written: ${sizeText(bytes)}`, {
      attempt: this.options.attempt,
      round: generation,
      reason,
      bytes,
      sha256,
      loss,
      ...(isBest ? { isBest } : {}),
    });
    return true;
  }

  /** False when it is none that is under way. */
  failed(generation: number, why: string): boolean {
    if (!this.checkpoints.settle(generation, false)) return false;
    this.journal('checkpoint.failed', `no checkpoint of round ${generation}: ${why}`, { round: generation, newest: this.newest });
    return true;
  }

  /** The checkpoint that has run past its deadline, or undefined. */
  lateCheckpoint(): { generation: number; why: string } | undefined {
    return this.checkpoints.late();
  }

  /** False when nothing new is asked: a server that has to end is more urgent than a pause. */
  ask(reason: StopReason, why: string): boolean {
    if (this.stop && (this.stop.reason === 'shutdown' || reason === 'pause')) return false;
    const { pauseDeadlineMs = 4_500, shutdownDeadlineMs = 1_500 } = this.options;
    this.stop = { reason, why, deadlineMs: reason === 'pause' ? pauseDeadlineMs : shutdownDeadlineMs, byMs: 0 };
    this.extend();
    return true;
  }

  /** A pause waits for the validation that has begun, as long as that goes on. */
  validates(): void {
    if (this.stop?.reason === 'pause') this.extend();
  }

  /** The round is committed: as long again for its checkpoint. */
  extend(): void {
    if (this.stop) this.stop.byMs = this.options.now() + this.stop.deadlineMs;
  }

  get isPastDeadline(): boolean {
    return this.stop !== undefined && this.options.now() > this.stop.byMs;
  }

  /** How the attempt ends. @param round where it stands, as far as its coordinator knows */
  ending(round: number): { readonly reason: StopReason; readonly message: string; readonly redone: number } {
    const { reason, why } = this.stop!;
    const redone = Math.max(0, round - this.newest);
    const again = redone > 0 ? `, ${counted(redone, 'round')} will be redone` : '';
    return { reason, redone, message: `${why}; stopped at the checkpoint of round ${this.newest}${again}` };
  }
}
