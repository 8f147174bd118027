/** What the coordinator of an attempt is given, in every mode. */
import type { Measuring, Measures } from './measures.js';
import type { ValidationPlan } from './validations.js';
import type { Journal } from './journal.js';
import type { LedgerState } from './ledger-state.js';
import type { Succession } from './succession.js';
import type { CodecPicker } from './codec-picking.js';
import type { MeasuredRun } from './exchange-measuring.js';
import type { CheckpointCadence, CompletedCheckpoint } from './checkpoints.js';
import type { TwoPhaseOptions } from '../sync/agreement.js';
import type { StallDeadlines } from './stall.js';

/** What the coordinator knows of the order of examples; libs/learning has it. */
export interface RoundSchedule {
  readonly totalRounds: number;
  examplesIn(round: number): number;
  epochOf(round: number): number;
  replicaExamples(round: number, replica: number): number;
}

export type Outcome = 'finished' | 'paused' | 'cancelled' | 'failed';

/** The end of an attempt, which nobody but its coordinator knows yet. */
export interface AttemptEnd {
  /** To servers and members, and to the surroundings of the coordinator (`over`). */
  say(): void;
}

/** The server that has the coordinator of an attempt: CoordinatorHost of libs/hosting. */
export interface CoordinatorSurroundings {
  /** All shards have written their part: stores the manifest, then calls `stops.published` or `stops.failed`. */
  publishCheckpoint(checkpoint: CompletedCheckpoint): void;
  /** A server says that the checkpoint is complete already, by a coordinator before this one: looks for it, then does the same. */
  findCheckpoint(generation: number): void;
  /**
   * Called once after evaluation: collects and writes the weights, then calls `finish.weightsCollected`.
   * @param generation those of an earlier one, from its checkpoint; left out: the present ones
   */
  collectWeights(evaluation: Measures, generation?: number): void;
  /** While weights are collected a server has come again, or somebody in its place: what it still owes is asked for again. */
  serverBack(index: number): void;
  /** Called once, when the attempt has ended here: says so when nobody can take this coordinator's place any more, and before that to nobody. */
  concluded(end: AttemptEnd): void;
  /** Called once when the attempt is over and everybody is told, whatever the outcome. */
  over(outcome: Outcome, message: string): void;
}

/** What all plans of work are given. */
export type AttemptOptions = Omit<CoordinatorOptions, 'nonFinite'>;

export interface CoordinatorOptions {
  readonly attempt: number;
  readonly replicas: number;
  readonly servers: number;
  readonly schedule: RoundSchedule;
  /** Examples of the evaluation split; 0 for none. */
  readonly evalExamples: number;
  /** Examples that validations measure in place of the evaluation split; members count them after it. */
  readonly heldOutExamples?: number | undefined;
  /** What the sums of replicas and blocks are; the loss and the accuracy where it is left out. */
  readonly measured?: Measuring;
  /** Mode sync: when the evaluation split is measured while training, and what follows. */
  readonly validation?: ValidationPlan;
  /**
   * What the codec keeps of replicas is in checkpoints and follows a replica that moves: workers are told of both. The names of what a server has of it in
   * its part of a checkpoint: there are too many of them for a message.
   */
  readonly residualNames?: ((server: number) => readonly string[]) | undefined;
  /** EF21: servers have the sum of what is kept of all replicas, so a replica that has lost it ends the attempt. */
  readonly keepsEstimates?: boolean;
  /** Workers get differences of parameters, to what no checkpoint has. */
  readonly sendsDeltas?: boolean;
  /** With `codec: auto`. */
  readonly codec?: CodecPicker | undefined;
  /** With `strategy: auto`. */
  readonly measuredExchange?: MeasuredRun | undefined;
  readonly journal: Journal;
  now(): number;
  /** Rounds that are committed in the checkpoint that the attempt begins with; 0 without one. */
  readonly firstRound?: number;
  /** What the ledger held in that checkpoint. */
  readonly firstLedger?: LedgerState;
  /** This coordinator takes the place of one that is gone. */
  readonly succession?: Succession;
  readonly surroundings: CoordinatorSurroundings;
  /** Workers that must have joined before the first round; 1 where it is left out. At most `replicas`: more have no seat. */
  readonly startWorkers?: number | undefined;
  /** Each of these workers holds a shard. One whose shard another has taken over is not waited for: it is offered no seat. */
  readonly membersHoldShards?: boolean | undefined;
  /** When checkpoints are taken; none are without it. */
  readonly checkpoints?: CheckpointCadence & { readonly final: boolean };
  /** Plan two-phase; without it the plan is streaming. */
  readonly twoPhase?: TwoPhaseOptions;
  /** What follows from a gradient with NaN or infinity, where the shards cannot leave the round out. */
  readonly nonFinite?: 'fail' | 'rollback';
  /** The engine that earlier attempts of the run were pinned to. Without it, the first worker's engine is pinned. */
  readonly fingerprint?: string | undefined;
  /** Workers of any fingerprint take part, and get replicas by their speed. */
  readonly mixedEngines?: boolean;
  readonly heartbeatDeadlineMs?: number;
  readonly stepDeadlineMs?: number;
  readonly awayMs?: number;
  /** When work that stands still is asked for again, and given up. */
  readonly stall?: StallDeadlines;
  /** A server that says nothing for this long is lost; all have to connect within `serversDeadlineMs` of the first. */
  readonly serverDeadlineMs?: number;
  readonly serversDeadlineMs?: number;
  /** A server with a standby is waited for this long; the grace for workers after a takeover of the coordinator. */
  readonly takeoverDeadlineMs?: number;
  readonly graceMs?: number;
  /** A stop waits this long for the round, and as long again for its checkpoint. */
  readonly pauseDeadlineMs?: number;
  readonly shutdownDeadlineMs?: number;
}
