/** Which work a worker that shuts down still waits for, and for how long. */
import type { Report, StepTaskJob } from '@paceline/control-plane';
import { beforeEach, expect, it } from 'vitest';
import { SeatLoop, SHUTDOWN_LEAVE_MS, type Seat, type SeatEnd } from './seat-loop.js';

const JOB = { runId: 'r', attempt: 1, seat: 2, incarnation: 0, sliceMs: 100_000, spec: {} } as unknown as StepTaskJob;

class PlannedSeat implements Seat {
  readonly heldSeats = 1;
  readonly left: number[] = [];
  private end!: (end: SeatEnd) => void;
  readonly ended = new Promise<SeatEnd>((resolve) => (this.end = resolve));
  /** No coordinator answers: only the deadline lets it go. */
  leave(reason: string, deadlineMs: number): void {
    this.left.push(deadlineMs);
    if (deadlineMs === 0) this.end({ kind: 'ended', message: reason });
  }
}

let timers: { readonly ms: number; act(): void }[];
let reports: Report[];
let completed: string[];
let started: (seat: PlannedSeat) => void;
let loop: SeatLoop<PlannedSeat>;
beforeEach(() => {
  [timers, reports, completed] = [[], [], []];
  let isWaiting = true;
  const after = (ms: number, act: () => void) => {
    const timer = { ms, act };
    timers.push(timer);
    return () => void (timers = timers.filter((each) => each !== timer));
  };
  loop = new SeatLoop({
    workerId: 'w',
    clock: { after, every: () => () => undefined },
    controlPlane: { sendReport: (report) => Promise.resolve(void reports.push(report)) },
    queue: {
      take: () => {
        if (!isWaiting) return Promise.resolve(undefined);
        isWaiting = false;
        const yes = () => Promise.resolve(true);
        return Promise.resolve({ id: 'j', payload: JOB, keep: yes, giveBack: yes, complete: (how) => (completed.push(how), yes()) });
      },
      peek: () => Promise.resolve(undefined),
      close: () => Promise.resolve(),
    },
    start: () => new Promise((resolve) => (started = resolve)),
    told: () => undefined,
  });
  loop.start();
});

const pass = (ms: number): void => timers.filter((timer) => timer.ms === ms).forEach(({ act }) => act());
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

it('the start of a seat is waited for no longer than a seat that is asked to leave; a seat that comes too late leaves at once', async () => {
  await settled();
  const stopped = loop.stop();
  await settled();
  expect(completed).toEqual([]);
  pass(SHUTDOWN_LEAVE_MS);
  await stopped;
  expect(reports).toMatchObject([{ kind: 'seat.left', seat: 2, reason: 'the worker is shutting down' }]);
  expect(completed).toEqual(['ended']);
  const late = new PlannedSeat();
  started(late);
  await settled();
  expect(late.left).toEqual([0]);
});

it('both together take no longer than one: a seat that began meanwhile leaves when the time is up', async () => {
  await settled();
  const stopped = loop.stop();
  const seat = new PlannedSeat();
  started(seat);
  await settled();
  expect([seat.left, completed]).toEqual([[SHUTDOWN_LEAVE_MS], []]);
  pass(SHUTDOWN_LEAVE_MS);
  await stopped;
  expect([seat.left, completed, timers]).toEqual([[SHUTDOWN_LEAVE_MS, 0], ['ended'], []]);
});

it('a seat that is left by itself is waited for by no timer', async () => {
  await settled();
  const seat = new PlannedSeat();
  started(seat);
  await settled();
  seat.leave('the run is over', 0);
  await settled();
  const stopped = loop.stop();
  pass(100); // between two questions for a job
  await stopped;
  expect([seat.left, completed, timers.filter(({ ms }) => ms === SHUTDOWN_LEAVE_MS)]).toEqual([[0], ['ended'], []]);
});
