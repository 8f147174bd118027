/** What the main thread of a program asks its coordinator thread, and what that answers. Plain data and shared memory. */
import type { MessagePort } from 'node:worker_threads';
import type { MemberAddress } from '@paceline/collectives';
import type { Range } from '../threads/ranges.js';
import type { TrainingPlan } from '../exchange.js';
import type { NamedFunction } from '../replicas/replica-function.js';
import type { BatchBuffers, Share } from '../threads/protocol.js';
import type { BatchNumbers, OpenServed } from './coordinator.js';
import type { GradientCodec } from './served-shard.js';

export interface CoordinatorInit {
  /** The coordinator, the workers, the parameter servers. */
  readonly tasks: readonly MemberAddress[];
  readonly names: readonly string[];
  /** UUID of the cluster. */
  readonly group: string;
  readonly secret: string;
  readonly transport: 'auto' | 'tcp' | 'unix';
  readonly shares: readonly Share[];
  /** Compute threads of a worker. */
  readonly threads: number;
  readonly workersPerGroup: number;
  readonly codec: GradientCodec;
  readonly deadlineMs: number;
  readonly joinDeadlineMs: number;
  /** ANSWERED and ENDED. */
  readonly cells: SharedArrayBuffer;
  readonly port: MessagePort;
}

/** Answers so far, and whether the thread has ended. */
export const [ANSWERED, LINK_ENDED] = [0, 1];
export const LINK_CELLS = 2;

export type ToCoordinator =
  | { readonly kind: 'describe'; readonly spec: TrainingPlan['spec']; readonly format: TrainingPlan['format'] }
  | { readonly kind: 'open'; readonly opened: OpenServed }
  | { readonly kind: 'close'; readonly model: number }
  | { readonly kind: 'train'; readonly model: number; readonly ranges: readonly Range[] }
  | {
      readonly kind: 'write';
      readonly model: number;
      /** What is undefined stays as the servers have it. */
      readonly steps: number | undefined;
      readonly parameters: SharedArrayBuffer | undefined;
      readonly slots: readonly SharedArrayBuffer[] | undefined;
    }
  | { readonly kind: 'read'; readonly model: number; readonly into: SharedArrayBuffer }
  | { readonly kind: 'slots'; readonly model: number; readonly into: readonly SharedArrayBuffer[] }
  | { readonly kind: 'step'; readonly numbers: BatchNumbers; readonly rate: number; readonly buffers: BatchBuffers }
  | { readonly kind: 'predict'; readonly numbers: BatchNumbers; readonly rowsAtOnce: number; readonly buffers: BatchBuffers }
  | { readonly kind: 'run'; readonly fn: NamedFunction; readonly args: readonly Uint8Array[] }
  | { readonly kind: 'about' }
  | { readonly kind: 'end' };

/** What needs no answer at once: a function in a worker, and a worker that may be there again. */
export type LaterCall =
  | { readonly kind: 'call'; readonly id: number; readonly worker: number; readonly call: Uint8Array; readonly deadlineMs: number }
  | { readonly kind: 'revive'; readonly id: number; readonly worker: number };

/** Said by an event, in any order. */
export type LaterAnswer =
  | { readonly kind: 'called'; readonly id: number; readonly value: Uint8Array | undefined }
  | { readonly kind: 'call-failed'; readonly id: number; readonly code: string; readonly isGone: boolean; readonly message: string }
  /** Not the worker alone is gone: no function can run any more. */
  | { readonly kind: 'call-lost'; readonly id: number; readonly fault: FromCoordinator };

/** Every message but `end` is answered once, in the order of the messages. */
export type FromCoordinator =
  | { readonly kind: 'ok'; readonly value: unknown }
  | { readonly kind: 'gone'; readonly places: readonly number[]; readonly message: string }
  | { readonly kind: 'cluster'; readonly message: string }
  | { readonly kind: 'function'; readonly message: string }
  | { readonly kind: 'unsupported'; readonly what: string; readonly reason: string }
  | { readonly kind: 'fault'; readonly message: string };
