/** What goes wrong among members. Each error says what to do. */

/** A cluster, a task or an option that has no meaning; the message names the field. */
export class ClusterError extends Error {
  override readonly name = 'ClusterError';
  /** As of the strategy that such a cluster is given to (docs/errors.md). */
  readonly code = 'STRATEGY_CLUSTER';
}

/** A member that is gone, silent, or at something else: no operation of the group can end any more. */
export class MemberLostError extends Error {
  override readonly name = 'MemberLostError';
  constructor(
    /** Index of the member in the group; several members may be waited for at once. */
    readonly members: readonly number[],
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}
