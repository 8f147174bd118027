/** Functions of modules that a coordinator gives to its workers: what travels, serialized by V8, and what a worker and its function thread say. */
import { deserialize, serialize } from 'node:v8';
import type { Encoded } from '../replicas/per-replica.js';
import type { NamedFunction } from '../replicas/replica-function.js';

/** An argument of a function: plain data, a model whose parameters the servers have, or the worker's own dataset. */
export type Argument =
  | { readonly kind: 'data'; readonly value: Encoded }
  | { readonly kind: 'model'; readonly model: number; readonly rate: number }
  | { readonly kind: 'dataset'; readonly dataset: DatasetSource };

/** What makes a worker's dataset, once in its life. */
export interface DatasetSource extends NamedFunction {
  readonly id: number;
  readonly args: readonly Encoded[];
}

export interface FunctionCall extends NamedFunction {
  readonly workerIndex: number;
  readonly numWorkers: number;
  readonly args: readonly Argument[];
}

export interface ServedVariable {
  readonly path: string;
  readonly shape: readonly number[];
  readonly offset: number;
  readonly length: number;
  readonly isTrained: boolean;
}

export interface ServedValues {
  readonly variables: readonly ServedVariable[];
  readonly values: Float32Array;
}

/** To the function thread: a call, or what it has asked for. */
export type ToFunctions =
  | { readonly kind: 'call'; readonly call: FunctionCall }
  | { readonly kind: 'read'; readonly id: number; readonly served: ServedValues }
  | { readonly kind: 'done'; readonly id: number }
  | { readonly kind: 'refused'; readonly id: number; readonly code: string; readonly message: string };

/** Messages of the function thread: the end of the call, or what its function asks the servers for meanwhile. */
export type FromFunctions =
  | { readonly kind: 'result'; readonly value: Encoded }
  | { readonly kind: 'failed'; readonly code: string; readonly message: string }
  | { readonly kind: 'read'; readonly id: number; readonly model: number }
  | { readonly kind: 'push'; readonly id: number; readonly model: number; readonly rate: number; readonly gradient: Float32Array };

export const packed = (value: unknown): Uint8Array => serialize(value);
export const unpacked = <T>(bytes: Uint8Array | undefined): T => deserialize(bytes ?? new Uint8Array(0)) as T;
