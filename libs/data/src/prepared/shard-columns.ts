/**
 * Columns of a shard as typed arrays: of all its rows when its bytes are at hand, or of some rows by positioned reads. Bytes are copied out
 * of the file, so that elements are aligned and the file can go.
 */
import type { DatasetShard } from '@paceline/spec';
import type { FixedCells } from '../features/cells.js';
import { offsetsOf, ShardInvalid, type ShardColumn, type ShardLayout } from './shard-layout.js';
import type { ShardSource } from './shard-source.js';

/** Values of a column. Without offsets every row has `size` of them; with offsets row i has [offsets[i], offsets[i + 1]). */
export interface ColumnValues {
  readonly values: FixedCells;
  readonly size: number;
  readonly offsets: Float64Array | undefined;
}

const BYTES = { F32: 4, I32: 4, U8: 1 } as const;

function typed(dtype: ShardColumn['dtype'], bytes: ArrayBuffer): FixedCells {
  if (dtype === 'F32') return new Float32Array(bytes);
  return dtype === 'I32' ? new Int32Array(bytes) : new Uint8Array(bytes);
}

const copied = (bytes: Uint8Array, from: number, to: number): ArrayBuffer =>
  bytes.buffer.slice(bytes.byteOffset + from, bytes.byteOffset + to) as ArrayBuffer;

/** @throws ShardInvalid */
export function columnOf(name: string, layout: ShardLayout, shard: DatasetShard, file: Uint8Array): ColumnValues {
  const { dtype, size, from, to, offsetsFrom } = layout.get(name)!;
  const values = typed(dtype, copied(file, from, to));
  if (offsetsFrom === undefined) return { values, size, offsets: undefined };
  const total = (to - from) / (size * BYTES[dtype]);
  const offsets = offsetsOf(name, file.subarray(offsetsFrom, offsetsFrom + 8 * (shard.rows + 1)), total, true);
  return { values, size, offsets: size === 1 ? offsets : offsets.map((offset) => offset * size) };
}

/** Neighbours closer than this are read at once. */
const GAP_BYTES = 16 << 10;
const READS_AT_ONCE = 8;

interface Range {
  readonly from: number;
  readonly to: number;
}

/**
 * The column of some rows of the shard, by positioned reads; row i of the result is `rows[i]`.
 * @throws DatasetError, ShardInvalid
 */
export async function rowsOfColumn(
  name: string,
  layout: ShardLayout,
  shard: DatasetShard,
  source: ShardSource,
  rows: readonly number[],
): Promise<ColumnValues> {
  const { dtype, size, from, to, offsetsFrom } = layout.get(name)!;
  const elementBytes = size * BYTES[dtype];
  if (offsetsFrom === undefined) {
    const pieces = await readRanges(
      source,
      shard,
      rows.map((row) => ({ from: from + row * elementBytes, to: from + (row + 1) * elementBytes })),
    );
    return { values: typed(dtype, joined(pieces)), size, offsets: undefined };
  }
  const bounds = await readRanges(
    source,
    shard,
    rows.map((row) => ({ from: offsetsFrom + 8 * row, to: offsetsFrom + 8 * (row + 2) })),
  );
  const total = (to - from) / elementBytes;
  const ranges = bounds.map((bytes): Range => {
    const [first, last] = offsetsOf(name, bytes, total, false) as unknown as [number, number];
    return { from: from + first * elementBytes, to: from + last * elementBytes };
  });
  const pieces = await readRanges(source, shard, ranges);
  const offsets = new Float64Array(rows.length + 1);
  for (const [i, piece] of pieces.entries()) offsets[i + 1] = offsets[i]! + piece.length / BYTES[dtype];
  return { values: typed(dtype, joined(pieces)), size, offsets };
}

function joined(pieces: readonly Uint8Array[]): ArrayBuffer {
  const all = new Uint8Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all.buffer;
}

/** Each range as bytes, in the order asked for; close ones share a read. */
async function readRanges(source: ShardSource, shard: DatasetShard, ranges: readonly Range[]): Promise<Uint8Array[]> {
  const order = ranges.map((_, i) => i).sort((a, b) => ranges[a]!.from - ranges[b]!.from);
  const reads: { from: number; to: number; members: number[] }[] = [];
  for (const i of order) {
    const { from, to } = ranges[i]!;
    const last = reads.at(-1);
    if (last && from - last.to <= GAP_BYTES) {
      last.to = Math.max(last.to, to);
      last.members.push(i);
    } else reads.push({ from, to, members: [i] });
  }
  const found = new Array<Uint8Array>(ranges.length);
  let next = 0;
  const reader = async (): Promise<void> => {
    for (let read = reads[next++]; read; read = reads[next++]) {
      const bytes = read.to > read.from ? await source.range(shard, read.from, read.to) : new Uint8Array(0);
      for (const i of read.members) found[i] = bytes.subarray(ranges[i]!.from - read.from, ranges[i]!.to - read.from);
    }
  };
  await Promise.all(Array.from({ length: Math.min(READS_AT_ONCE, reads.length) }, reader));
  return found;
}

const START_BYTES = 64 << 10;

/** The first bytes of a shard, with its header. @throws DatasetError, ShardInvalid */
export async function startOf(source: ShardSource, shard: DatasetShard): Promise<Uint8Array> {
  const start = await source.range(shard, 0, Math.min(START_BYTES, shard.bytes));
  if (start.length < 8) throw new ShardInvalid('it ends within its first 8 bytes');
  const claimed = new DataView(start.buffer, start.byteOffset).getBigUint64(0, true);
  const needed = 8n + claimed;
  if (needed <= BigInt(start.length) || needed > BigInt(shard.bytes)) return start;
  return source.range(shard, 0, Number(needed));
}
