/** What goes wrong among members. Each error says what to do. */

/** A cluster, a task or an option that has no meaning; the message names the field. */
export class ClusterError extends Error {
  override readonly name = 'ClusterError';
  /** As of the strategy that such a cluster is given to (docs/errors.md). */
  readonly code = 'STRATEGY_CLUSTER';
}

/**
 * Why no operation of a group can end any more. `gone`: a member has died, left, or stands still, and the others may go on without it. `differs`: it is at
 * something else, so all have to stop. `out`: it is this member that the others have given up. `few`: those that are left must not go on. `joins`: nobody is
 * lost; a process comes for the place of one that was, and its index is that in the cluster.
 */
export type LossKind = 'gone' | 'differs' | 'out' | 'few' | 'joins';

/** A member that is gone, silent, or at something else: no operation of the group can end any more. */
export class MemberLostError extends Error {
  override readonly name = 'MemberLostError';
  constructor(
    /** Index of the member in the group; several members may be waited for at once. */
    readonly members: readonly number[],
    message: string,
    readonly kind: LossKind = 'gone',
  ) {
    super(message);
  }
}
