/** `reduce` and `gather` of a strategy: values of all replicas become one, on the program's own backend. */
import { split } from '@paceline/learning';
import * as tfc from '@tensorflow/tfjs-core';
import { ArgumentError } from '../errors.js';
import { isReduceOp, mapLeaves, PerReplica, type ReduceOp, type ReplicaArray } from './per-replica.js';

/** Gives values of the replicas of this process to all processes, and gets those of all. */
export type Share = (what: string, values: readonly ReplicaArray[]) => readonly ReplicaArray[];

/** The replicas whose values are combined. */
interface Combined {
  /** Number of replicas in all processes. */
  readonly replicas: number;
  /** With other processes. */
  readonly share: Share | undefined;
}

/** @param act in words, for all processes to compare */
function tensorsOf(leaf: unknown, path: string, { share }: Combined, act: string): tfc.Tensor[] {
  const own = ownTensorsOf(leaf, path);
  if (!share) return own;
  if (!(leaf instanceof PerReplica))
    throw new ArgumentError(`value${path}: over several processes values of replicas are combined, and this one is no PerReplica`);
  const arrays = own.map((tensor) => {
    if (tensor.dtype === 'float32') return { shape: tensor.shape, values: Float32Array.from(tensor.dataSync<'float32'>()) };
    throw new ArgumentError(`value${path}: over several processes tensors of float32 can be combined, and this one has ${tensor.dtype}`);
  });
  return share(`${act} of value${path} of replicas`, arrays).map(({ shape, values }) => tfc.tensor(values, shape));
}

function ownTensorsOf(leaf: unknown, path: string): tfc.Tensor[] {
  const values = leaf instanceof PerReplica ? leaf.values : [leaf];
  return values.map((value) => {
    if (value instanceof tfc.Tensor) return value;
    if (typeof value === 'number') return tfc.scalar(value);
    if (value instanceof Float32Array) return tfc.tensor1d(value);
    throw new ArgumentError(`value${path}: replicas have a ${typeof value}, and tensors, Float32Array or numbers can be combined`);
  });
}

/** In the order of the reduction tree, so that the bits are those of `allReduce`. */
function sum(values: readonly tfc.Tensor[], lo = 0, hi = values.length): tfc.Tensor {
  if (hi - lo === 1) return values[lo]!;
  const middle = split(lo, hi);
  return tfc.add(sum(values, lo, middle), sum(values, middle, hi));
}

function axisOf(axis: number, rank: number, path: string): number {
  const at = axis < 0 ? axis + rank : axis;
  if (Number.isInteger(at) && at >= 0 && at < rank) return at;
  throw new ArgumentError(`value${path}: the axis ${axis} does not exist in values with ${rank} dimensions`);
}

/**
 * @param axis of each value that is reduced too; with `null` only the values of the replicas are added up. The mean is over all elements then, however many each replica has.
 */
export function reduce(op: ReduceOp, value: unknown, axis: number | null, combined: Combined): unknown {
  if (!isReduceOp(op)) throw new ArgumentError(`reduce takes ReduceOp.SUM or ReduceOp.MEAN, not ${String(op)}`);
  return mapLeaves(value, (leaf, path) =>
    tfc.tidy(() => {
      // As in tf.distribute, which takes the mean of a value that all replicas have in common, and refuses its sum.
      if (op === 'sum' && combined.replicas > 1 && !(leaf instanceof PerReplica))
        throw new ArgumentError(
          `value${path}: ${combined.replicas} replicas have this value in common, and what its sum would be is not clear: take ReduceOp.MEAN, or make a PerReplica`,
        );
      const tensors = tensorsOf(leaf, path, combined, `the ${op}${axis === null ? '' : ` along axis ${axis}`}`);
      if (axis !== null) {
        const places = tensors.map(({ rank }) => axisOf(axis, rank, path));
        const total = sum(tensors.map((tensor, i) => tfc.sum(tensor, places[i])));
        const count = tensors.reduce((elements, { shape }, i) => elements + shape[places[i]!]!, 0);
        return op === 'mean' ? tfc.div(total, count) : total.clone();
      }
      const shapes = new Set(tensors.map(({ shape }) => shape.join()));
      if (shapes.size > 1)
        throw new ArgumentError(`value${path}: replicas have values of the shapes [${[...shapes].join('] and [')}]: give an axis`);
      const total = sum(tensors);
      return op === 'mean' ? tfc.div(total, tensors.length) : total.clone();
    }),
  );
}

/** Joins the values of the replicas along an axis. */
export const gather = (value: unknown, axis: number, combined: Combined): unknown =>
  mapLeaves(value, (leaf, path) =>
    tfc.tidy(() => {
      const tensors = tensorsOf(leaf, path, combined, `gather along axis ${axis}`);
      const [{ rank }] = tensors as [tfc.Tensor];
      if (rank === 0) throw new ArgumentError(`value${path}: numbers have no axis to be joined along: use localResults`);
      return tfc.concat(tensors, axisOf(axis, rank, path));
    }),
  );
