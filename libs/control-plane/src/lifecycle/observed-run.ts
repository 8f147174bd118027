/**
 * What the dispatcher looks at and what it may do: the arguments and results of `reconcile`. The api fills the observed run from
 * PostgreSQL, Redis and its reports and carries the actions out; the simulator does both in memory.
 */
import type { ControlFields } from '../contract/control.js';
import type { CoordinatorState } from '../contract/reports.js';
import type { ServerAddress } from '../contract/queues.js';
import type { AttemptEnd, SeatFailure } from './attempt-end.js';
import type { PlaceWait } from './fair-share.js';
import type { RunStatus } from './run-status.js';
import type { FleetCounts, MemoryWait } from './waiting-reason.js';

export interface ObservedServer {
  readonly index: number;
  /** The role in which it was placed. */
  readonly role: 'primary' | 'standby';
  /** Term in which it leads; 1 at the start, raised by each takeover. */
  readonly term: number;
  /** The arbiter has taken its place from it. */
  readonly isDropped: boolean;
  /** How often its placement was made before. */
  readonly incarnation: number;
  readonly madeAtMs: number;
  /** Null until a server process has claimed the part. */
  readonly claim: {
    readonly address: ServerAddress;
    readonly atMs: number;
    readonly storage: string | null;
    /** It loads what it begins with; nothing is started before. */
    readonly isLoading?: boolean;
  } | null;
}

export interface ObservedTask {
  readonly id: string;
  readonly seat: number;
  readonly incarnation: number;
  readonly workerId: string | null;
  readonly replicas: readonly number[];
  /** Seats held in the run when its job was made. */
  readonly heldSeats: number;
  readonly createdAtMs: number;
  readonly heldAtMs: number | null;
}

/** One run with everything of its present attempt. */
export interface ObservedRun {
  readonly runId: string;
  readonly status: RunStatus;
  readonly statusReason: string | null;
  /** The reason says what the run waits for. */
  readonly isWaiting: boolean;
  readonly attempt: number;
  readonly cancelRequestedAtMs: number | null;
  readonly pauseRequestedAtMs: number | null;
  /** When a RECOVERING run's next attempt begins. */
  readonly nextAttemptAtMs: number | null;
  /** Server processes: one for each shard, and one more for each standby. */
  readonly serversNeeded: number;
  /** Which processes hold the shards; servers where nothing is said. With workers, seat i is for the worker with shard i. */
  readonly shardHosts?: 'servers' | 'workers';
  /** Where workers hold the shards: the fewest that it goes on with by itself. */
  readonly minWorkers?: number | undefined;
  /** Where workers hold the shards: the most that it takes by itself. */
  readonly maxWorkers?: number | undefined;
  /** Standbys of a shard, 0 or 1. */
  readonly standby: number;
  readonly replicas: number;
  /** Seats that may be held at most; null is one per replica. Where workers hold the shards: how many do in the next attempt; null is as now. */
  readonly workersWanted: number | null;
  /** Committed rounds that the attempt began with. */
  readonly fromRound: number;
  readonly attemptStartedAtMs: number | null;
  /** Its result is of an attempt before this one, which was an extension that is over without one. */
  readonly hasOlderResult?: boolean;
  /** Highest journal number that is stored. */
  readonly storedSequence: number;
  /** Term of the coordinator whose journal counts. */
  readonly coordinatorTerm: number;
  readonly seatFailures: number;
  readonly lastSeatFailureAtMs: number | null;
  readonly lastSeatFailure: SeatFailure | null;
  readonly servers: readonly ObservedServer[];
  readonly openTasks: readonly ObservedTask[];
  readonly heldTasks: readonly ObservedTask[];
  /** What the coordinator of this attempt reported last. */
  readonly coordinator:
    | (Pick<CoordinatorState, 'phase' | 'round' | 'totalRounds' | 'seats' | 'waitingFor'> & { readonly atMs: number })
    | null;
  readonly control: ControlFields;
}

/** A server process as the api sees it. */
export interface ServerHealth {
  readonly silentMs: number;
  /** It said goodbye. */
  readonly hasLeft: boolean;
  /** A worker said lately that it cannot reach it. */
  readonly isSuspected: boolean;
  /** Nobody listens at its port. */
  readonly isRefused: boolean;
}

export interface ObservedFleet {
  readonly servers: ReadonlyMap<string, ServerHealth>;
  /** Whether silence means something: reports have been read without a gap for a while. */
  readonly isReliable: boolean;
  /** For how long reports have been read without a gap. */
  readonly reliableForMs: number;
  readonly counts: FleetCounts;
  /** How many runs have a part on a server that is silent or has left, or lost it lately; where nothing is said, one. */
  readonly runsOn?: ReadonlyMap<string, number>;
  /** Workers that may hold a shard of a run: connected, and not held by another; where nothing is said, all that are connected. */
  readonly shardWorkersFor?: ReadonlyMap<string, number>;
  /** How many workers a run could have: its own, and those that nobody needs. One run at most; the others take no more by themselves now. */
  readonly spareWorkersFor?: ReadonlyMap<string, number>;
  /** Runs that have no place on the servers yet, and why. */
  readonly waiting?: ReadonlyMap<string, PlaceWait>;
  /** Runs with a part for which no server has the memory beside what it holds. */
  readonly memory?: ReadonlyMap<string, MemoryWait>;
  /** Seats that a run may hold by the limit of its team, where there is one. */
  readonly seatRoom?: ReadonlyMap<string, number>;
}

/** `unsent`: its row in the outbox has not been sent yet. */
export type JobState = 'unsent' | 'waiting' | 'active' | 'over' | 'missing';
export interface ObservedJob {
  readonly state: JobState;
  /** Since when it has been in no queue, as far as the dispatcher knows. */
  readonly notWaitingSinceMs: number;
}

export type DispatchAction =
  | { readonly kind: 'write-control'; readonly fields: ControlFields }
  | { readonly kind: 'mark-started' }
  | {
      readonly kind: 'make-placement-again';
      readonly index: number;
      readonly role: 'primary' | 'standby';
      readonly incarnation: number;
      readonly serverId: string | null;
      readonly why: string;
    }
  /** What the arbiter has decided about the shard is not in the control hash any more. */
  | { readonly kind: 'tell-lead'; readonly index: number }
  | { readonly kind: 'open-seat'; readonly seat: number; readonly heldSeats: number }
  | { readonly kind: 'close-seat'; readonly task: ObservedTask; readonly why: string }
  | {
      readonly kind: 'hold-seat';
      readonly seat: number;
      readonly incarnation: number;
      readonly workerId: string;
      readonly replicas: readonly number[];
      readonly isNew: boolean;
    }
  | { readonly kind: 'forget-seat-failures' }
  | { readonly kind: 'reprioritise-seat'; readonly task: ObservedTask; readonly heldSeats: number }
  | { readonly kind: 'move'; readonly to: RunStatus; readonly reason: string }
  | { readonly kind: 'explain'; readonly reason: string; readonly isWaiting: boolean }
  /** So many workers are to hold the shards, as if somebody had asked for it. */
  | { readonly kind: 'change-workers'; readonly workers: number; readonly why: string }
  /** `afterEnd` says what follows. */
  | { readonly kind: 'end-attempt'; readonly end: AttemptEnd }
  /** From the checkpoint that `nextRestore` names. */
  | { readonly kind: 'begin-attempt'; readonly reason: string; readonly keepsWorkers?: true };
