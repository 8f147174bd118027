/**
 * The part of a coordinator that is the mode's: how work is given out, counted and asked for again. coordinator.ts is handed one, rounds
 * (../sync/rounds.ts) or work items (../async/work-items.ts), and calls it by these names.
 */
import type { Message, MessageOf } from '@paceline/protocol';
import type { LedgerState } from './ledger-state.js';
import type { CoordinatedMember as Member } from './membership.js';
import type { StateRows } from './state-table.js';

/** Rows and states that the tables of all plans have. */
type AttemptRow =
  | ('serverJoins' | 'serverLost' | 'serverAway' | 'serverTakenOver' | 'standbyLink' | 'succeeded')
  | ('join' | 'seatTaken' | 'away' | 'lost' | 'leave' | 'askedAgain' | 'undelivered' | 'stalled')
  | ('partWritten' | 'checkpointSettled' | 'stop' | 'stopped' | 'evaluated' | 'collected' | 'cancel' | 'fail');
export interface AttemptTable {
  readonly name: string;
  readonly rows: StateRows<string>;
  /** Every state besides these four is one of training. */
  readonly state: 'EVALUATING' | 'COLLECTING' | 'STOPPING' | 'OVER' | (string & {});
  readonly taken: ReadonlyMap<string, number>;
  allows(row: AttemptRow): boolean;
  take(row: AttemptRow, next?: 'EVALUATING' | 'COLLECTING' | 'STOPPING' | 'OVER'): void;
}

/** What is trained so far. */
export interface AttemptLedger {
  readonly hasBegun: boolean;
  begin(): void;
  readonly trainedExamples: number;
  /** Rounds before it are in `trainedExamples`, also where the coordinator is not yet there; only with mode sync. */
  readonly countedTo?: number;
  readonly attemptExamples: number;
  readonly trainingMs: number;
  state(): LedgerState;
}

/** Replicas of a round that a member was to compute. */
export interface Owed {
  readonly round: number;
  readonly replicas: readonly number[];
}

/** What is under way, for a coordinator that wants to know why it stands still. */
export interface PresentWork {
  /** What it lacks, in words. */
  lacks(): string;
  /** Members whose part of it is missing. */
  undelivered(): Member[];
  /** A shard that is waited for has a standby. */
  mayAwaitArbiter(): boolean;
}

/** How far a coordinator is that has taken the place of another. */
export interface SuccessionPhase {
  /** It does not know yet where the servers stand. */
  readonly isAsking: boolean;
  readonly isDone: boolean;
  readonly waitingFor: string | null;
  /** The server is lost. */
  forget(server: number): void;
  /** A worker has come that is in this round. @throws ProtocolError NOT_PRIMARY when that cannot be taken up yet */
  memberKnows?(round: number): void;
  /** Deadlines. */
  tick?(): void;
}

export interface WorkPlan {
  readonly table: AttemptTable;
  readonly ledger: AttemptLedger;
  readonly present: PresentWork;
  /** Where this coordinator has taken the place of another. */
  readonly succession: SuccessionPhase | undefined;
  /** When work was last given out to all: no progress is expected before. */
  readonly lastWorkMs: number;

  /** What the first of it waits for, besides servers and one worker; in words, or null. */
  waitingFor(): string | null;
  /** Members have changed, or servers are complete: gives out what has no live holder, in a new view where there is one. */
  cover(): void;
  /** The member has something to compute, so that its progress must move. */
  owesWork(member: Member): boolean;
  /** What is lost if the member is lost now: replicas of a round that it was to compute and has not. */
  owed(member: Member): Owed | undefined;
  /** It is not done by somebody else meanwhile. */
  isStillOwed(owed: Owed): boolean;
  replicasOf(member: Member): number[];
  /** A member is about to be taken in once more, and what it was given went with its former connection. Where it keeps it, there is nothing to take. */
  takeBack?(id: string): void;
  /** The member is taken in. @param isAhead it has heard of a higher view than anybody here: all others have to be told a higher one */
  memberBack(id: string, isAhead: boolean): void;

  /** False when a worker sends no such message to the coordinator. */
  fromMember(member: Member, message: Message): boolean;
  /** False when a server sends no such message to the coordinator. */
  fromServer(index: number, message: Message): boolean;
  /** A server has joined and says where it stands: at the start, after a break, or in the place of a primary that is gone. */
  serverStands(index: number, standing: MessageOf<'standing'>): void;

  /** The present work stands still: what was told to members and servers is told again, in a new view. */
  askAgain(): void;
  /** A stop was asked for: leads to the next checkpoint, which takes it. A plan without it comes to one by itself. */
  drain?(): void;
  /** All rounds are done: moves to the state that follows training, and begins it (finish.ts). */
  finishTraining(): void;
}

/** The coordinator as its parts see it. */
export interface Coordinated {
  readonly plan: WorkPlan;
  /** What keeps the run from going on, in words, or null. */
  waitingFor(): string | null;
  /** Something has come that it may have waited for: the work begins when that was all. */
  begin(): void;
}
