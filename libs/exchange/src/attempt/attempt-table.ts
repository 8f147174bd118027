/** What the coordinators of all modes have in common, as attempt-coordinator.ts uses it: their state table and their ledger. */
import type { LedgerState } from './ledger-state.js';

/** Rows and states that the tables of all coordinators have. */
type AttemptRow =
  | ('serverJoins' | 'serverLost' | 'join' | 'seatTaken' | 'away' | 'lost' | 'leave' | 'askedAgain' | 'undelivered' | 'stalled')
  | ('partWritten' | 'checkpointSettled' | 'stop' | 'stopped' | 'evaluated' | 'collected' | 'cancel' | 'fail');
export interface AttemptTable {
  /** Every state besides these four is one of training. */
  readonly state: 'EVALUATING' | 'COLLECTING' | 'STOPPING' | 'OVER' | (string & {});
  allows(row: AttemptRow): boolean;
  take(row: AttemptRow, next?: 'EVALUATING' | 'COLLECTING' | 'STOPPING' | 'OVER'): void;
}

/** What is trained so far. */
export interface AttemptLedger {
  readonly hasBegun: boolean;
  begin(): void;
  readonly trainedExamples: number;
  readonly attemptExamples: number;
  readonly trainingMs: number;
  state(): LedgerState;
}
