/**
 * Takes step tasks (docs/protocol.md §19): a seat in a run for a slice of 3 s. At the end of a slice the worker yields when another
 * run's task waits that deserves the seat more (`shouldYield`), otherwise it keeps the seat.
 * Redis or the api may be away meanwhile: nothing here stops a session, and a completion whose job has gone is normal.
 *
 *     idle ── step task ──> start ──> seated ── ended, given up, yielded ──> report ──> complete the job ──> idle
 */
import { shouldYield, type Report, type StepTaskJob } from '@paceline/control-plane';
import type { ControlPlane, HeldJob, JobQueue } from '@paceline/control-plane';
import { stepsOfRound } from '@paceline/spec';

const IDLE_MS = 100;
const KEEP_LOCK_MS = 8_000;
const LEAVE_DEADLINE_MS = 10_000;
/** For all that a worker still waits for when it shuts down: the start of a seat, and then to be let go. */
export const SHUTDOWN_LEAVE_MS = 3_000;
const SHUTS_DOWN = 'the worker is shutting down';
/** After a seat that could not be taken, so that a broken worker does not eat the queue. */
const AFTER_FAILURE_MS = 1_000;

export type SeatEnd =
  | { readonly kind: 'ended'; readonly message: string }
  | { readonly kind: 'given-up'; readonly code: string; readonly message: string; readonly serverIndex: number | null };

/** A worker's part in a run, from HELLO to its end. */
export interface Seat {
  readonly ended: Promise<SeatEnd>;
  /** Seats that its run holds, as the coordinator says. */
  readonly heldSeats: number;
  /** Asks the coordinator to let it go; after the deadline it goes anyway. */
  leave(reason: string, deadlineMs: number): void;
}

interface Timers {
  after(ms: number, act: () => void): () => void;
  every(ms: number, act: () => void): () => void;
}

/** Step tasks that are offered. `peek` shows of the first one no more than `shouldYield` looks at. */
export interface SeatQueue extends Pick<JobQueue<StepTaskJob>, 'take' | 'close'> {
  peek(): Promise<Pick<StepTaskJob, 'runId' | 'heldSeats'> | undefined>;
}

export interface SeatLoopOptions<S extends Seat> {
  readonly queue: SeatQueue;
  readonly controlPlane: Pick<ControlPlane, 'sendReport'>;
  readonly workerId: string;
  readonly clock: Timers;
  /** @throws what names in its `code` or `name` why the seat cannot be taken */
  start(job: StepTaskJob, tries: number): Promise<S>;
  /** Whether the seat is tried once more, in another way, after it came to this end. */
  triesAgain?(job: StepTaskJob, end: SeatEnd, tries: number): boolean;
  told(
    what: 'taken' | 'left' | 'unreported' | 'unseen',
    job: StepTaskJob,
    detail: { readonly end?: SeatEnd; readonly error?: Error },
  ): void;
}

const leaveAtOnce = (seat: Seat): void => seat.leave(SHUTS_DOWN, 0);

export class SeatLoop<S extends Seat> {
  private stopped = false;
  private running: Promise<void> | undefined;
  private seat: S | undefined;
  /** What is done when it shuts down and has waited for long enough. */
  private whenLate: () => void = () => undefined;

  constructor(private readonly options: SeatLoopOptions<S>) {}

  /** Where it sits now. */
  get present(): S | undefined {
    return this.seat;
  }

  start(): void {
    this.running = this.loop();
  }

  async stop(): Promise<void> {
    this.stopped = true;
    this.seat?.leave(SHUTS_DOWN, SHUTDOWN_LEAVE_MS);
    const cancel = this.options.clock.after(SHUTDOWN_LEAVE_MS, () => this.whenLate());
    await this.running;
    cancel();
    await this.options.queue.close();
  }

  private async loop(): Promise<void> {
    const { queue } = this.options;
    while (!this.stopped) {
      const held = await queue.take().catch(() => undefined); // Redis is away: asked again
      if (held) await (this.stopped ? held.giveBack() : this.sit(held));
      else await this.pause(IDLE_MS);
    }
  }

  private async sit(held: HeldJob<StepTaskJob>): Promise<void> {
    const job = held.payload;
    const { clock, told } = this.options;
    told('taken', job, {});
    const cancel = clock.every(KEEP_LOCK_MS, () => void held.keep());
    let end = await this.sitOnce(job, 0);
    for (let tries = 0; !this.stopped && this.options.triesAgain?.(job, end, tries); tries++) end = await this.sitOnce(job, tries + 1);
    cancel();
    told('left', job, { end });
    await this.report(job, end);
    await held.complete(end.kind);
    if (end.kind === 'given-up' && end.code !== 'SEAT_TAKEN') await this.pause(AFTER_FAILURE_MS);
  }

  private async sitOnce(job: StepTaskJob, tries: number): Promise<SeatEnd> {
    const { clock, start } = this.options;
    let cancel: (() => void) | undefined;
    try {
      const starting = start(job, tries);
      const seat = await new Promise<S | undefined>((resolve, reject) => {
        this.whenLate = () => resolve(undefined);
        starting.then(resolve, reject);
      });
      if (!seat) {
        // An engine that loads takes its time, and nobody counts on it yet.
        starting.then(leaveAtOnce, () => undefined);
        return { kind: 'ended', message: SHUTS_DOWN };
      }
      this.seat = seat;
      this.whenLate = () => leaveAtOnce(seat);
      if (this.stopped) seat.leave(SHUTS_DOWN, SHUTDOWN_LEAVE_MS);
      cancel = clock.every(job.sliceMs, () => void this.endOfSlice(job, seat));
      return await seat.ended;
    } catch (error) {
      const { name, message, code = name } = error as Error & { code?: string };
      return { kind: 'given-up', code, message, serverIndex: null };
    } finally {
      cancel?.();
      this.seat = undefined;
      this.whenLate = () => undefined;
    }
  }

  private async endOfSlice(job: StepTaskJob, seat: S): Promise<void> {
    try {
      const waiting = await this.options.queue.peek();
      if (!shouldYield({ runId: job.runId, heldSeats: seat.heldSeats }, waiting)) return;
      // It owes its round to the end, which has so many steps.
      seat.leave('another run waits for a worker', LEAVE_DEADLINE_MS * stepsOfRound(job.spec));
    } catch (error) {
      this.options.told('unseen', job, { error: error as Error });
    }
  }

  private async report(job: StepTaskJob, end: SeatEnd): Promise<void> {
    const { runId, attempt, seat, incarnation } = job;
    const { workerId, controlPlane, told } = this.options;
    const report: Report =
      end.kind === 'ended'
        ? { kind: 'seat.left', runId, attempt, seat, incarnation, workerId, reason: end.message.slice(0, 300) }
        : {
            ...({ kind: 'seat.failed', runId, attempt, seat, incarnation, workerId } as const),
            code: end.code.slice(0, 100),
            message: end.message.slice(0, 2000),
            serverIndex: end.serverIndex,
          };
    await controlPlane.sendReport(report).catch((error: Error) => told('unreported', job, { error, end }));
  }

  private pause(ms: number): Promise<void> {
    return new Promise((resolve) => this.options.clock.after(ms, resolve));
  }
}
