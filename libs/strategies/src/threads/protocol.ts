/** What the main thread says to its compute threads beside the cells, and what they answer. Plain data and shared memory. */
import type { SharedMemory } from '@paceline/kernels';
import type { ModelDescription } from '@paceline/spec';
import type { MessagePort } from 'node:worker_threads';
import type { PlanSpec, TrainingPlan } from '../exchange.js';

export interface ThreadInit {
  readonly index: number;
  readonly threads: number;
  readonly cells: SharedArrayBuffer;
  /** Answers go here. */
  readonly port: MessagePort;
  /** To the group thread, if there is one: failures, and that a step's gradients are there. */
  readonly collect?: MessagePort | undefined;
}

/** What a compute thread says to the group thread. */
export type ToGroup = { readonly kind: 'reduce'; readonly model: number; readonly steps: number } | Extract<FromThread, { kind: 'failed' }>;

/** Where a batch lies: rows one after the other, in the order of the format; longer than what is used. */
export interface BatchBuffers {
  readonly inputs: readonly SharedArrayBuffer[];
  readonly targets: readonly SharedArrayBuffer[];
  readonly weights: SharedArrayBuffer;
  readonly outputs: readonly SharedArrayBuffer[];
}

/** Numbers of the present step, float64. */
export const [COUNT, STEP_NUMBER, RATE, VERSION, ROWS] = [0, 1, 2, 3, 4];
export const HEADER = 5;

/** Pointers into the arena, and what is shared beside it. */
export interface ModelMemory {
  readonly arena: SharedMemory;
  /** Parameters and state. */
  readonly parameters: number;
  /** One flat vector for each replica of this process. */
  readonly gradients: readonly number[];
  /** One vector of the trainable section for each slot of the optimizer. */
  readonly slots: readonly number[];
  /** As many zeros as the largest chunk has elements. */
  readonly zeros: number;
  /** HEADER float64. */
  readonly header: SharedArrayBuffer;
  /** Float64: the sum of the losses of each replica's examples, of all replicas. */
  readonly losses: SharedArrayBuffer;
  /** Where the group thread receives. */
  readonly scratch: number;
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

export interface OpenModel extends TrainingPlan {
  readonly share: Share;
  readonly model: number;
  readonly description: ModelDescription;
  readonly memory: ModelMemory;
  /** Threads that share the sums and the update: the first ones. */
  readonly updaters: number;
  readonly loadsEarly: boolean;
}

export type ToThread =
  | { readonly kind: 'describe'; readonly spec: PlanSpec; readonly format: TrainingPlan['format'] }
  | ({ readonly kind: 'open' } & OpenModel)
  | { readonly kind: 'buffers'; readonly model: number; readonly buffers: BatchBuffers }
  | { readonly kind: 'freeze'; readonly model: number; readonly paths: readonly string[] }
  | { readonly kind: 'close'; readonly model: number };

/** Every thread answers a message once; in a step only those that failed say something. */
export type FromThread =
  | { readonly kind: 'ok'; readonly description?: ModelDescription }
  | {
      readonly kind: 'failed';
      readonly message: string;
      /** The field of the spec, for a ModelError. */
      readonly path?: string | undefined;
      readonly replica?: number;
      readonly layer?: string | undefined;
    };
