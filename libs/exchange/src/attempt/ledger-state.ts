/**
 * The ledger as checkpoints keep it: examples that are in updates, and the exceptions.
 */
export interface Contribution {
  readonly examples: number;
  /** Sums over the examples: loss, then what the run measures. */
  readonly sums: readonly number[];
}

/** Rows of committed rounds that are in no update. */
export interface LedgerException {
  readonly round: number;
  readonly examples: number;
  readonly why: string;
}

/** The ledger of all committed rounds, as checkpoints keep it. */
export interface LedgerState {
  /** In updates. */
  readonly examples: number;
  readonly exceptions: readonly LedgerException[];
}

/** Exceptions that are kept one by one; older ones are added up into one. */
const MAX_EXCEPTIONS = 1_000;

export const SEVERAL = 'several, up to this round';

export const EMPTY_LEDGER: LedgerState = { examples: 0, exceptions: [] };

export function keepException(exceptions: LedgerException[], exception: LedgerException): void {
  exceptions.push(exception);
  if (exceptions.length <= MAX_EXCEPTIONS) return;
  const [first, second] = exceptions.splice(0, 2) as [LedgerException, LedgerException];
  exceptions.unshift({ round: second.round, examples: first.examples + second.examples, why: SEVERAL });
}
