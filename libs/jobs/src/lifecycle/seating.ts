/**
 * Seats of a run (ROUNDS §7). The coordinator owns them: what it reports is true, and the rows follow.
 *
 *     OPEN ─ reported as held ─> HELD ─ not reported any more ─> CLOSED
 *       └── its job is gone and nobody holds the seat ─────────────^
 *
 * As long as fewer seats are held than the run may have, exactly one seat is open: an idle worker finds it, a busy one sees
 * that another run waits. A seat that failed is made again after a pause that doubles.
 */
import { stepTaskJobId } from '../contract.js';
import type { DispatchAction, JobSighting, RunPicture, TaskPicture } from './picture.js';

/** From taking a job to being seated, a worker loads its engine and its data. */
const SEATED_WITHIN_MS = 30_000;
/** A worker that finished its job is seated or not; the coordinator's next state tells. */
const STATE_GRACE_MS = 2_500;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
/** With nobody in a seat, so many failures in a row end the attempt: no worker of the fleet can run it. */
export const MAX_SEAT_FAILURES = 8;
/** Nobody needs another seat for what is left. */
const LAST_PHASES: readonly string[] = ['pausing', 'evaluating', 'finished', 'paused', 'cancelled', 'failed'];

export const seatJobId = (run: RunPicture, { seat, n }: { seat: number; n: number }): string =>
  stepTaskJobId(run.runId, run.attempt, seat, n);

/** Seats that may be held at the same time. */
export const seatLimit = ({ replicas, workersWanted }: Pick<RunPicture, 'replicas' | 'workersWanted'>): number =>
  Math.min(replicas, workersWanted ?? replicas);

/** Step-task jobs whose state decides something now. */
export const seatsInQuestion = (run: RunPicture): string[] => stillOpen(run).map((task) => seatJobId(run, task));

export function seat(run: RunPicture, jobs: ReadonlyMap<string, JobSighting>, now: number): DispatchAction[] {
  const actions = follow(run);
  const open = stillOpen(run);
  const held = run.coordinator?.seats.length ?? 0;
  const close = (task: TaskPicture, why: string) => actions.push({ kind: 'close-seat', task, why });
  const isEnding = run.status === 'PAUSING' || (run.coordinator !== null && held > 0 && LAST_PHASES.includes(run.coordinator.phase));
  if (isEnding) {
    for (const task of open) close(task, run.status === 'PAUSING' ? 'the run is about to pause' : 'the run is about to end');
    return actions;
  }
  if (held === 0 && run.seatFailures >= MAX_SEAT_FAILURES) {
    const message = `no worker can take a seat: ${run.seatFailures} failed in a row; the last one: ${run.lastSeatFailure ?? 'unknown'}`;
    return [...actions, { kind: 'end-attempt', end: { kind: 'failed', cause: 'NO_WORKER_FITS', message } }];
  }
  const [first, ...others] = open;
  for (const task of others) close(task, 'another seat is open');
  if (held >= seatLimit(run)) {
    if (first) close(first, held >= run.replicas ? 'every replica has a worker' : 'the run has as many workers as it wants');
  } else if (!first) actions.push(...openSeat(run, held, now));
  else actions.push(...keepOpen(run, first, held, jobs, now));
  return actions;
}

function isHeld({ coordinator }: RunPicture, { seat: wanted, n }: { seat: number; n: number }): boolean {
  return coordinator?.seats.some((held) => held.seat === wanted && held.n === n) ?? false;
}

const stillOpen = (run: RunPicture): TaskPicture[] => run.openTasks.filter((task) => !isHeld(run, task));

/** Brings the rows to what the coordinator reports. */
function follow(run: RunPicture): DispatchAction[] {
  const { coordinator } = run;
  if (!coordinator) return [];
  const actions: DispatchAction[] = [];
  for (const { seat: number, n, workerId, replicas } of coordinator.seats) {
    const known = run.heldTasks.find((task) => task.seat === number && task.n === n);
    if (known && known.workerId === workerId && String(known.replicas) === String(replicas)) continue;
    actions.push({ kind: 'hold-seat', seat: number, n, workerId, replicas, isNew: !known });
    if (!known && run.seatFailures > 0) actions.push({ kind: 'forget-seat-failures' });
  }
  for (const task of run.heldTasks) {
    if (!isHeld(run, task) && coordinator.atMs > (task.heldAtMs ?? task.createdAtMs))
      actions.push({ kind: 'close-seat', task, why: 'its worker left the seat' });
  }
  return actions;
}

function keepOpen(run: RunPicture, task: TaskPicture, held: number, jobs: ReadonlyMap<string, JobSighting>, now: number): DispatchAction[] {
  const job = jobs.get(seatJobId(run, task));
  if (!job || job.state === 'unsent') return [];
  if (job.state === 'waiting') return task.heldSeats === held ? [] : [{ kind: 'reprioritise-seat', task, heldSeats: held }];
  const graceMs = job.state === 'active' ? SEATED_WITHIN_MS : STATE_GRACE_MS;
  if (now - job.notWaitingSinceMs < graceMs) return [];
  const why = job.state === 'active' ? 'its worker did not take the seat in time' : `its job was ${job.state} and nobody holds the seat`;
  return [{ kind: 'close-seat', task, why }, ...openSeat(run, held, now)];
}

function openSeat(run: RunPicture, heldSeats: number, now: number): DispatchAction[] {
  const { seatFailures, lastSeatFailureAtMs } = run;
  const pauseMs = seatFailures === 0 ? 0 : Math.min(FIRST_PAUSE_MS * 2 ** (seatFailures - 1), LONGEST_PAUSE_MS);
  if (lastSeatFailureAtMs !== null && now - lastSeatFailureAtMs < pauseMs) return [];
  const taken = new Set(run.coordinator?.seats.map((held) => held.seat));
  let free = 0;
  while (taken.has(free)) free++;
  return [{ kind: 'open-seat', seat: free, heldSeats }];
}
