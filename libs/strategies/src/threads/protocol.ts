/** What the main thread says to its compute threads beside the cells, and what they answer. Plain data and shared memory. */
import type { SharedMemory } from '@paceline/kernels';
import type { Range } from '@paceline/collectives';
import type { StageCuts } from '@paceline/engine';
import type { ModelDescription } from '@paceline/spec';
import type { MessagePort } from 'node:worker_threads';
import type { PlanSpec, TrainingPlan } from '../exchange.js';
import type { OuterRule } from '../update-rule.js';
import type { Encoded } from '../replicas/per-replica.js';

export interface ThreadInit {
  readonly index: number;
  readonly threads: number;
  readonly cells: SharedArrayBuffer;
  /** Answers go here. */
  readonly port: MessagePort;
  /** To the group thread, if there is one: failures, and that a step's gradients or a prediction's rows are there. */
  readonly collect?: MessagePort | undefined;
  /** What it computes with; wasm where left out. */
  readonly engine?: ThreadEngine | undefined;
  /** The process that computes its replicas, where there is one. */
  readonly device?: DeviceInit | undefined;
}

export interface ThreadEngine {
  readonly backend: 'wasm' | 'tensorflow';
  /** Folder of the package, for tensorflow. */
  readonly tensorflowPackage?: string | undefined;
  /** An engine that finds no GPU is refused. */
  readonly isOnGpu: boolean;
}

/** Where the process of a device is met. */
export interface DeviceInit {
  /** `gpu:0`. */
  readonly name: string;
  readonly pid: number;
  readonly folder: string;
  readonly group: string;
  readonly secret: string;
  /** Without a byte for so long, the process is given up. */
  readonly deadlineMs: number;
  /** Over shared memory: bytes sent to it, bytes received. */
  readonly traffic: Float64Array;
}

/** What a compute thread says to the group thread: add up what all processes have, or give all what each has updated or predicted. */
export type ToGroup =
  | { readonly kind: 'reduce' | 'gather' | 'predicted'; readonly model: number; /** So far. */ readonly steps: number }
  | { readonly kind: 'meet'; readonly at: Met }
  | Extract<FromThread, { kind: 'failed' }>;

/**
 * Sets of numbers and buffers. One batch is filled while another is computed, so steps alternate between the first two; rows to be predicted between
 * them have the third. Where steps are given one at a time, all have the first.
 */
export const [FIRST_SET, PREDICTIONS_SET, SETS] = [0, 2, 3];

/** Where a batch lies: rows one after the other, in the order of the format; longer than what is used. */
export interface BatchBuffers {
  readonly inputs: readonly SharedArrayBuffer[];
  readonly targets: readonly SharedArrayBuffer[];
  readonly weights: SharedArrayBuffer;
  readonly outputs: readonly SharedArrayBuffer[];
  /** Where a model is cut into stages: the tensor of each boundary, and its gradient. Sets may have them in common, since no stage begins a step before all have ended the one before. */
  readonly boundaries?: readonly { readonly values: SharedArrayBuffer; readonly gradients: SharedArrayBuffer }[];
}

/** Numbers of the present step or prediction, float64. */
export const [COUNT, STEP_NUMBER, RATE, VERSION, ROWS, ROWS_AT_ONCE, LOCAL_STEP] = [0, 1, 2, 3, 4, 5, 6];
export const HEADER = 7;

/**
 * Values of LOCAL_STEP, where replicas train alone: they begin with the common parameters and slots, go on with their own, take a step together, as all
 * other strategies do, go on with their own parameters and the common slots, or with the common parameters and their own slots.
 */
export const [BEGINS, GOES_ON, TOGETHER, TAKES_SLOTS, TAKES_PARAMETERS] = [0, 1, 2, 3, 4];

/** The numbers of a set. */
export const headerOf = (header: SharedArrayBuffer, set: number): Float64Array => new Float64Array(header, set * HEADER * 8, HEADER);

/** The losses of a set. */
export const lossesOf = (losses: SharedArrayBuffer, set: number, replicas: number): Float64Array =>
  new Float64Array(losses, set * replicas * 8, replicas);

/** Pointers into the arena, and what is shared beside it. */
export interface ModelMemory {
  readonly arena: SharedMemory;
  /** Parameters and state. */
  readonly parameters: number;
  /** One flat vector for each replica of this process. */
  readonly gradients: readonly number[];
  /** One vector for each slot of the optimizer: of the trainable section, or of its part in `own`. */
  readonly slots: readonly number[];
  /** Where each process updates a part: the range of this one. */
  readonly own: Range | undefined;
  /** As many zeros as the largest chunk has elements. */
  readonly zeros: number;
  /** HEADER float64 for each set. */
  readonly header: SharedArrayBuffer;
  /** Float64, for each set: the sum of the losses of each replica's examples, of all replicas; where a model is cut into stages, one for each stage and micro-batch, of all pipelines. */
  readonly losses: SharedArrayBuffer;
  /** Where the group thread receives. */
  readonly scratch: number;
  /** Where replicas train alone between averages. */
  readonly local?: LocalMemory | undefined;
}

/** What each replica has of its own. */
export interface LocalMemory {
  readonly parameters: readonly number[];
  /** For each replica one vector of the trainable section for each slot. */
  readonly slots: readonly (readonly number[])[];
  /** Where the velocity of the outer step lies. */
  readonly velocity: number;
  /** Where replicas exchange a fragment at a time: a vector for each replica of this process, as long as the longest fragment. */
  readonly fragments: readonly number[];
}

/** The part of the trainable section that a process keeps slots of. */
export function slotRange(own: Range | undefined, trainableLength: number): Range {
  if (!own) return { offset: 0, length: trainableLength };
  const from = Math.min(own.offset, trainableLength);
  return { offset: from, length: Math.min(own.offset + own.length, trainableLength) - from };
}

/** Which replicas this process computes. */
export interface Share {
  /** All, over all processes. */
  readonly replicas: number;
  readonly from: number;
  readonly to: number;
  /** The nodes of the reduction tree that it adds up by itself. */
  readonly nodes: readonly { readonly lo: number; readonly hi: number }[];
}

/** How a model is cut into stages, one for each thread of a pipeline, and what goes through them. */
export interface Pipeline extends StageCuts {
  /** Pipelines side by side, each of which has a part of the batch. */
  readonly pipelines: number;
  /** Micro-batches of a pipeline. */
  readonly microBatches: number;
}

export interface OpenPipeline extends Pipeline {
  /** Of each stage: where its variables, slots and gradients lie, in the order of its layout. */
  readonly memories: readonly ModelMemory[];
  /** For each stage the paths of its variables. */
  readonly variables: readonly (readonly string[])[];
  /** Counters of what went over each boundary (stage-session.ts). */
  readonly flow: SharedArrayBuffer;
  /** Of each thread: where the sums of its micro-batches lie (pipeline.ts). */
  readonly sums: SharedArrayBuffer;
}

export interface OpenModel extends TrainingPlan {
  readonly share: Share;
  readonly model: number;
  readonly description: ModelDescription;
  readonly memory: ModelMemory;
  /** Threads that share the sums and the update: the first ones. */
  readonly updaters: number;
  readonly loadsEarly: boolean;
  /** Where replicas train alone. */
  readonly outer?: OuterRule | undefined;
  /** Into how many fragments the model is cut, where replicas exchange one at a time; 0 or left out where they do not. */
  readonly fragments?: number;
  /** Of several processes, or the last that is left of them: the sums of a step come from the group. */
  readonly isMember?: boolean;
  /** Parameter servers update: a step ends with the sums of this process's nodes. */
  readonly isServed?: boolean;
  /** Where the model is cut into stages; `memory` is not read then. */
  readonly pipeline?: OpenPipeline | undefined;
}

export type ToThread =
  | { readonly kind: 'describe'; readonly spec: PlanSpec; readonly format: TrainingPlan['format']; readonly cuts?: StageCuts | undefined }
  | ({ readonly kind: 'open' } & OpenModel)
  | {
      readonly kind: 'buffers';
      readonly model: number;
      readonly buffers: BatchBuffers;
      /** The first one where left out. */ readonly set?: number;
    }
  | { readonly kind: 'freeze'; readonly model: number; readonly paths: readonly string[] }
  /**
   * What replicas that train alone have becomes common, vector by vector (LocalUpdates): `collect` ends with the sums of this process, `take` begins with
   * those of all.
   */
  | { readonly kind: 'average'; readonly model: number; readonly vectors: readonly number[]; readonly part: 'collect' | 'take' | 'all' }
  /** The same for the parameters and state of a fragment. `mixing`: the part of its own that a replica keeps. */
  | {
      readonly kind: 'fragment';
      readonly model: number;
      readonly fragment: number;
      readonly part: 'collect' | 'take';
      readonly mixing: number;
    }
  /** What the thread has done for the model so far. */
  | { readonly kind: 'counts'; readonly model: number }
  | { readonly kind: 'close'; readonly model: number }
  | ({ readonly kind: 'load'; readonly memory: MeetingMemory; readonly share: Share } & Omit<ReplicaCall, 'args'>)
  | ({ readonly kind: 'call' } & ReplicaCall);

/** A function of a module of the program, which each replica calls. */
export interface ReplicaCall {
  readonly module: string;
  readonly name: string;
  /** For each replica of the thread. */
  readonly args: readonly (readonly Encoded[])[];
}

/** What the replicas of a process are at, where they are at the same point. */
export interface Met {
  readonly kind: number;
  readonly length: number;
  readonly form: number;
  /** Why they cannot go on, where no replica has said it. */
  readonly reason: string | undefined;
  /** The function that they are in, for people too: its name, and that of its module. */
  readonly fn: string;
}

/** What the replicas of functions share (meeting.ts). */
export interface MeetingMemory {
  readonly points: SharedArrayBuffer;
  /** Grows. */
  readonly values: SharedArrayBuffer;
}

/** By these the strategies over threads differ: all copy the parameters into their engines, and not all update them. */
export interface SessionCounts {
  /** Parameters that were copied into the engine of the thread, as whole vectors. */
  readonly loads: number;
  /** Elements of common parameters that the thread has updated, of all steps. */
  readonly updated: number;
}

export interface DescribedStage {
  /** Names of its layers. */
  readonly layers: readonly string[];
  /** Paths of its variables. */
  readonly variables: readonly string[];
  /** Float32 of an example that it gives to the next one; 0 for the last. */
  readonly passed: number;
  /** The layer that it ends with; undefined for the last. */
  readonly end: string | undefined;
}

/** Every thread answers a message once; in a step only those that failed say something. */
export type FromThread =
  | {
      readonly kind: 'ok';
      readonly description?: ModelDescription;
      /** Where it is cut into stages. */
      readonly stages?: readonly DescribedStage[] | undefined;
      readonly counts?: SessionCounts | undefined;
      /** The results of a call, for each replica of the thread. */
      readonly results?: readonly Encoded[];
    }
  | {
      readonly kind: 'failed';
      readonly message: string;
      /** The field of the spec, for a ModelError. */
      readonly path?: string | undefined;
      readonly replica?: number;
      readonly layer?: string | undefined;
      /** A function of the program cannot be loaded. */
      readonly isFunction?: true;
      /** The device whose process is gone: nothing can be computed any more. */
      readonly device?: string | undefined;
    };
