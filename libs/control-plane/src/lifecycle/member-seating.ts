/**
 * Seats of a run whose workers hold the shards: seat i is for the worker with shard i and for no other, so it waits in the control hash of the run
 * instead of a queue. The coordinator owns the seats here too (seating.ts).
 *
 *     OPEN, in the control hash ─ its worker sits down ─> HELD ─ not reported any more ─> CLOSED ─> OPEN again, incarnation + 1
 *       └─ its worker says that it cannot, or does not within 90 s ──────────────────────────^
 *
 * A worker that cannot take its seat holds a shard all the same: nobody else can take the seat, so after some failures the attempt ends. It ends too when
 * nobody sits and a seat was offered some times in vain: its worker says nothing.
 */
import type { DispatchAction, ObservedRun, ObservedTask } from './observed-run.js';
import { endOfSeats } from './attempt-end.js';
import { seatsField } from './control-fields.js';
import { follow, isEnding, nobodyFits, pauseAfterFailures, SEATED_WITHIN_MS, stillOpen } from './seats.js';

/** Offers of a seat, one after the other, that its worker did not take in time. */
const MAX_OFFERS = 3;

export function seatMembers(run: ObservedRun, now: number): DispatchAction[] {
  const actions = follow(run);
  const open = stillOpen(run);
  const close = (task: ObservedTask, why: string) => actions.push({ kind: 'close-seat', task, why });
  if (isEnding(run)) {
    for (const task of open) close(task, run.status === 'PAUSING' ? 'the run is about to pause' : 'the run is about to end');
    return actions;
  }
  if (nobodyFits(run)) return [...actions, { kind: 'end-attempt', end: endOfSeats(run.seatFailures, run.lastSeatFailure) }];
  const members = new Set(run.servers.filter(({ role, isDropped }) => role === 'primary' && !isDropped).map(({ index }) => index));
  const waiting: ObservedTask[] = [];
  for (const task of open) {
    const why = whyOver(run, task, members, now);
    if (why === LATE && task.incarnation >= MAX_OFFERS - 1 && (run.coordinator?.seats.length ?? 0) === 0) {
      const message = `the worker with shard ${task.seat} has not taken its seat within ${SEATED_WITHIN_MS / 1_000} s, ${task.incarnation + 1} times`;
      return [...actions, { kind: 'end-attempt', end: { kind: 'failed', cause: 'NOT_PLACED', message } }];
    }
    if (why === undefined) waiting.push(task);
    else close(task, why);
  }
  const taken = new Set([...(run.coordinator?.seats ?? []), ...waiting].map(({ seat }) => seat));
  if (now - (run.lastSeatFailureAtMs ?? -Infinity) >= pauseAfterFailures(run.seatFailures)) {
    for (const seat of members) if (!taken.has(seat)) actions.push({ kind: 'open-seat', seat, heldSeats: taken.size });
  }
  const seats = seatsField(
    run.attempt,
    waiting.map(({ seat, incarnation, id }) => ({ seat, incarnation, stepTaskId: id })),
  );
  if (run.control.seats !== seats) actions.push({ kind: 'write-control', fields: { seats } });
  return actions;
}

const LATE = 'its worker did not take the seat in time';

/** Why an open task will not lead to a held seat any more. */
function whyOver({ coordinator }: ObservedRun, task: ObservedTask, members: ReadonlySet<number>, now: number): string | undefined {
  if (!members.has(task.seat)) return 'its worker has lost its shard';
  if (coordinator?.seats.some(({ seat }) => seat === task.seat)) return 'its worker holds the seat already';
  return now - task.createdAtMs > SEATED_WITHIN_MS ? LATE : undefined;
}
