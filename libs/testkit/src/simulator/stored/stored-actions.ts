/** What the reconciler has decided, carried out over rows in memory as apps/api/src/dispatch/executor.ts does. */
import { closedSeat, heldSeat, isDue, madeAgain, openedSeat, type DispatchAction, type ObservedRun } from '@paceline/control-plane';
import { placeKey, type TaskRow } from '../world/postgres.js';
import type { StoredRun } from './stored-run.js';

type Of<K extends DispatchAction['kind']> = Extract<DispatchAction, { kind: K }>;

/** In PostgreSQL; what is left for Redis is the executor's. @returns whether anything has changed */
export function carryOut(stored: StoredRun, decidedFor: Pick<ObservedRun, 'attempt' | 'status'>, action: DispatchAction): boolean {
  const { run, attempt } = stored;
  if (!isDue(run, decidedFor, action)) return false;
  switch (action.kind) {
    case 'mark-started':
      if (attempt.startedAt !== null) return false;
      stored.setAttempt(run.attempt, { startedAt: stored.now });
      return true;
    case 'make-placement-again':
      return makePlacementAgain(stored, action);
    case 'open-seat':
      return openSeat(stored, action);
    case 'close-seat':
      return change(stored, action.task.id, ({ state }) => state !== 'CLOSED', closedSeat(action.why, stored.now));
    case 'hold-seat':
      return holdSeat(stored, action);
    case 'forget-seat-failures':
      stored.setAttempt(run.attempt, { seatFailures: 0 });
      return true;
    case 'reprioritise-seat':
      return change(stored, action.task.id, ({ state }) => state === 'OPEN', { heldSeats: action.heldSeats });
    case 'move':
      return stored.move({ to: action.to, reason: action.reason });
    case 'explain':
      if (run.statusReason === action.reason) return false;
      stored.set({ statusReason: action.reason, isWaiting: action.isWaiting });
      return true;
    case 'change-workers':
      return stored.ask({ request: 'scale', workers: action.workers, why: action.why }).hasChanged;
    case 'end-attempt':
      return stored.end(action.end);
    case 'begin-attempt':
      return stored.begin(action.reason, {}, action.keepsWorkers);
    default:
      throw new Error(`${action.kind} is nothing for PostgreSQL`);
  }
}

function change(stored: StoredRun, taskId: string, condition: (task: TaskRow) => boolean, to: Partial<TaskRow>): boolean {
  const task = stored.rows.tasks.get(taskId);
  if (!task || !condition(task)) return false;
  stored.setTask(task, to);
  return true;
}

function makePlacementAgain(stored: StoredRun, action: Of<'make-placement-again'>): boolean {
  const { index, role } = action;
  const { attempt } = stored.run;
  const again = madeAgain(stored.run, stored.rows.servers.get(placeKey({ attempt, index, role })) ?? null, action, stored.now);
  if (!again) return false;
  stored.setPlace({ attempt, index, role }, again.place);
  stored.enqueue({ jobId: again.jobId, kind: 'placement', attempt, place: { index, role } });
  return true;
}

function openSeat(stored: StoredRun, action: Of<'open-seat'>): boolean {
  const { attempt } = stored.run;
  const rows = stored.tasks((task) => task.attempt === attempt && task.seat === action.seat);
  const lastIncarnation = rows.length === 0 ? null : Math.max(...rows.map(({ incarnation }) => incarnation));
  const opened = openedSeat(stored.run, action, { isOpen: rows.some(({ state }) => state === 'OPEN'), lastIncarnation });
  if (!opened) return false;
  const { jobId, ...seat } = opened;
  const id = `00000000-0000-4000-8000-${String(stored.rows.nextId()).padStart(12, '0')}`;
  stored.rows.tasks.set(id, {
    id,
    attempt,
    ...seat,
    state: 'OPEN',
    workerId: null,
    replicas: [],
    createdAt: stored.now,
    heldAt: null,
    closedAt: null,
    closeReason: null,
  });
  stored.enqueue({ jobId, kind: 'step-task', attempt, taskId: id });
  return true;
}

function holdSeat(stored: StoredRun, action: Of<'hold-seat'>): boolean {
  const { attempt } = stored.run;
  const [task] = stored.tasks((row) => row.attempt === attempt && row.seat === action.seat && row.incarnation === action.incarnation);
  const held = heldSeat(task ?? null, action, stored.now);
  if (task && held) stored.setTask(task, held);
  return held !== undefined;
}
