/**
 * What a coordinator knows when it takes the place of one that is gone.
 */
import type { Members } from '@paceline/protocol';

/** What the standby of the coordinator knows when it is promoted; the arbiter's grant has the rest. */
export interface Succession {
  readonly term: number;
  /** The highest view that its shard has seen, and its members. */
  readonly view: number;
  readonly members: Members;
  /** First round whose ledger row the control plane has not stored. */
  readonly ledgerFrom: number;
  /** Examples of the rounds of this attempt before that, in updates and left out. */
  readonly ledger?: { readonly examples: number; readonly dropped: number } | undefined;
  /** Mode sync: rounds of this attempt that were decided to be left out, as its shard has heard. */
  readonly leftOut?: readonly number[] | undefined;
  /** Rounds in the newest checkpoint that the control plane knows. */
  readonly newest: number;
  /** Term of each shard, by index, when the arbiter answered. A server that led it in an older term was replaced. */
  readonly terms?: readonly number[] | undefined;
}

/** Where a worker stands that comes to a coordinator, as its HELLO says. */
export interface KnownNumbers {
  readonly round: number;
  readonly view: number;
}
