/**
 * Why an attempt failed, in `data.cause` of the `run.failed` event: coordinators name it, and what the control plane does next
 * depends on it (`FAILURE_CAUSES` of libs/control-plane).
 */
export type FailureCause =
  | 'SERVER_LOST'
  | 'STOPPED'
  | 'STALLED'
  | 'NON_FINITE_ROLLBACK'
  | 'NON_FINITE'
  | 'ESTIMATE_LOST'
  | 'WORKERS_LEFT'
  | 'POISON_ROUND'
  | 'INTERNAL';
