/** What seating has in common, whether any worker may take a seat (seating.ts) or one alone (member-seating.ts). */
import { isDataAway } from './attempt-end.js';
import type { DispatchAction, ObservedRun, ObservedTask } from './observed-run.js';

/** From taking a job to being seated: a worker gives its engine 60 s to start with its data, and then connects to the servers. */
export const SEATED_WITHIN_MS = 90_000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
/** With nobody in a seat, so many failures in a row end the attempt: no worker of the fleet can run it, or its servers are gone. */
export const MAX_SEAT_FAILURES = 8;
/** Where the data store is away, seats are offered for about a day. */
const MOST_AWAY = 86_400_000 / LONGEST_PAUSE_MS;
/** Whether it has come to that. */
export const nobodyFits = ({ seatFailures, lastSeatFailure }: Pick<ObservedRun, 'seatFailures' | 'lastSeatFailure'>): boolean =>
  seatFailures >= (isDataAway(lastSeatFailure) ? MOST_AWAY : MAX_SEAT_FAILURES);

/** Nobody needs another seat for what is left. */
const LAST_PHASES: readonly string[] = ['pausing', 'evaluating', 'finished', 'paused', 'cancelled', 'failed'];

/** Nobody is seated any more. */
export const isEnding = ({ status, coordinator }: ObservedRun): boolean =>
  status === 'PAUSING' || (coordinator !== null && coordinator.seats.length > 0 && LAST_PHASES.includes(coordinator.phase));

/** After so many failures in a row, the next seat is offered that much later. */
export const pauseAfterFailures = (failures: number): number =>
  failures === 0 ? 0 : Math.min(FIRST_PAUSE_MS * 2 ** (failures - 1), LONGEST_PAUSE_MS);

function isHeld({ coordinator }: ObservedRun, { seat: wanted, incarnation }: { seat: number; incarnation: number }): boolean {
  return coordinator?.seats.some((held) => held.seat === wanted && held.incarnation === incarnation) ?? false;
}

export const stillOpen = (run: ObservedRun): ObservedTask[] => run.openTasks.filter((task) => !isHeld(run, task));

/** Brings the rows to what the coordinator reports. */
export function follow(run: ObservedRun): DispatchAction[] {
  const { coordinator } = run;
  if (!coordinator) return [];
  const actions: DispatchAction[] = [];
  for (const { seat: number, incarnation, workerId, replicas } of coordinator.seats) {
    const known = run.heldTasks.find((task) => task.seat === number && task.incarnation === incarnation);
    if (known && known.workerId === workerId && String(known.replicas) === String(replicas)) continue;
    actions.push({ kind: 'hold-seat', seat: number, incarnation, workerId, replicas, isNew: !known });
    if (!known && run.seatFailures > 0) actions.push({ kind: 'forget-seat-failures' });
  }
  for (const task of run.heldTasks) {
    if (!isHeld(run, task) && coordinator.atMs > (task.heldAtMs ?? task.createdAtMs))
      actions.push({ kind: 'close-seat', task, why: 'its worker left the seat' });
  }
  return actions;
}
