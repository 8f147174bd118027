/**
 * Elements that were chosen, with where they are: a count, their values, and the distances between them. The values travel as float32 or in fewer bits;
 * dgc, top-k, threshold and, without distances, random-k take it from here.
 *
 *   u32 count | values: f32, bf16, int8 or int4 as `quantize` writes them, or int2 as `toLevels` does | distances of `gather`
 *
 * So few values that their steps would take what their bits save travel as f32.
 */
import { levelBytes, quantizedBytes, type Arena, type Kernels } from '@paceline/kernels';
import type { ValueKind } from '@paceline/spec';
import { codecKey, type Codec } from './codec.js';

const FLOAT_BYTES = 4;
export const COUNT_BYTES = 4;
export const KTH_SCRATCH_BYTES = 16_384;
/** In place of the chunk in a key: rounding must not follow from the numbers that draw the elements. */
const VALUES = -2;

/** Elements that are sent of n: at least one. */
export const countOf = (n: number, density: number): number => Math.max(1, Math.round(n * density));
/** A count, and for each element its four bytes and one to five of distance: as `gather` writes it, before its values become shorter. */
export const mostGathered = (count: number): number => COUNT_BYTES + 9 * count;

/** How so many float32 values in a row travel. */
export interface Values {
  bytes(count: number): number;
  encode(kernels: Kernels, from: number, to: number, count: number, key: number): void;
  /** Whether the bytes are some that `encode` writes. */
  takes(kernels: Kernels, from: number, count: number): boolean;
  decode(kernels: Kernels, from: number, to: number, count: number): void;
}

const bfloats: Values = {
  bytes: (count) => 2 * count,
  encode: (kernels, from, to, count) => kernels.toBfloat(from, to, count),
  takes: () => true,
  decode: (kernels, from, to, count) => kernels.fromBfloat(from, to, count),
};

const whole = (bits: 8 | 4): Values => ({
  bytes: (count) => quantizedBytes(count, bits),
  encode: (kernels, from, to, count, key) => kernels.quantize(from, to, count, bits, codecKey(key, 0, 0, VALUES)),
  takes: (kernels, from, count) => kernels.isQuantized(from, count, bits),
  decode: (kernels, from, to, count) => kernels.dequantize(from, to, count, bits),
});

/** Elements that were chosen for their size are never near 0: a sign and one of two magnitudes say more of them than -1, 0 and 1 would. */
const levels: Values = {
  bytes: levelBytes,
  encode: (kernels, from, to, count) => kernels.toLevels(from, to, count),
  takes: (kernels, from, count) => kernels.isLevels(from, count),
  decode: (kernels, from, to, count) => kernels.fromLevels(from, to, count),
};

const CODED: Readonly<Record<Exclude<ValueKind, 'float32'>, Values>> = { bf16: bfloats, int8: whole(8), int4: whole(4), int2: levels };

/** Undefined where values travel as they are. */
export const valuesOf = (kind: ValueKind = 'float32'): Values | undefined => (kind === 'float32' ? undefined : CODED[kind]);

/** What is shorter than float32 for so many elements; else undefined. */
export const shorter = (values: Values | undefined, count: number): Values | undefined =>
  values && values.bytes(count) < FLOAT_BYTES * count ? values : undefined;

/** Bytes of the values of so many elements. */
export const valueBytes = (values: Values | undefined, count: number): number =>
  shorter(values, count)?.bytes(count) ?? FLOAT_BYTES * count;

/** Whether so many elements can take so many bytes. */
export const isGathered = (values: Values | undefined, count: number, bytes: number): boolean => {
  const least = COUNT_BYTES + valueBytes(values, count) + count;
  return bytes >= least && bytes <= least + 4 * count;
};

/**
 * Writes the `count` elements above a magnitude; `to` has room for `mostGathered`. @param equal of those with just these bits as many
 * @returns the bytes; 0 when the chunk is shorter as it is
 */
export function encodeGathered(
  arena: Arena,
  from: number,
  to: number,
  n: number,
  { count, least, equal, values, key }: { count: number; least: number; equal: number; values: Values | undefined; key: number },
): number {
  const { kernels } = arena;
  const gathered = kernels.gather(from, to, n, count, least, equal);
  const length = gathered - FLOAT_BYTES * count + valueBytes(values, count);
  if (length >= FLOAT_BYTES * n) return 0;
  const coded = shorter(values, count);
  if (!coded) return length;
  const at = to + COUNT_BYTES;
  const size = coded.bytes(count);
  const scratch = arena.alloc(size);
  coded.encode(kernels, at, scratch, count, key);
  const bytes = arena.bytes(at, gathered - COUNT_BYTES);
  bytes.set(arena.bytes(scratch, size));
  bytes.copyWithin(size, FLOAT_BYTES * count);
  arena.free(scratch);
  return length;
}

/** The same for the `count` largest elements. */
export function encodeLargest(
  arena: Arena,
  from: number,
  to: number,
  n: number,
  count: number,
  values: Values | undefined,
  key: number,
): number {
  const scratch = arena.alloc(KTH_SCRATCH_BYTES);
  const least = arena.kernels.kthMagnitude(from, n, count, scratch);
  arena.free(scratch);
  return encodeGathered(arena, from, to, n, { count, least, equal: arena.kernels.equalWanted(), values, key });
}

/** Does something with values as float32: where they came, or in memory that is let go afterwards. */
export function withFloats(arena: Arena, from: number, count: number, values: Values | undefined, act: (floats: number) => void): void {
  const coded = shorter(values, count);
  if (!coded) return act(from);
  const floats = arena.alloc(FLOAT_BYTES * count);
  coded.decode(arena.kernels, from, floats, count);
  act(floats);
  arena.free(floats);
}

/** How many elements a payload sends; undefined where they cannot be so many. */
function countIn(
  arena: Arena,
  from: number,
  bytes: number,
  n: number,
  values: Values | undefined,
  isCount: (count: number, n: number) => boolean,
): number | undefined {
  const count = new DataView(arena.memory.buffer).getUint32(from, true);
  return count <= n && isCount(count, n) && isGathered(values, count, bytes) ? count : undefined;
}

/** Whether the bytes are some that `encodeGathered` writes. */
function takesGathered(
  arena: Arena,
  from: number,
  bytes: number,
  n: number,
  values: Values | undefined,
  isCount: (count: number, n: number) => boolean,
): boolean {
  const { kernels } = arena;
  const count = countIn(arena, from, bytes, n, values, isCount);
  if (count === undefined) return false;
  const size = COUNT_BYTES + valueBytes(values, count);
  const coded = shorter(values, count);
  return (!coded || coded.takes(kernels, from + COUNT_BYTES, count)) && kernels.arePlaces(from + size, bytes - size, count, n);
}

/** @returns false when the bytes are none that `encodeGathered` writes */
function decodeGathered(
  arena: Arena,
  from: number,
  bytes: number,
  to: number,
  n: number,
  values: Values | undefined,
  isCount: (count: number, n: number) => boolean,
): boolean {
  const { kernels } = arena;
  const count = countIn(arena, from, bytes, n, values, isCount);
  if (count === undefined) return false;
  const coded = shorter(values, count);
  if (!coded) return kernels.scatter(from, bytes, to, n);
  if (!coded.takes(kernels, from + COUNT_BYTES, count)) return false;
  const size = coded.bytes(count);
  const wideBytes = bytes - size + FLOAT_BYTES * count;
  const wide = arena.alloc(wideBytes);
  const whole = arena.bytes(wide, wideBytes);
  whole.set(arena.bytes(from, COUNT_BYTES));
  whole.set(arena.bytes(from + COUNT_BYTES + size, bytes - COUNT_BYTES - size), COUNT_BYTES + FLOAT_BYTES * count);
  coded.decode(kernels, from + COUNT_BYTES, wide + COUNT_BYTES, count);
  const isGood = kernels.scatter(wide, wideBytes, to, n);
  arena.free(wide);
  return isGood;
}

/** += what it decodes, of bytes that `takesGathered` has taken. */
function addGathered(arena: Arena, from: number, bytes: number, to: number, n: number, values: Values | undefined): void {
  const { kernels } = arena;
  const count = new DataView(arena.memory.buffer).getUint32(from, true);
  const size = COUNT_BYTES + valueBytes(values, count);
  withFloats(arena, from + COUNT_BYTES, count, values, (floats) => kernels.addScattered(floats, from + size, bytes - size, count, to, n));
}

/** How a codec of gathered elements is decoded. @param isCount of the elements that are sent of n */
export const gatheredDecoding = (
  values: Values | undefined,
  isCount: (count: number, n: number) => boolean,
): Pick<Codec, 'takes' | 'decode' | 'add'> => ({
  takes: (arena, from, bytes, n) => takesGathered(arena, from, bytes, n, values, isCount),
  decode: (arena, from, bytes, to, n) => decodeGathered(arena, from, bytes, to, n, values, isCount),
  add: (arena, from, bytes, to, n) => addGathered(arena, from, bytes, to, n, values),
});
