/**
 * Rows of tables in frames, and their sums (docs/protocol.md §9.8).
 *
 *   request     worker to server   u32 count | distances
 *   values      server to worker   the rows in the order of the request, float32
 *   gradient    worker to server   u32 count | distances | zeros up to a multiple of 4 | the rows in order, float32
 *
 * Rows are ascending, counted from the first one of the group. A distance is the number of rows left out before a row, as LEB128.
 */
import type { Arena } from '@paceline/kernels';
import { ProtocolError } from '@paceline/protocol';
import { bytesOf, Region } from '../attempt/regions.js';

const COUNT_BYTES = 4;
const MOST_DIGITS = 4;

/** Rows of a table: which ones, ascending, and their elements. */
export interface Rows {
  readonly ids: Uint32Array;
  readonly values: Float32Array;
}

const digitsOf = (distance: number): number => (distance < 1 << 7 ? 1 : distance < 1 << 14 ? 2 : distance < 1 << 21 ? 3 : 4);

/** Bytes of a list of rows. */
export function idBytes(ids: Uint32Array): number {
  let bytes = COUNT_BYTES;
  let next = 0;
  for (const id of ids) {
    bytes += digitsOf(id - next);
    next = id + 1;
  }
  return bytes;
}

/** @returns bytes written */
function writeIds(ids: Uint32Array, to: Uint8Array): number {
  new DataView(to.buffer, to.byteOffset).setUint32(0, ids.length, true);
  let at = COUNT_BYTES;
  let next = 0;
  for (const id of ids) {
    let distance = id - next;
    for (; distance >= 0x80; distance >>>= 7) to[at++] = (distance & 0x7f) | 0x80;
    to[at++] = distance;
    next = id + 1;
  }
  return at;
}

export function encodeIds(ids: Uint32Array): Uint8Array {
  const bytes = new Uint8Array(idBytes(ids));
  writeIds(ids, bytes);
  return bytes;
}

/**
 * @param rows of the group
 * @returns the rows, and where their list ends
 * @throws ProtocolError BAD_PAYLOAD for what no encoder writes
 */
export function decodeIds(from: Uint8Array, rows: number): { ids: Uint32Array; end: number } {
  const bad = (why: string): ProtocolError => new ProtocolError('BAD_PAYLOAD', `rows: ${why}`);
  if (from.length < COUNT_BYTES) throw bad('no count');
  const count = new DataView(from.buffer, from.byteOffset).getUint32(0, true);
  // Each takes a byte at least: no memory for a count that cannot be.
  if (count > rows || count > from.length - COUNT_BYTES) throw bad(`${count} of ${rows} in ${from.length} bytes`);
  const ids = new Uint32Array(count);
  let at = COUNT_BYTES;
  let next = 0;
  for (let i = 0; i < count; i++) {
    let distance = 0;
    for (let digit = 0; ; digit++) {
      const byte = from[at++];
      if (byte === undefined || digit === MOST_DIGITS) throw bad('a distance does not end');
      distance += (byte & 0x7f) * 2 ** (7 * digit);
      if (byte < 0x80) {
        if (byte === 0 && digit > 0) throw bad('a distance has more digits than it needs');
        break;
      }
    }
    const id = next + distance;
    if (id >= rows) throw bad(`row ${id} of ${rows}`);
    ids[i] = id;
    next = id + 1;
  }
  return { ids, end: at };
}

const aligned = (bytes: number): number => Math.ceil(bytes / 4) * 4;

/** The payload of a gradient. */
export function encodeRows({ ids, values }: Rows): Uint8Array {
  const from = aligned(idBytes(ids));
  const bytes = new Uint8Array(from + bytesOf(values.length));
  writeIds(ids, bytes);
  new Float32Array(bytes.buffer, from).set(values);
  return bytes;
}

/** The largest payload of a gradient of so many rows. */
export const mostRowBytes = (rows: number, width: number): number => aligned(COUNT_BYTES + MOST_DIGITS * rows) + rows * bytesOf(width);

/**
 * left + right, as if both were whole tables with +0 where they have no row: a row that only one of them has is added to +0, so −0 becomes +0.
 */
export function addRows(left: Rows, right: Rows, width: number, allocate: (elements: number) => Float32Array): Rows {
  const ids = unionOf(left.ids, right.ids);
  const values = allocate(ids.length * width);
  let [l, r] = [0, 0];
  for (let i = 0; i < ids.length; i++) {
    const id = ids[i]!;
    const [hasLeft, hasRight] = [left.ids[l] === id, right.ids[r] === id];
    const [to, fromLeft, fromRight] = [i * width, l * width, r * width];
    for (let j = 0; j < width; j++)
      values[to + j] = (hasLeft ? left.values[fromLeft + j]! : 0) + (hasRight ? right.values[fromRight + j]! : 0);
    if (hasLeft) l++;
    if (hasRight) r++;
  }
  return { ids, values };
}

function unionOf(left: Uint32Array, right: Uint32Array): Uint32Array {
  const ids = new Uint32Array(left.length + right.length);
  let [l, r, count] = [0, 0, 0];
  while (l < left.length || r < right.length) {
    const [a, b] = [left[l] ?? Infinity, right[r] ?? Infinity];
    ids[count++] = Math.min(a, b);
    if (a <= b) l++;
    if (b <= a) r++;
  }
  return ids.slice(0, count);
}

/** The gradient of some rows, as a tree adds it up: `add` makes the union of both. */
export class RowsRegion extends Region {
  private constructor(
    arena: Arena,
    pointer: number,
    length: number,
    block: number,
    public ids: Uint32Array,
    private readonly width: number,
  ) {
    super(arena, pointer, length, block);
  }

  /**
   * Takes over the region that the payload of a gradient frame has come into.
   * @throws ProtocolError BAD_PAYLOAD; the region is released then
   */
  static of(payload: Region, bytes: number, rows: number, width: number): RowsRegion {
    const { arena, pointer } = payload;
    try {
      const { ids, end } = decodeIds(payload.bytes.subarray(0, bytes), rows);
      const from = aligned(end);
      if (from + ids.length * bytesOf(width) !== bytes) throw new ProtocolError('BAD_PAYLOAD', `${bytes} bytes for ${ids.length} rows`);
      for (let i = end; i < from; i++) if (payload.bytes[i] !== 0) throw new ProtocolError('BAD_PAYLOAD', 'bits behind the last row');
      return new RowsRegion(arena, pointer + from, ids.length * width, pointer, ids, width);
    } catch (error) {
      payload.release();
      throw error;
    }
  }

  override add(from: Region): void {
    const other = from as RowsRegion;
    let pointer = 0;
    const { ids } = addRows({ ids: this.ids, values: this.floats }, { ids: other.ids, values: other.floats }, this.width, (elements) => {
      pointer = this.arena.alloc(Math.max(4, bytesOf(elements)));
      return this.arena.f32(pointer, elements);
    });
    this.ids = ids;
    this.moveTo(pointer, ids.length * this.width);
  }
}
