/**
 * The life of a run. One table says which moves are allowed; `StatusMoves` makes them by compare-and-set on (status, attempt), so
 * two apis, a late report or a cancel at the same moment cannot both win. docs/reference/run-status.md prints this table.
 *
 *     PENDING ─> QUEUED ─> PROVISIONING ─> RUNNING ─> SUCCEEDED | FAILED | CANCELLED
 *                  ^            ^            │ │
 *                  │            └ RECOVERING ┘ └> PAUSING ─> PAUSED
 *                  └────────────────────────────────────────────┘
 */
import type { RunStatus } from '../generated/prisma/enums.js';

export type { RunStatus };

/** From each status, where it may go. Nothing leaves a status without a row here. */
export const RUN_MOVES: Readonly<Record<RunStatus, readonly RunStatus[]>> = {
  PENDING: ['QUEUED', 'FAILED', 'CANCELLED'],
  QUEUED: ['PROVISIONING', 'FAILED', 'CANCELLED'],
  PROVISIONING: ['RUNNING', 'RECOVERING', 'FAILED', 'CANCELLED'],
  RUNNING: ['PAUSING', 'RECOVERING', 'SUCCEEDED', 'FAILED', 'CANCELLED'],
  PAUSING: ['PAUSED', 'RECOVERING', 'SUCCEEDED', 'FAILED', 'CANCELLED'],
  PAUSED: ['QUEUED', 'FAILED', 'CANCELLED'],
  RECOVERING: ['QUEUED', 'PROVISIONING', 'FAILED', 'CANCELLED'],
  SUCCEEDED: [],
  FAILED: [],
  CANCELLED: [],
};

export const RUN_STATUS_MEANINGS: Readonly<Record<RunStatus, string>> = {
  PENDING: 'Accepted; nothing was asked of the fleet yet.',
  QUEUED: 'Waits for parameter servers or for a worker; the reason says for which.',
  PROVISIONING: 'Its servers hold their parts, and a worker is about to take the first seat.',
  RUNNING: 'Rounds are being committed, or the final evaluation is under way.',
  PAUSING: 'Finishes its round to pause.',
  PAUSED: 'Stands still until it is resumed.',
  RECOVERING: 'Lost a part of its attempt and is set up again from its last checkpoint.',
  SUCCEEDED: 'Trained to its end; the result is there.',
  FAILED: 'Ended without a result; the reason says why.',
  CANCELLED: 'Ended because somebody asked for it.',
};

export const isOver = (status: RunStatus): boolean => RUN_MOVES[status].length === 0;

export const ACTIVE_STATUSES = (Object.keys(RUN_MOVES) as RunStatus[]).filter((status) => !isOver(status));

export const mayMove = (from: RunStatus, to: RunStatus): boolean => RUN_MOVES[from].includes(to);
