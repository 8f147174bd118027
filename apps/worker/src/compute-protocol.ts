/**
 * What the main thread and the compute thread of a worker say to each other. The main thread does sockets and never
 * computes; the compute thread holds the engine and never waits for a socket. Bulk data lies in shared memory:
 *
 *   parameter memory   two generations of the flat vector; the main thread writes, the compute thread reads
 *   gradient memory    gradient nodes; the compute thread allocates, writes and frees, the main thread reads
 *   control cells      [progress, committed round]; Atomics
 */
import type { Arena } from '@paceline/kernels';
import type { RunSpec, ModelDescription } from '@paceline/spec';

export const CELL_PROGRESS = 0;
export const CELL_COMMITTED = 1;
export const CELLS = 2;

export interface ComputeInit {
  readonly spec: RunSpec;
  readonly description: ModelDescription;
  readonly parameters: SharedArrayBuffer;
  readonly cells: SharedArrayBuffer;
}

export type ToCompute =
  | { readonly kind: 'step'; readonly round: number; readonly replicas: readonly number[] }
  | { readonly kind: 'evaluate'; readonly generation: number; readonly blocks: readonly { from: number; to: number }[] }
  | { readonly kind: 'free'; readonly pointer: number }
  | { readonly kind: 'stop' };

export type FromCompute =
  | { readonly kind: 'ready'; readonly fingerprint: string; readonly gradients: Arena['memory'] }
  | {
      readonly kind: 'contribution';
      readonly round: number;
      readonly replica: number;
      readonly examples: number;
      readonly sums: readonly number[];
    }
  | { readonly kind: 'node'; readonly round: number; readonly lo: number; readonly hi: number; readonly pointer: number }
  | {
      readonly kind: 'evaluated';
      readonly generation: number;
      readonly from: number;
      readonly to: number;
      readonly examples: number;
      readonly sums: readonly number[];
    }
  | { readonly kind: 'failed'; readonly code: string; readonly message: string; readonly round: number; readonly replica: number };
