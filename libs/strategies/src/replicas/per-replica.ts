/** Values that differ between replicas, and the structures of arrays and objects that hold them, as tf.nest has them. */
import * as tfc from '@tensorflow/tfjs-core';

/** One value for each replica of this process, in the order of the replicas. */
export class PerReplica<T = unknown> {
  constructor(readonly values: readonly T[]) {}
}

/** Which replica a value is made for. tf.distribute.experimental.ValueContext. */
export interface ValueContext {
  /** From 0, over all processes. */
  readonly replicaIdInSyncGroup: number;
  readonly numReplicasInSync: number;
}

/** A tensor of one replica. */
export interface ReplicaArray {
  readonly shape: number[];
  readonly values: Float32Array;
}

/** How values of replicas become one: tf.distribute.ReduceOp. */
export const ReduceOp = { SUM: 'sum', MEAN: 'mean' } as const;
export type ReduceOp = (typeof ReduceOp)[keyof typeof ReduceOp];

export const isReduceOp = (value: unknown): value is ReduceOp => value === 'sum' || value === 'mean';

/** An object that is no instance of a class. */
const isPlain = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && [Object.prototype, null].includes(Object.getPrototypeOf(value) as object | null);

/** The same structure, with each leaf replaced. What is neither an array nor a plain object is a leaf. */
export function mapLeaves(value: unknown, of: (leaf: unknown, path: string) => unknown, path = ''): unknown {
  if (Array.isArray(value)) return value.map((item, i) => mapLeaves(item, of, `${path}[${i}]`));
  if (!isPlain(value)) return of(value, path);
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, mapLeaves(item, of, `${path}.${key}`)]));
}

/** Plain data of a structure, to be posted to a thread: a tensor is its values. */
export type Encoded =
  | { readonly kind: 'tensor'; readonly dtype: tfc.DataType; readonly shape: number[]; readonly values: unknown; readonly isCommon?: true }
  | { readonly kind: 'list'; readonly items: readonly Encoded[] }
  | { readonly kind: 'object'; readonly entries: readonly (readonly [string, Encoded])[] }
  | { readonly kind: 'value'; readonly value: unknown; readonly isCommon?: true };

/** Whether a replica has a value of its own somewhere in it. */
export function hasPerReplica(value: unknown): boolean {
  let found = false;
  mapLeaves(value, (leaf) => (found ||= leaf instanceof PerReplica));
  return found;
}

/** Numbers in shared memory, which all threads read: they are copied once, however many replicas get them. */
export function inCommon(encoded: Encoded): Encoded {
  switch (encoded.kind) {
    case 'list':
      return { kind: 'list', items: encoded.items.map(inCommon) };
    case 'object':
      return { kind: 'object', entries: encoded.entries.map(([key, item]) => [key, inCommon(item)] as const) };
    case 'tensor':
      return isNumbers(encoded.values)
        ? Object.assign({}, encoded, { values: sharedCopy(encoded.values), isCommon: true as const })
        : encoded;
    case 'value':
      return isNumbers(encoded.value) ? { kind: 'value', value: sharedCopy(encoded.value), isCommon: true } : encoded;
  }
}

/** Not what lies in shared memory already: its owner means it to be shared. */
const isNumbers = (value: unknown): value is Float32Array =>
  ArrayBuffer.isView(value) && !(value instanceof DataView) && !(value.buffer instanceof SharedArrayBuffer) && !Buffer.isBuffer(value);

function sharedCopy(values: Float32Array): Float32Array {
  const memory = new SharedArrayBuffer(values.byteLength);
  const copy = new (values.constructor as Float32ArrayConstructor)(memory, 0, values.length);
  copy.set(values);
  return copy as unknown as Float32Array;
}

/** A part of a larger buffer is copied: posting it would copy all of it. */
function standalone(values: ArrayBufferView): unknown {
  const array = values as Float32Array;
  const isPart = array.byteLength !== array.buffer.byteLength && !(array.buffer instanceof SharedArrayBuffer);
  return isPart && !(values instanceof DataView) ? array.slice() : values;
}

/**
 * @param pick what a leaf stands for, such as a replica's own value
 * @throws TypeError for what cannot be sent to a thread
 */
export function encode(value: unknown, pick: (leaf: unknown) => unknown = (leaf) => leaf, path = ''): Encoded {
  if (value instanceof PerReplica) return encode(pick(value), pick, path);
  if (value instanceof tfc.Tensor) {
    if (value.dtype === 'complex64') throw new TypeError(`${path}: tensors of complex64 cannot be sent`);
    const values = value.dataSync() as unknown as ArrayBufferView | string[];
    return { kind: 'tensor', dtype: value.dtype, shape: value.shape, values: Array.isArray(values) ? values : standalone(values) };
  }
  if (Array.isArray(value)) return { kind: 'list', items: value.map((item, i) => encode(item, pick, `${path}[${i}]`)) };
  if (isPlain(value))
    return { kind: 'object', entries: Object.entries(value).map(([key, item]) => [key, encode(item, pick, `${path}.${key}`)]) };
  if (ArrayBuffer.isView(value)) return { kind: 'value', value: standalone(value) };
  if (typeof value === 'function' || typeof value === 'symbol' || (typeof value === 'object' && value !== null && !isSent(value)))
    throw new TypeError(
      `${path}: ${typeof value === 'object' ? `an object of the class ${(value.constructor as { name?: string } | undefined)?.name ?? '?'}` : `a ${typeof value}`} cannot be sent to a thread: send tensors, typed arrays, numbers, texts, and arrays and plain objects of these`,
    );
  return { kind: 'value', value };
}

const isSent = (value: object): boolean => value instanceof SharedArrayBuffer || value instanceof ArrayBuffer || value instanceof Date;

/** @param made hears of each tensor that is made */
export function decode(encoded: Encoded, made: (tensor: tfc.Tensor) => void = () => undefined): unknown {
  switch (encoded.kind) {
    case 'list':
      return encoded.items.map((item) => decode(item, made));
    case 'object':
      return Object.fromEntries(encoded.entries.map(([key, item]) => [key, decode(item, made)]));
    case 'tensor': {
      const tensor = tfc.tensor(own(encoded.values, encoded.isCommon), encoded.shape, encoded.dtype);
      made(tensor);
      return tensor;
    }
    case 'value':
      return own(encoded.value, encoded.isCommon);
  }
}

/** A replica may write to what it is given. */
const own = (values: unknown, isCommon: true | undefined): Float32Array =>
  (isCommon ? (values as Float32Array).slice() : values) as Float32Array;

/** What the replicas gave back, as one structure with values per replica in its leaves. Where structures differ, that is a leaf. */
export function joined(results: readonly Encoded[]): unknown {
  const [first] = results;
  if (first?.kind === 'object' && results.every((each) => each.kind === 'object' && keysOf(each) === keysOf(first)))
    return Object.fromEntries(first.entries.map(([key], i) => [key, joined(results.map((each) => (each as typeof first).entries[i]![1]))]));
  if (first?.kind === 'list' && results.every((each) => each.kind === 'list' && each.items.length === first.items.length))
    return first.items.map((_, i) => joined(results.map((each) => (each as typeof first).items[i]!)));
  const values = results.map((each) => decode(each));
  return values.every((value) => value === undefined) ? undefined : new PerReplica(values);
}

const keysOf = ({ entries }: Extract<Encoded, { kind: 'object' }>): string => JSON.stringify(entries.map(([key]) => key));
