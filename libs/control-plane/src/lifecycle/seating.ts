/**
 * Seats of a run (docs/protocol.md §10.1). The coordinator owns them: what it reports is true, and the rows follow.
 *
 *     OPEN, waits ─ a worker takes its job ─> OPEN, taken ─ reported as held ─> HELD ─ not reported any more ─> CLOSED
 *       │                                       │ not held in time, or another holds the seat                     ^
 *       └── its job is gone ────────────────────┴─────────────────────────────────────────────────────────────────┘
 *
 * As long as fewer seats are held or taken than the run may have, one seat waits: an idle worker finds it, a busy one sees that
 * another run waits. The first worker that is seated shows that the run can be held; from then on the next seat waits while
 * workers start their engines for those they took, so that they start side by side. A seat that failed is made again after a pause
 * that doubles.
 */
import { stepTaskJobId } from '../contract/queues.js';
import { endOfSeats } from './attempt-end.js';
import type { DispatchAction, ObservedJob, ObservedRun, ObservedTask } from './observed-run.js';
import { follow, isEnding, nobodyFits, pauseAfterFailures, SEATED_WITHIN_MS, stillOpen } from './seats.js';

/** A worker that finished its job is seated or not; the coordinator's next state tells. */
const STATE_GRACE_MS = 2_500;
export const seatJobId = (run: ObservedRun, { seat, incarnation }: { seat: number; incarnation: number }): string =>
  stepTaskJobId(run.runId, run.attempt, seat, incarnation);

/** Seats that may be held at the same time. */
export const seatLimit = ({ replicas, workersWanted }: Pick<ObservedRun, 'replicas' | 'workersWanted'>): number =>
  Math.min(replicas, workersWanted ?? replicas);

/** Step-task jobs whose state decides something now. */
export const seatsInQuestion = (run: ObservedRun): string[] => stillOpen(run).map((task) => seatJobId(run, task));

/** @param room seats that the run may hold by the limit of its team; those that it holds beyond stay */
export function seat(run: ObservedRun, jobs: ReadonlyMap<string, ObservedJob>, now: number, room = Infinity): DispatchAction[] {
  const actions = follow(run);
  const open = stillOpen(run);
  const held = run.coordinator?.seats.length ?? 0;
  const close = (task: ObservedTask, why: string) => actions.push({ kind: 'close-seat', task, why });
  if (isEnding(run)) {
    for (const task of open) close(task, run.status === 'PAUSING' ? 'the run is about to pause' : 'the run is about to end');
    return actions;
  }
  if (held === 0 && nobodyFits(run)) {
    return [...actions, { kind: 'end-attempt', end: endOfSeats(run.seatFailures, run.lastSeatFailure) }];
  }
  const taken: ObservedTask[] = [];
  const waiting: ObservedTask[] = [];
  for (const task of open) {
    const why = whyOver(run, task, jobs, now);
    if (why !== undefined) close(task, why);
    else (jobs.get(seatJobId(run, task))?.state === 'active' ? taken : waiting).push(task);
  }
  const [first, ...others] = waiting;
  for (const task of others) close(task, 'another seat is open');
  const limit = Math.min(seatLimit(run), room);
  if (held >= limit) {
    const why = whyFull(run, held);
    for (const task of [...taken, ...(first ? [first] : [])]) close(task, why);
  } else if (held + taken.length >= limit) {
    if (first) close(first, 'workers are about to take all seats');
  } else if (!first) {
    if (held > 0 || taken.length === 0) actions.push(...openSeat(run, taken, now));
  } else if (jobs.get(seatJobId(run, first))?.state === 'waiting' && first.heldSeats !== held + taken.length)
    actions.push({ kind: 'reprioritise-seat', task: first, heldSeats: held + taken.length });
  return actions;
}

function whyFull(run: ObservedRun, held: number): string {
  if (held >= run.replicas) return 'every replica has a worker';
  return held >= seatLimit(run) ? 'the run has as many workers as it wants' : 'the team has as many workers as its limit allows';
}

/** Why an open task will not lead to a held seat any more. */
function whyOver(run: ObservedRun, task: ObservedTask, jobs: ReadonlyMap<string, ObservedJob>, now: number): string | undefined {
  if (run.coordinator?.seats.some(({ seat: held }) => held === task.seat)) return 'another worker holds its seat';
  const job = jobs.get(seatJobId(run, task));
  if (!job || job.state === 'unsent' || job.state === 'waiting') return undefined;
  const graceMs = job.state === 'active' ? SEATED_WITHIN_MS : STATE_GRACE_MS;
  if (now - job.notWaitingSinceMs < graceMs) return undefined;
  return job.state === 'active' ? 'its worker did not take the seat in time' : `its job was ${job.state} and nobody holds the seat`;
}

/** @param taken seats that workers are about to hold */
function openSeat(run: ObservedRun, taken: readonly ObservedTask[], now: number): DispatchAction[] {
  const { seatFailures, lastSeatFailureAtMs } = run;
  if (lastSeatFailureAtMs !== null && now - lastSeatFailureAtMs < pauseAfterFailures(seatFailures)) return [];
  const occupied = new Set([...(run.coordinator?.seats ?? []), ...taken].map((each) => each.seat));
  let free = 0;
  while (occupied.has(free)) free++;
  return [{ kind: 'open-seat', seat: free, heldSeats: occupied.size }];
}
