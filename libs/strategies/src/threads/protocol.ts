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
}

/** Where a batch lies: rows one after the other, in the order of the format; longer than what is used. */
export interface BatchBuffers {
  readonly inputs: readonly SharedArrayBuffer[];
  readonly targets: readonly SharedArrayBuffer[];
  readonly weights: SharedArrayBuffer;
  readonly outputs: readonly SharedArrayBuffer[];
}

/** Numbers of the present step, float64. */
export const [COUNT, STEP_NUMBER, RATE, VERSION] = [0, 1, 2, 3];
export const HEADER = 4;

/** Pointers into the arena, and what is shared beside it. */
export interface ModelMemory {
  readonly arena: SharedMemory;
  /** Parameters and state. */
  readonly parameters: number;
  /** One flat vector for each replica. */
  readonly gradients: readonly number[];
  /** One vector of the trainable section for each slot of the optimizer. */
  readonly slots: readonly number[];
  /** As many zeros as the largest chunk has elements. */
  readonly zeros: number;
  /** HEADER float64. */
  readonly header: SharedArrayBuffer;
  /** Float64: the sum of the losses of each replica's examples. */
  readonly losses: SharedArrayBuffer;
}

export interface OpenModel extends TrainingPlan {
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
