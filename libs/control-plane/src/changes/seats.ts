/** Rows of seats: what opens, holds and closes one, decided from the rows as they are under the lock of the run. */
import { stepTaskJobId } from '../contract/queues.js';
import type { Report } from '../contract/reports.js';
import { seatFailureOf, type SeatFailure } from '../lifecycle/attempt-end.js';
import type { DispatchAction } from '../lifecycle/observed-run.js';
import { hasLiveAttempt } from '../lifecycle/run-status.js';
import type { StoredAttempt, StoredTask } from '../dispatch/rows.js';
import type { RunHead, StoredEvent } from './moves.js';

type ActionOf<K extends DispatchAction['kind']> = Extract<DispatchAction, { kind: K }>;
type SeatFailed = Extract<Report, { kind: 'seat.failed' }>;

/** Columns of a step task. */
export interface SeatChange {
  readonly state?: StoredTask['state'];
  readonly heldSeats?: number;
  readonly workerId?: string;
  readonly replicas?: number[];
  readonly heldAt?: Date;
  readonly closedAt?: Date | null;
  readonly closeReason?: string | null;
}

export interface OpenedSeat {
  readonly seat: number;
  readonly incarnation: number;
  readonly heldSeats: number;
  readonly jobId: string;
}

/**
 * Seats are opened side by side; one and the same waits once, however often it is asked for.
 * @param present of the seat in this attempt: whether one of its rows is OPEN, and the highest incarnation; null without rows
 */
export function openedSeat(
  { id, attempt }: RunHead & { readonly id: string },
  { seat, heldSeats }: ActionOf<'open-seat'>,
  present: { readonly isOpen: boolean; readonly lastIncarnation: number | null },
): OpenedSeat | undefined {
  if (present.isOpen) return undefined;
  const incarnation = (present.lastIncarnation ?? -1) + 1;
  return { seat, incarnation, heldSeats, jobId: stepTaskJobId(id, attempt, seat, incarnation) };
}

/**
 * The coordinator owns the seats: one that it reports as new is held, whatever the row says. One that was held already and is closed by now
 * (its worker has just left) stays so until the coordinator reports it again.
 */
export function heldSeat(
  task: Pick<StoredTask, 'state'> | null,
  { workerId, replicas, isNew }: ActionOf<'hold-seat'>,
  now: Date,
): SeatChange | undefined {
  if (!task || (!isNew && task.state !== 'HELD')) return undefined;
  const held: SeatChange = { state: 'HELD', workerId, replicas: [...replicas] };
  return isNew ? { ...held, heldAt: now, closedAt: null, closeReason: null } : held;
}

export const closedSeat = (why: string, now: Date) => ({ state: 'CLOSED', closedAt: now, closeReason: why }) as const satisfies SeatChange;

export interface FailedSeat {
  readonly attempt: Pick<StoredAttempt, 'seatFailures' | 'lastFailureAt'>;
  /** For the row of the seat with this incarnation, where it is OPEN: what is held is the coordinator's to say. */
  readonly closes: ReturnType<typeof closedSeat>;
  readonly failure: SeatFailure;
  readonly event: StoredEvent;
}

/**
 * A worker could not take or keep its seat: counted once, however often and however late it is told. The seat may have been made again by
 * then, and another worker be about to take it: that row stays as it is. Undefined when it concerns nobody any more.
 * @param isTold whether the event of this worker, seat and incarnation is stored
 */
export function failedSeat(
  run: RunHead | undefined,
  attempt: Pick<StoredAttempt, 'seatFailures'> | null,
  isTold: boolean,
  report: SeatFailed,
  now: Date,
): FailedSeat | undefined {
  if (run?.attempt !== report.attempt || !attempt || isTold || !hasLiveAttempt(run.status)) return undefined;
  const failure = seatFailureOf(report);
  const { workerId, seat, incarnation, code, serverIndex } = report;
  return {
    attempt: { seatFailures: attempt.seatFailures + 1, lastFailureAt: now },
    closes: closedSeat(`${report.workerId}: ${report.code}`, now),
    failure,
    event: {
      attempt: report.attempt,
      type: 'seat.failed',
      message: failure.message,
      data: { workerId, seat, incarnation, code, serverIndex },
    },
  };
}

/** @param events of the attempt, `seat.failed` */
export const isToldOf = (
  events: readonly { readonly data: unknown }[],
  { seat, incarnation, workerId }: Pick<SeatFailed, 'seat' | 'incarnation' | 'workerId'>,
): boolean =>
  events.some(({ data }) => {
    const told = data as Partial<SeatFailed>;
    return told.seat === seat && told.incarnation === incarnation && told.workerId === workerId;
  });
