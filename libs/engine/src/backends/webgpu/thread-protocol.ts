/**
 * What the GPU thread and the thread that uses the engine say to each other: one request at a time, and one answer to each. The user's thread is
 * blocked meanwhile, so an answer is counted in shared memory, where it can be waited for, before it is taken from the port.
 */
import type { MessagePort } from 'node:worker_threads';
import type { ModelDescription, RowFormat } from '@paceline/spec';
import type { Batch, EngineDevice, StepRequest, TrainedPart } from '../../engine.js';

/** Answers given so far. */
export const CELL_ANSWERS = 0;
/** 1 when the thread has ended: no answer comes any more. */
export const CELL_ENDED = 1;
export const CELLS = 2;

export interface GpuThreadInit {
  readonly spec: TrainedPart;
  readonly description: ModelDescription;
  readonly format: RowFormat;
  readonly webgpuPackage: string | undefined;
  /** Over shared memory, CELLS elements. */
  readonly cells: Int32Array;
  /** Requests come from here, answers go there. */
  readonly port: MessagePort;
}

/** Told once, when the engine is ready or has refused to start. */
export type GpuThreadStart =
  | {
      readonly kind: 'ready';
      readonly fingerprint: string;
      readonly devices: readonly EngineDevice[];
      readonly metricNames: readonly string[];
    }
  | { readonly kind: 'refused'; readonly error: TransferredError };

/** `flat` and `out` lie in shared memory. */
export type GpuRequest =
  | { readonly kind: 'load'; readonly flat: Float32Array }
  | { readonly kind: 'step'; readonly request: StepRequest }
  | { readonly kind: 'trace'; readonly request: StepRequest }
  | { readonly kind: 'evaluate'; readonly batch: Batch }
  | { readonly kind: 'memory' }
  | { readonly kind: 'dispose' };

export type GpuAnswer = { readonly kind: 'done'; readonly value: unknown } | { readonly kind: 'failed'; readonly error: TransferredError };

export interface TransferredError {
  readonly name: string;
  readonly message: string;
  readonly code: string | undefined;
  /** The path of a ModelError. */
  readonly path: string | undefined;
  readonly stack: string | undefined;
}
