/**
 * What people may ask of a run in each status, and what follows: one table for all surfaces. Asking again for what is under way or
 * done is fine and changes nothing.
 */
import type { RunStatus } from './run-status.js';

export const RUN_REQUESTS = ['pause', 'resume', 'cancel', 'scale', 'extend'] as const;
export type RunRequest = (typeof RUN_REQUESTS)[number];

export type RequestAnswer =
  /** At once, by the control plane alone. */
  | { readonly does: 'move'; readonly to: RunStatus }
  /** The coordinator of the attempt is asked; the run moves when it has answered, or when its deadline has passed. */
  | { readonly does: 'ask'; readonly to?: RunStatus }
  /** A new attempt begins. */
  | { readonly does: 'begin' }
  /** It is as it was asked for. */
  | { readonly does: 'nothing' }
  | { readonly does: 'refuse'; readonly why: string };

const move = (to: RunStatus): RequestAnswer => ({ does: 'move', to });
const nothing: RequestAnswer = { does: 'nothing' };
const begin: RequestAnswer = { does: 'begin' };
const over = (status: RunStatus): RequestAnswer => ({ does: 'refuse', why: `The run is over already: ${status}.` });
const refuse = (why: string): RequestAnswer => ({ does: 'refuse', why });

const NOT_PAUSED = 'Pause the run first: only a PAUSED or SUCCEEDED run can be extended.';
const wanted: RequestAnswer = { does: 'ask' };

export const REQUEST_TABLE: Readonly<Record<RunRequest, Readonly<Record<RunStatus, RequestAnswer>>>> = {
  pause: {
    PENDING: refuse('The run is being created.'),
    QUEUED: move('PAUSED'),
    PROVISIONING: move('PAUSED'),
    RUNNING: { does: 'ask', to: 'PAUSING' },
    PAUSING: nothing,
    PAUSED: nothing,
    RECOVERING: move('PAUSED'),
    SUCCEEDED: over('SUCCEEDED'),
    FAILED: over('FAILED'),
    CANCELLED: over('CANCELLED'),
  },
  resume: {
    PENDING: nothing,
    QUEUED: nothing,
    PROVISIONING: nothing,
    RUNNING: nothing,
    PAUSING: refuse('The run is about to pause; resume it when it is PAUSED.'),
    PAUSED: begin,
    RECOVERING: nothing,
    SUCCEEDED: over('SUCCEEDED'),
    FAILED: over('FAILED'),
    CANCELLED: over('CANCELLED'),
  },
  cancel: {
    PENDING: wanted,
    QUEUED: wanted,
    PROVISIONING: wanted,
    RUNNING: wanted,
    PAUSING: wanted,
    PAUSED: move('CANCELLED'),
    RECOVERING: move('CANCELLED'),
    SUCCEEDED: over('SUCCEEDED'),
    FAILED: over('FAILED'),
    CANCELLED: over('CANCELLED'),
  },
  scale: {
    PENDING: wanted,
    QUEUED: wanted,
    PROVISIONING: wanted,
    RUNNING: wanted,
    PAUSING: wanted,
    PAUSED: wanted,
    RECOVERING: wanted,
    SUCCEEDED: over('SUCCEEDED'),
    FAILED: over('FAILED'),
    CANCELLED: over('CANCELLED'),
  },
  extend: {
    PENDING: refuse(NOT_PAUSED),
    QUEUED: refuse(NOT_PAUSED),
    PROVISIONING: refuse(NOT_PAUSED),
    RUNNING: refuse(NOT_PAUSED),
    PAUSING: refuse(NOT_PAUSED),
    PAUSED: begin,
    RECOVERING: refuse(NOT_PAUSED),
    SUCCEEDED: begin,
    FAILED: over('FAILED'),
    CANCELLED: over('CANCELLED'),
  },
};

/** @param isCancelWanted a run that is being cancelled can be asked for nothing else */
export function answerRequest(request: RunRequest, status: RunStatus, isCancelWanted: boolean): RequestAnswer {
  const answer = REQUEST_TABLE[request][status];
  if (isCancelWanted && answer.does !== 'refuse') return request === 'cancel' ? nothing : refuse('The run is being cancelled.');
  return answer;
}
