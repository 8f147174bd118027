/** A token that the coordinator has issued and not counted. */
import type { Contribution } from '../rounds/round-ledger.js';
import type { Token } from './marks.js';

export interface IssuedToken {
  readonly token: Token;
  holder: string | undefined;
  /** Shards that are done with it. */
  readonly shards: Set<number>;
  /** Of the slowest shard. */
  staleness: number;
  contribution: Contribution | undefined;
  isDropped: boolean;
}

/** Why a token is left out that workers of this coordinator have not called so. */
export const LEFT_OUT_BEFORE = 'the coordinator before this one had begun to leave out a gradient';

/** Of the coordinator before, and computed by nobody now. */
export const begunToken = (token: Token, isDropped: boolean, shards: readonly number[] = []): IssuedToken => ({
  token,
  holder: undefined,
  shards: new Set(shards),
  staleness: 0,
  contribution: undefined,
  isDropped,
});
