/**
 * What the compute thread and its loader thread say to each other. The compute thread owns the directory of slots: buffers in shared memory, each with
 * a flag. It asks for a slot to be filled, and waits for the flag where it needs the rows; the loader fills one slot at a time.
 *
 *     FREE ── asked ──> FILLING ── the rows are there ──> READY ── released ──> FREE
 *                          └────── they cannot be read ──> FAILED, with the reason on the port
 */
import type { RowBuffers, RunRowsSettings } from '@paceline/data';
import type { RunData, RunSpec } from '@paceline/spec';
import type { MessagePort } from 'node:worker_threads';

export const FLAG_FREE = 0;
export const FLAG_FILLING = 1;
export const FLAG_READY = 2;
export const FLAG_FAILED = 3;

export interface LoaderInit {
  readonly spec: RunSpec;
  readonly data: RunData;
  readonly settings: RunRowsSettings;
  /** One per slot, over shared memory. */
  readonly flags: Int32Array;
  readonly slots: readonly RowBuffers[];
  /** Failures of slots go here: it can be read by a thread that waits. */
  readonly port: MessagePort;
}

/** The rows for a slot: those of a replica step, or rows of the evaluation split in order. */
export type Wanted =
  | { readonly kind: 'step'; readonly round: number; readonly replica: number; readonly localStep: number }
  | { readonly kind: 'evaluation'; readonly from: number; readonly to: number };

/** A slot, and what is to be filled into it. */
export interface Ask {
  readonly slot: number;
  readonly wanted: Wanted;
}

/** Urgent slots, which the compute thread waits for, are filled before prefetched ones. */
export interface ToLoader {
  /** In the order in which they are needed. */
  readonly asks: readonly Ask[];
  readonly isUrgent: boolean;
}

/** Sent once, when the data is open or cannot be opened. */
export type LoaderStart = { readonly kind: 'ready' } | ({ readonly kind: 'refused' } & LoaderFailure);

export interface LoaderFailure {
  readonly code: string;
  readonly message: string;
}

/** Sent through the port. */
export interface SlotFailure extends LoaderFailure {
  readonly slot: number;
}

/** The rows of a run cannot be read: code and message are those of what failed in the loader thread. */
export class RowsUnreadableError extends Error {
  override readonly name = 'RowsUnreadableError';

  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}
