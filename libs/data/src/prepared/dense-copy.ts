/** Copies of finished rows out of the shards in memory: the way that nearly every batch of numbers goes. */
import type { Field } from '../features/field.js';
import type { ShardTable } from './shard-table.js';

/** Up to it a loop (1.8 ns a float) is faster than making a view and copying that (about 60 ns a row). */
const LOOP_FLOATS = 32;

/** Where each of the rows lies, looked up once for all fields of a batch. */
export class RowPlaces {
  private shards = new Int32Array(0);
  private rows = new Float64Array(0);

  /** @returns whether all of the rows are in memory */
  locate(table: ShardTable, indices: Int32Array, from: number, to: number): boolean {
    const count = to - from;
    if (this.shards.length < count) {
      this.shards = new Int32Array(count);
      this.rows = new Float64Array(count);
    }
    const { shards, rows } = this;
    const { starts, resident } = table;
    let isAll = true;
    for (let i = 0; i < count; i++) {
      const index = indices[from + i]!;
      const shard = table.shardOf(index);
      shards[i] = shard;
      rows[i] = index - starts[shard]!;
      if (resident[shard] === undefined) isAll = false;
    }
    return isAll;
  }

  /** A row per example. @param dense number of the field among those that are finished ahead */
  copy(table: ShardTable, dense: number, width: number, count: number, into: Float32Array): void {
    const { shards, rows } = this;
    const blocks = table.resident.map((shard) => shard?.rows[dense]);
    if (width > LOOP_FLOATS) {
      for (let i = 0; i < count; i++) {
        const read = rows[i]! * width;
        into.set(blocks[shards[i]!]!.subarray(read, read + width), i * width);
      }
      return;
    }
    let at = 0;
    for (let i = 0; i < count; i++) {
      const floats = blocks[shards[i]!]!;
      const end = (rows[i]! + 1) * width;
      for (let read = end - width; read < end; read++) into[at++] = floats[read]!;
    }
  }
}

/** Several rows per example; those that follow each other in a shard are one copy. */
export function copyWindows(
  table: ShardTable,
  dense: number,
  { rowWidth, rows }: Field,
  indices: Int32Array,
  from: number,
  to: number,
  into: Float32Array,
): void {
  let at = 0;
  for (let i = from; i < to; i++) {
    let row = indices[i]! + rows.first;
    for (let left = rows.count; left > 0;) {
      const shard = table.shardOf(row);
      const floats = table.resident[shard]!.rows[dense]!;
      const taken = rows.step === 1 ? Math.min(left, table.starts[shard + 1]! - row) : 1;
      const length = taken * rowWidth;
      const read = (row - table.starts[shard]!) * rowWidth;
      if (length <= LOOP_FLOATS) for (let k = 0; k < length; k++) into[at + k] = floats[read + k]!;
      else into.set(floats.subarray(read, read + length), at);
      at += length;
      row += taken * rows.step;
      left -= taken;
    }
  }
}

/**
 * Rows of which only some are in memory: copies those.
 * @returns places in `rows` of the others
 */
export function copyWhatIsThere(table: ShardTable, dense: number, width: number, rows: Float64Array, into: Float32Array): number[] {
  const others: number[] = [];
  for (let i = 0; i < rows.length; i++) {
    const shard = table.shardOf(rows[i]!);
    const floats = table.resident[shard]?.rows[dense];
    const read = (rows[i]! - table.starts[shard]!) * width;
    if (floats) into.set(floats.subarray(read, read + width), i * width);
    else others.push(i);
  }
  return others;
}
