/**
 * What a strategy needs to train models, whoever computes: threads of this process today. A model's trainer takes one batch after the other; what
 * lies behind it splits the rows, adds the gradients and updates the parameters. The model of the user knows this interface alone.
 */
import type { Layout } from '@paceline/learning';
import type { ModelDescription, RowFormat } from '@paceline/spec';
import type { LocalReplicas } from './replicas/distributed-dataset.js';
import type { Encoded, ReplicaArray } from './replicas/per-replica.js';
import type { NamedFunction } from './replicas/replica-function.js';
import type { UpdateRule } from './update-rule.js';

/** What is trained: plain data. */
export interface TrainingPlan {
  /** Whether somebody reads the outputs of a step: metrics do. */
  readonly readsOutputs: boolean;
  readonly spec: PlanSpec;
  readonly format: RowFormat;
  readonly rule: UpdateRule;
}

/** The part of a run spec that an engine needs. */
export interface PlanSpec {
  readonly model: { readonly topology: unknown };
  readonly losses: Readonly<Record<string, { readonly name: string; readonly fromLogits: boolean }>>;
  /** Variables of which no gradient is needed, by path. */
  readonly freeze: readonly string[];
  readonly seed: number;
}

/** Writes the values of a batch, the examples one after the other. */
export type Fill = (into: Float32Array) => void;

export interface HostBatch {
  readonly count: number;
  /** One for each field of the format. They are called during the step alone. */
  readonly inputs: readonly Fill[];
  readonly targets: readonly Fill[];
  /** A number that depends on which rows of the data these are; 0 where it is not known. */
  readonly rowsDigest?: number;
  /** A factor of the loss per example; 1 where left out. */
  readonly weights?: Fill | undefined;
}

/** Arrays are valid until the next step. */
export interface StepResult {
  /** Mean over the examples of these rows, with the regularizers. */
  readonly loss: number;
  /** This process was not there: what the step came to, the course says. */
  readonly isPast?: boolean;
  /** The rows of the batch: all, or those of this process where replicas train alone. */
  readonly rows: { readonly from: number; readonly to: number };
  /** What was filled in. */
  readonly targets: readonly Float32Array[];
  /** The values of each output of the model, as training computed them. */
  readonly outputs: readonly Float32Array[];
}

export interface HostRows {
  readonly count: number;
  /** One for each input of the format. They are called during the prediction alone. */
  readonly inputs: readonly Fill[];
  /** A replica takes at most so many rows through the model at once. */
  readonly rowsAtOnce: number;
}

/** A batch that was filled in, to be computed. */
export interface PreparedStep {
  /**
   * Starts the step, as in Trainer.step. The one before may still run: then this one follows it, or is left out where it fails.
   * @returns waits for its end, and gives its result
   */
  start(step: number, rate: number): () => StepResult;
}

/** A vector, whether it lies in one piece or not. */
export interface FlatValues {
  /** A copy of the elements [from, to). */
  slice(from: number, to: number): Float32Array;
  set(values: ArrayLike<number>, offset: number): void;
}

export interface Trainer {
  readonly description: ModelDescription;
  /** Where the model is cut into stages: the names of the layers of each. */
  readonly stages?: readonly (readonly string[])[];
  readonly layout: Layout;
  /** Rises whenever the parameters change. */
  readonly version: number;
  /** Parameters and state as they are now, in the order of the layout. What is written counts from the next step on. */
  readonly parameters: FlatValues;
  /**
   * What the optimizer keeps, by its slots, in the order of the trainable section; may be written to until the next step.
   * @throws MemberError where processes keep parts of it, and one is gone
   */
  readonly slots: readonly FlatValues[];
  /** Says that the parameters were written to. */
  touch(): void;
  /** Says that the slots will be written to: what is only read need not go anywhere. Where it is missing, they are what the next step begins with anyway. */
  touchSlots?(): void;
  /** Variables that keep their values, by path. */
  freeze(paths: readonly string[]): void;
  /**
   * One synchronous step over all replicas.
   * @param step from 1: of which step of the optimizer this is
   * @param rate learning rate
   */
  step(batch: HostBatch, step: number, rate: number): StepResult;
  /** Fills a batch in, while the step before may still run. Arrays of a result are valid until the next but one was filled in. Where it is missing, steps go one by one. */
  readonly prepare?: ((batch: HostBatch) => PreparedStep) | undefined;
  /**
   * What the model answers for rows, as inference computes it: the values of each output. Arrays are valid until the next step or prediction.
   * @param step from 1: the next one of the optimizer
   */
  predict(rows: HostRows, step: number): readonly Float32Array[];
  /** Where servers have the parameters: the number by which they know the model, when they have what was set here. */
  serve?(steps: number): number;
  /** A function that got this number has ended: it may have updated the parameters at the servers. */
  ended?(served: number): void;
  /** Reads what functions have learned. @returns the steps of the optimizer so far, where some may have been taken since they were last asked for */
  takeUp?(): number | undefined;
  close(): void;
}

/** What processes have done together, for one that was started again: it comes to what the others did without doing it. Calls are those of all, in order. */
export interface Course {
  /** This process goes through what the others did while it was not there. */
  readonly isCatchingUp: boolean;
  /** What follows from what replicas have computed. @param compute in place of it, what the others came to, where this process was not there */
  value(what: string, compute: () => Uint8Array): Uint8Array;
  /** Something that must be the same in a process that was started again. */
  same(what: string): void;
  /** No process can be started again from now on. @param why what it could not do again */
  close(why: string): void;
}

export interface Exchange {
  readonly replicas: number;
  readonly local: LocalReplicas;
  /** Other processes train the same models, with the same calls: all must take the same rows. */
  readonly isShared: boolean;
  /** Where processes may be started again while the others go on. */
  readonly course?: Course | undefined;
  /** @throws UnsupportedError for an optimizer that the strategy does not serve */
  checkRule?(rule: UpdateRule): void;
  /** @throws UnsupportedError for a model that the engine does not train */
  open(plan: TrainingPlan): Trainer;
  /**
   * Calls a function of a module in the replicas of this process.
   * @param argsOf the arguments of a replica, from 0 among those of this process
   * @returns what each replica gave back
   */
  call(fn: NamedFunction, argsOf: (replica: number) => readonly Encoded[]): Encoded[];
  /** @returns the values of the replicas of all processes, for those of this one's */
  shareValues(what: string, values: readonly ReplicaArray[]): readonly ReplicaArray[];
  dispose(): Promise<void>;
}
