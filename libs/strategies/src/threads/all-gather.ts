/**
 * Values of all replicas, joined along an axis, by two sums over the replicas: first of the lengths along the axis, then of vectors in which each
 * replica fills its own place and has −0 everywhere else. x + (−0) is x for every number, −0 too (IEEE 754), so numbers keep their bits.
 */
import { crc32 } from 'node:zlib';
import * as tfc from '@tensorflow/tfjs-core';
import { mapLeaves } from '../replicas/per-replica.js';

export interface Gathering {
  readonly replica: number;
  readonly replicas: number;
  /** Over all replicas. @param form differs where replicas make different calls */
  sum(values: Float32Array, form: number): Promise<Float32Array>;
  /** Hears of each tensor that is made. */
  made(tensor: tfc.Tensor): void;
}

interface Leaf {
  readonly shape: readonly number[];
  readonly axis: number;
  readonly values: Float32Array;
  readonly isTensor: boolean;
  readonly path: string;
}

/** Lengths are summed as float32. */
const LONGEST = 2 ** 24;

const sizeOf = (shape: readonly number[]): number => shape.reduce((product, size) => product * size, 1);

function leafOf(given: unknown, path: string, axis: number): Leaf {
  const isTensor = given instanceof tfc.Tensor;
  if (!(isTensor && given.dtype === 'float32') && !(given instanceof Float32Array))
    throw new TypeError(`allGather joins tensors of float32 and Float32Array, and value${path} is something else`);
  const shape = isTensor ? given.shape : [given.length];
  const at = axis < 0 ? axis + shape.length : axis;
  if (!Number.isInteger(at) || at < 0 || at >= shape.length)
    throw new RangeError(`allGather: value${path} has ${shape.length} dimensions, and so no axis ${axis}`);
  if (shape[at]! > LONGEST) throw new RangeError(`allGather: value${path} is longer than ${LONGEST} along the axis: take several calls`);
  return { shape, axis: at, values: isTensor ? given.dataSync<'float32'>() : given.slice(), isTensor, path };
}

/** @throws TypeError, RangeError for what cannot be joined */
export async function gathered<T>(given: T, axis: number, { replica, replicas, sum, made }: Gathering): Promise<T> {
  const leaves: Leaf[] = [];
  mapLeaves(given, (leaf, path) => leaves.push(leafOf(leaf, path, axis)));
  const own = new Float32Array(replicas * leaves.length);
  for (const [i, leaf] of leaves.entries()) own[i * replicas + replica] = leaf.shape[leaf.axis]!;
  const form = JSON.stringify(
    leaves.map(({ shape, axis: at, isTensor, path }) => [path, at, isTensor, shape.map((size, i) => (i === at ? 0 : size))]),
  );
  const all = await sum(own, crc32(form) | 0);
  const lengths = leaves.map((_, i) => all.subarray(i * replicas, (i + 1) * replicas));
  const joined = await sum(spread(leaves, lengths, replica), crc32(`values of ${form}`) | 0);
  let at = 0;
  let next = 0;
  return mapLeaves(given, () => {
    const leaf = leaves[next]!;
    const { values, shape } = along(leaf, lengths[next++]!, joined.subarray(at));
    at += values.length;
    if (!leaf.isTensor) return values;
    const tensor = tfc.tensor(values, shape, 'float32');
    made(tensor);
    return tensor;
  }) as T;
}

/** Leaf by leaf, replica by replica: the values of this one in their places. */
function spread(leaves: readonly Leaf[], lengths: readonly Float32Array[], replica: number): Float32Array {
  const rests = leaves.map(({ shape, axis }) => sizeOf(shape.filter((_, i) => i !== axis)));
  const total = (i: number, until: number): number => rests[i]! * lengths[i]!.subarray(0, until).reduce((sum, length) => sum + length, 0);
  const vector = new Float32Array(leaves.reduce((sum, _, i) => sum + total(i, lengths[i]!.length), 0)).fill(-0);
  let from = 0;
  for (const [i, { values }] of leaves.entries()) {
    vector.set(values, from + total(i, replica));
    from += total(i, lengths[i]!.length);
  }
  return vector;
}

/** What lies replica by replica, along the axis. */
function along({ shape, axis }: Leaf, lengths: Float32Array, given: Float32Array): { values: Float32Array; shape: number[] } {
  const [outer, inner] = [sizeOf(shape.slice(0, axis)), sizeOf(shape.slice(axis + 1))];
  const length = lengths.reduce((sum, each) => sum + each, 0);
  const values = new Float32Array(outer * length * inner);
  let [from, before] = [0, 0];
  for (const own of lengths) {
    const block = own * inner;
    for (let i = 0; i < outer; i++) values.set(given.subarray(from + i * block, from + (i + 1) * block), (i * length + before) * inner);
    from += outer * block;
    before += own;
  }
  return { values, shape: shape.map((size, i) => (i === axis ? length : size)) };
}
