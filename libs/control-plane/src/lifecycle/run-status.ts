/**
 * The life of a run as one table: which status may follow which. The control plane makes every move by compare-and-set on
 * (status, attempt), so two apis, a late report or a cancel at the same moment cannot both win. docs/reference/run-status.md
 * prints this table.
 *
 *     PENDING ─> QUEUED ─> PROVISIONING ─> RUNNING ─> SUCCEEDED | FAILED | CANCELLED
 *                  ^ ^                       │ │          │
 *                  │ └───── RECOVERING <─────┘ └> PAUSING │ extended
 *                  │                                │     │
 *                  └──────────── PAUSED <───────────┘     │
 *                  └──────────────────────────────────────┘
 *
 * An extension that is cancelled or fails goes back to SUCCEEDED from wherever it is: the result of before stands.
 */
export const RUN_STATUSES = [
  'PENDING',
  'QUEUED',
  'PROVISIONING',
  'RUNNING',
  'PAUSING',
  'PAUSED',
  'RECOVERING',
  'SUCCEEDED',
  'FAILED',
  'CANCELLED',
] as const;
export type RunStatus = (typeof RUN_STATUSES)[number];

/** From each status, where it may go. */
export const RUN_MOVES: Readonly<Record<RunStatus, readonly RunStatus[]>> = {
  PENDING: ['QUEUED', 'FAILED', 'CANCELLED'],
  QUEUED: ['PROVISIONING', 'RECOVERING', 'PAUSED', 'SUCCEEDED', 'FAILED', 'CANCELLED'],
  PROVISIONING: ['RUNNING', 'RECOVERING', 'PAUSED', 'SUCCEEDED', 'FAILED', 'CANCELLED'],
  RUNNING: ['PAUSING', 'RECOVERING', 'SUCCEEDED', 'FAILED', 'CANCELLED'],
  PAUSING: ['PAUSED', 'SUCCEEDED', 'FAILED', 'CANCELLED'],
  PAUSED: ['QUEUED', 'SUCCEEDED', 'FAILED', 'CANCELLED'],
  RECOVERING: ['QUEUED', 'PAUSED', 'SUCCEEDED', 'FAILED', 'CANCELLED'],
  SUCCEEDED: ['QUEUED'],
  FAILED: [],
  CANCELLED: [],
};

export const RUN_STATUS_MEANINGS: Readonly<Record<RunStatus, string>> = {
  PENDING: 'Accepted; the fleet has not been asked for anything yet.',
  QUEUED: 'Waits for parameter servers or for a worker; the reason says for which.',
  PROVISIONING: 'Its servers hold their parts, and a worker is about to take the first seat.',
  RUNNING: 'Rounds are being committed, or the final evaluation is under way.',
  PAUSING: 'Finishes its round, writes a checkpoint, and then pauses.',
  PAUSED: 'Does not train, and holds no servers or workers until it is resumed.',
  RECOVERING: 'Lost a part of its attempt, or is to have other workers; the next attempt begins shortly, from its last checkpoint.',
  SUCCEEDED:
    'Trained to its end; the result is there. The run can only be extended. When an extension is cancelled or fails, the run is SUCCEEDED again with the result from before.',
  FAILED: 'Ended without a result; the reason says why.',
  CANCELLED: 'Ended without a result because somebody asked for it.',
};

const OVER: ReadonlySet<RunStatus> = new Set(['SUCCEEDED', 'FAILED', 'CANCELLED']);
/** Nothing happens to it any more by itself. */
export const isOver = (status: RunStatus): boolean => OVER.has(status);

export const ACTIVE_STATUSES: readonly RunStatus[] = RUN_STATUSES.filter((status) => !isOver(status));

/** In these, the present attempt holds servers or asks for them; in the others it is over and the next has not begun. */
export const hasLiveAttempt = (status: RunStatus): boolean => ['QUEUED', 'PROVISIONING', 'RUNNING', 'PAUSING'].includes(status);

export const mayMove = (from: RunStatus, to: RunStatus): boolean => RUN_MOVES[from].includes(to);
