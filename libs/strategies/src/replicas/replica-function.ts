/** Functions that run in replicas: what a program names, and what the function gets. */
import type * as tfc from '@tensorflow/tfjs-core';
import { ArgumentError, FunctionError } from '../errors.js';
import type { ReduceOp } from './per-replica.js';

/**
 * A function that a module exports. A compute thread imports the module and calls the function with a ReplicaContext and the arguments of `run`;
 * it may be asynchronous. A closure cannot be taken instead: it has variables of this thread, which others do not see.
 */
export interface ReplicaFunction {
  /** `new URL('./step.mjs', import.meta.url)` */
  readonly module: URL | string;
  readonly name: string;
}

/** Its address and name, as text. */
export interface NamedFunction {
  readonly module: string;
  readonly name: string;
}

/** What a function knows of the replica that it runs in. tf.distribute.ReplicaContext. */
export interface ReplicaContext {
  /** From 0. */
  readonly replicaIdInSyncGroup: number;
  readonly numReplicasInSync: number;
  /** The tf.js of the compute thread (tfjs-core), on its wasm backend, with the kernels of Paceline. */
  readonly tf: typeof tfc;
  /** What this replica keeps between calls: variables and optimizers, say. It lives as long as the strategy. */
  readonly state: Record<string, unknown>;
  /**
   * Adds values of all replicas up, or takes their mean, in float32 and in one order. All replicas have to make the same calls.
   * The names in objects may differ, as those of variables do. Tensors of the result are disposed when the function ends.
   * @param values float32 tensors, Float32Array or numbers, and arrays and plain objects of these, of the same shapes in all replicas
   */
  allReduce<T>(op: ReduceOp, values: T): Promise<T>;
  /**
   * Joins values of all replicas along an axis, in the order of the replicas; they may differ in length along it. All replicas have to make the same calls. It takes two
   * sums over the replicas, the second one as long as all values together. Tensors of the result are disposed when the function ends.
   * @param values float32 tensors or Float32Array, and arrays and plain objects of these
   * @param axis 0 by default; negative from the last one
   */
  allGather<T>(values: T, axis?: number): Promise<T>;
  /**
   * Calls `merge` in every replica with the values of all, in the order of the replicas, and gives what it returns: the same in all replicas, if it depends on these
   * values alone. tf.distribute.ReplicaContext.merge_call. All replicas have to make the same calls. Tensors that `merge` gets are disposed when the function ends.
   * @param values float32 tensors, Float32Array or numbers, and arrays and plain objects of these; shapes may differ from replica to replica
   */
  mergeCall<T, R>(merge: (values: readonly T[]) => R | Promise<R>, values: T): Promise<R>;
}

/** @throws FunctionError for a closure, ArgumentError for what names no module */
export function functionOf(fn: unknown): NamedFunction {
  if (typeof fn === 'function')
    throw new FunctionError(
      `run cannot send ${fn.name === '' ? 'a function' : `the function ${fn.name}`} to a compute thread, as its variables are of this one: export it from a module, and give { module: new URL('./step.mjs', import.meta.url), name: '${fn.name === '' ? 'step' : fn.name}' }`,
    );
  const { module, name } = (fn ?? {}) as Record<string, unknown>;
  const text = module instanceof URL ? module.href : module;
  if (typeof name !== 'string' || typeof text !== 'string' || !/^(file|data):/.test(text))
    throw new ArgumentError(
      "run takes { module, name }: the address of a module, such as new URL('./step.mjs', import.meta.url), and the name of a function that it exports",
    );
  return { module: text, name };
}
