/**
 * Values of all replicas for a function that each of them calls: by one allGather, in which each leaf is a vector that says its own shape.
 *
 *     tensor: rank, sizes, elements        Float32Array: -1, length, elements        number: -2, number
 */
import * as tfc from '@tensorflow/tfjs-core';
import { mapLeaves } from '../replicas/per-replica.js';

const [ARRAY, NUMBER] = [-1, -2];

export interface Merging {
  readonly replicas: number;
  allGather(values: readonly Float32Array[]): Promise<readonly Float32Array[]>;
  /** Hears of each tensor that is made. */
  made(tensor: tfc.Tensor): void;
}

/** @throws TypeError for what cannot be given to all */
export async function merged<T, R>(merge: (values: readonly T[]) => R | Promise<R>, given: T, merging: Merging): Promise<R> {
  if (typeof merge !== 'function') throw new TypeError('mergeCall takes a function and values, and the first argument is no function');
  const leaves: Float32Array[] = [];
  mapLeaves(given, (leaf, path) => leaves.push(packed(leaf, path)));
  const readers = (await merging.allGather(leaves)).map((values) => new Reader(values, (tensor) => merging.made(tensor)));
  const all = Array.from({ length: merging.replicas }, () => {
    let next = 0;
    return mapLeaves(given, () => readers[next++]!.next()) as T;
  });
  return merge(all);
}

function packed(leaf: unknown, path: string): Float32Array {
  if (typeof leaf === 'number') return Float32Array.of(NUMBER, leaf);
  if (leaf instanceof Float32Array) return joined([ARRAY, leaf.length], leaf);
  if (!(leaf instanceof tfc.Tensor) || leaf.dtype !== 'float32')
    throw new TypeError(`mergeCall takes tensors of float32, Float32Array and numbers, and value${path} is something else`);
  return joined([leaf.rank, ...leaf.shape], leaf.dataSync<'float32'>());
}

function joined(head: readonly number[], values: Float32Array): Float32Array {
  const vector = new Float32Array(head.length + values.length);
  vector.set(head);
  vector.set(values, head.length);
  return vector;
}

/** A leaf of one replica after the other. */
class Reader {
  private at = 0;

  constructor(
    private readonly values: Float32Array,
    private readonly made: (tensor: tfc.Tensor) => void,
  ) {}

  next(): number | Float32Array | tfc.Tensor {
    const kind = this.take(1)[0]!;
    if (kind === NUMBER) return this.take(1)[0]!;
    if (kind === ARRAY) return this.take(this.take(1)[0]!).slice();
    const shape = [...this.take(kind)];
    const tensor = tfc.tensor(this.take(shape.reduce((size, length) => size * length, 1)).slice(), shape, 'float32');
    this.made(tensor);
    return tensor;
  }

  private take(count: number): Float32Array {
    return this.values.subarray(this.at, (this.at += count));
  }
}
