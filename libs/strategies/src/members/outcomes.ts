/**
 * What a step or prediction has come to, for a process that was in it still when a member was lost, while others had completed it. Whoever completes one
 * keeps copies until the next, as that overwrites them.
 */
import type { Failure } from '@paceline/collectives';
import type { BatchBuffers } from '../threads/protocol.js';
import type { SharedModel } from './protocol.js';

export interface Outcome {
  readonly failures: readonly Failure[];
  /** Of all replicas. */
  readonly losses: Float64Array;
  /** Of all rows, where somebody reads them. */
  readonly outputs: readonly Float32Array[];
}

/** Of an outcome: what tells others which vectors come. */
interface Said {
  readonly failures: readonly Failure[];
  readonly hasLosses: boolean;
  readonly hasOutputs: boolean;
}

/** What is said fits into the call of an operation. */
const MOST_FAILURES = 8;

export function outcomeOf(of: {
  readonly failures: readonly Failure[];
  readonly losses: Float64Array;
  readonly outputs: readonly { readonly floats: number; readonly buffer: SharedArrayBuffer }[];
  readonly replicas: number;
  readonly count: number;
}): Outcome {
  const { failures, losses, outputs, replicas, count } = of;
  return {
    failures,
    losses: losses.slice(0, replicas),
    outputs: outputs.map(({ floats, buffer }) => new Float32Array(buffer, 0, floats * count).slice()),
  };
}

export function saidOf(outcome: Outcome | undefined): Uint8Array {
  const said: Said = {
    failures: outcome?.failures.slice(0, MOST_FAILURES) ?? [],
    hasLosses: outcome !== undefined,
    hasOutputs: (outcome?.outputs.length ?? 0) > 0,
  };
  return new Uint8Array(Buffer.from(JSON.stringify(said)));
}

export const saidIn = (bytes: Uint8Array): Said => JSON.parse(Buffer.from(bytes).toString()) as Said;

/** The bytes of the losses, as the vectors that members send. */
const asFloats = ({ buffer, byteOffset }: Float64Array, replicas: number): Float32Array =>
  new Float32Array(buffer as ArrayBuffer, byteOffset, replicas * 2);

/** Where an outcome lies that others get. */
export const placesOf = (outcome: Outcome | undefined, replicas: number): Float32Array[] =>
  outcome ? [asFloats(outcome.losses, replicas), ...outcome.outputs] : [];

interface Places {
  readonly losses: Float64Array;
  readonly shared: SharedModel;
  readonly buffers: BatchBuffers | undefined;
}

/** Where it goes, in a model that was in the operation still. */
export function placesIn(
  { losses, shared, buffers }: Places,
  { hasLosses, hasOutputs }: Said,
  replicas: number,
  count: number,
): Float32Array[] {
  if (!hasLosses) return [];
  const outputs = hasOutputs ? shared.outputs : [];
  return [asFloats(losses, replicas), ...outputs.map((floats, i) => new Float32Array(buffers!.outputs[i]!, 0, floats * count))];
}
