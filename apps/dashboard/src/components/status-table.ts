/** The statuses of a run as the page shows them: a word, and what kind of news it is. */
import type { RunStatus } from '../graphql/generated/operations.js';

export type Tone = 'going' | 'waiting' | 'good' | 'bad' | 'over';

const STATUSES: Readonly<Record<RunStatus, { readonly label: string; readonly tone: Tone }>> = {
  PENDING: { label: 'Pending', tone: 'waiting' },
  QUEUED: { label: 'Queued', tone: 'waiting' },
  PROVISIONING: { label: 'Provisioning', tone: 'waiting' },
  RUNNING: { label: 'Running', tone: 'going' },
  PAUSING: { label: 'Pausing', tone: 'waiting' },
  PAUSED: { label: 'Paused', tone: 'waiting' },
  RECOVERING: { label: 'Recovering', tone: 'waiting' },
  SUCCEEDED: { label: 'Succeeded', tone: 'good' },
  FAILED: { label: 'Failed', tone: 'bad' },
  CANCELLED: { label: 'Cancelled', tone: 'over' },
};

export const statusLabel = (status: RunStatus): string => STATUSES[status]?.label ?? status;
export const toneOf = (status: RunStatus): Tone => STATUSES[status]?.tone ?? 'over';
export const isOver = (status: RunStatus): boolean => status === 'SUCCEEDED' || status === 'FAILED' || status === 'CANCELLED';
