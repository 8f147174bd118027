/**
 * Examples of a split of a prepared dataset by index. While all that is asked for lies finished in memory, a batch is copied at once;
 * otherwise its shards are fetched as far as the memory goes, the others are read by position, and the fields are encoded row by row.
 */
import type { RowBuffers, RowSplit } from '../contract.js';
import type { CopiedField, Field } from '../features/field.js';
import type { SeriesExamples } from '../series.js';
import { copyWhatIsThere, copyWindows, RowPlaces } from './dense-copy.js';
import { ColumnCells, asNamed } from './resident-shard.js';
import { rowsOfColumn, type ColumnValues } from './shard-columns.js';
import type { ShardTable } from './shard-table.js';
import { nameOfShard } from './shard-source.js';

export interface SplitFields {
  readonly inputs: readonly Field[];
  readonly targets: readonly (Field | CopiedField)[];
  readonly weight: Field | undefined;
}

/** With more of them the whole shard is there as soon: each waits for an answer. */
const READS_AT_FIRST = 16;

export class PreparedSplit implements RowSplit {
  private readonly isAllDense: boolean;
  private readonly places = new RowPlaces();
  /** Requests that a row of a shard takes when it is read by position. */
  private readonly readsOfShard: number;

  constructor(
    readonly count: number,
    private readonly fields: SplitFields,
    private readonly table: ShardTable,
    /** Numbers of the fields that are finished ahead. */
    private readonly dense: ReadonlyMap<Field, number>,
    private readonly span: number,
    /** Undefined: example i begins at row i. */
    private readonly series: SeriesExamples | undefined,
    private readonly vocabularies: ReadonlyMap<string, readonly string[]>,
  ) {
    const { inputs, targets, weight } = fields;
    const all = [...inputs, ...targets, ...(weight ? [weight] : [])];
    this.isAllDense = all.every((field) => field.kind === 'copied' || dense.has(field));
    this.readsOfShard = all.reduce((sum, field) => sum + (field.kind === 'copied' ? 0 : field.columns.length * (field.isFixed ? 1 : 2)), 0);
  }

  gather(indices: Int32Array, from: number, to: number, into: RowBuffers): Promise<void> | void {
    this.check(indices, from, to, into);
    return this.series
      ? this.gatherRows(this.series.rowsOf(indices, from, to), 0, to - from, into)
      : this.gatherRows(indices, from, to, into);
  }

  /** @param indices of the first row of each example */
  private gatherRows(indices: Int32Array, from: number, to: number, into: RowBuffers): Promise<void> | void {
    const isThere =
      this.isAllDense && (this.span === 1 ? this.places.locate(this.table, indices, from, to) : this.areResident(indices, from, to));
    if (!isThere) return this.gatherSlowly(indices.slice(from, to), into);
    this.each(into, (field, floats) => this.copyDense(field, indices, from, to, floats));
    this.copyTargets(to - from, into);
  }

  private async gatherSlowly(indices: Int32Array, into: RowBuffers): Promise<void> {
    const shards = this.shardsOf(indices, 0, indices.length);
    // From afar a batch in random order would wait for as many whole shards as it has rows.
    if (this.table.source.isFar === true && this.readsOfShard <= READS_AT_FIRST) this.table.begin(shards);
    else await this.table.load(shards);
    const waits: Promise<void>[] = [];
    this.each(into, (field, floats) => waits.push(this.encode(field, indices, floats)));
    const settled = await Promise.allSettled(waits);
    const failed = settled.find((each) => each.status === 'rejected');
    if (failed) throw failed.reason;
    this.copyTargets(indices.length, into);
  }

  private each(into: RowBuffers, write: (field: Field, floats: Float32Array) => void): void {
    const { inputs, targets, weight } = this.fields;
    for (const [i, field] of inputs.entries()) write(field, into.inputs[i]!);
    for (const [i, field] of targets.entries()) if (field.kind === 'encoded') write(field, into.targets[i]!);
    if (weight) write(weight, into.weights!);
  }

  private copyTargets(examples: number, into: RowBuffers): void {
    for (const [i, field] of this.fields.targets.entries()) {
      if (field.kind !== 'copied') continue;
      const length = examples * floatsOf(this.fields.inputs[field.input]!);
      into.targets[i]!.set(into.inputs[field.input]!.subarray(0, length));
    }
  }

  private areResident(indices: Int32Array, from: number, to: number): boolean {
    for (const shard of this.shardsOf(indices, from, to)) if (!this.table.resident[shard]) return false;
    return true;
  }

  private shardsOf(indices: Int32Array, from: number, to: number): Set<number> {
    const shards = new Set<number>();
    const { table, span } = this;
    if (table.shards.length === 1) return shards.add(0);
    for (let i = from; i < to; i++) {
      const first = table.shardOf(indices[i]!);
      shards.add(first);
      if (span === 1) continue;
      const last = table.shardOf(indices[i]! + span - 1);
      for (let shard = first + 1; shard <= last; shard++) shards.add(shard);
    }
    return shards;
  }

  private copyDense(field: Field, indices: Int32Array, from: number, to: number, into: Float32Array): void {
    const dense = this.dense.get(field)!;
    if (this.span === 1) this.places.copy(this.table, dense, field.rowWidth, to - from, into);
    else copyWindows(this.table, dense, field, indices, from, to, into);
  }

  /** From finished rows as far as they are there, and from the cells of exactly the others. */
  private async encode(field: Field, indices: Int32Array, into: Float32Array): Promise<void> {
    const { first, step, count } = field.rows;
    const rows = new Float64Array(indices.length * count);
    for (let i = 0, at = 0; i < indices.length; i++) for (let k = 0; k < count; k++) rows[at++] = indices[i]! + first + k * step;
    const dense = this.dense.get(field);
    if (dense === undefined) return this.encodeRows(field, rows, into);
    const others = copyWhatIsThere(this.table, dense, field.rowWidth, rows, into);
    if (others.length === 0) return;
    const floats = new Float32Array(others.length * field.rowWidth);
    await this.encodeRows(
      field,
      Float64Array.from(others, (i) => rows[i]!),
      floats,
    );
    for (const [from, i] of others.entries())
      into.set(floats.subarray(from * field.rowWidth, (from + 1) * field.rowWidth), i * field.rowWidth);
  }

  private async encodeRows(field: Field, rows: Float64Array, into: Float32Array): Promise<void> {
    const columns = new Map<string, ColumnValues>();
    await Promise.all(field.columns.map(async (name) => columns.set(name, await this.columnRows(name, rows))));
    await field.write(new ColumnCells(this.subjectOf(rows), rows.length, columns, this.vocabularies), into, 0);
  }

  private subjectOf(rows: Float64Array): string {
    const shards = [...new Set(Array.from(rows, (row) => this.table.shardOf(row)))];
    const names = shards.slice(0, 3).map((shard) => nameOfShard(this.table.shards[shard]!));
    return `rows of ${names.join(', ')}${shards.length > 3 ? ` and ${shards.length - 3} more` : ''}`;
  }

  /** A column of some rows of the split, one after the other. */
  private async columnRows(name: string, rows: Float64Array): Promise<ColumnValues> {
    const { table } = this;
    const byShard = new Map<number, number[]>();
    for (let i = 0; i < rows.length; i++) {
      const shard = table.shardOf(rows[i]!);
      const places = byShard.get(shard);
      if (places) places.push(i);
      else byShard.set(shard, [i]);
    }
    const parts = await Promise.all(
      [...byShard].map(async ([shard, places]) => {
        const local = places.map((place) => rows[place]! - table.starts[shard]!);
        const column = table.resident[shard]?.columns.get(name);
        return column ? { places, column, local } : { places, column: await this.readRows(name, shard, local), local: undefined };
      }),
    );
    return mergedRows(rows.length, parts);
  }

  private readRows(name: string, shard: number, local: readonly number[]): Promise<ColumnValues> {
    const { shards, source } = this.table;
    return asNamed(shards[shard]!, async () => rowsOfColumn(name, await this.table.layout(shard), shards[shard]!, source, local));
  }

  private check(indices: Int32Array, from: number, to: number, into: RowBuffers): void {
    if (!(from >= 0 && from <= to && to <= indices.length)) throw new RangeError(`rows ${from} to ${to} of ${indices.length}`);
    for (let i = from; i < to; i++) {
      const index = indices[i]!;
      if (!(index >= 0 && index < this.count)) throw new RangeError(`example ${index} of ${this.count}`);
    }
    const examples = to - from;
    const { inputs, targets, weight } = this.fields;
    const needed = (field: Field | CopiedField): number => examples * floatsOf(field.kind === 'copied' ? inputs[field.input]! : field);
    const isRoom =
      inputs.every((field, i) => (into.inputs[i]?.length ?? -1) >= needed(field)) &&
      targets.every((field, i) => (into.targets[i]?.length ?? -1) >= needed(field)) &&
      (!weight || (into.weights?.length ?? -1) >= examples);
    if (!isRoom) throw new RangeError(`the buffers are too small for ${examples} examples`);
  }
}

const floatsOf = ({ rows, rowWidth }: Field): number => rows.count * rowWidth;

interface Part {
  /** Where its rows go. */
  readonly places: readonly number[];
  readonly column: ColumnValues;
  /** Rows of the column, where it has more than those that are wanted. */
  readonly local: readonly number[] | undefined;
}

function mergedRows(rows: number, parts: readonly Part[]): ColumnValues {
  const [{ column }] = parts as readonly [Part];
  const make = column.values.constructor as new (length: number) => ColumnValues['values'];
  const lengths = new Float64Array(rows);
  const starts = new Float64Array(rows);
  const sources = new Array<ColumnValues['values']>(rows);
  for (const { places, column: from, local } of parts) {
    for (const [i, place] of places.entries()) {
      const row = local ? local[i]! : i;
      starts[place] = from.offsets ? from.offsets[row]! : row * from.size;
      lengths[place] = from.offsets ? from.offsets[row + 1]! - starts[place] : from.size;
      sources[place] = from.values;
    }
  }
  const offsets = new Float64Array(rows + 1);
  for (let i = 0; i < rows; i++) offsets[i + 1] = offsets[i]! + lengths[i]!;
  const values = new make(offsets[rows]!);
  for (let i = 0; i < rows; i++) {
    if (lengths[i] === 1) values[offsets[i]!] = sources[i]![starts[i]!]!;
    else values.set(sources[i]!.subarray(starts[i], starts[i]! + lengths[i]!), offsets[i]!);
  }
  return { values, size: column.size, offsets: column.offsets && offsets };
}
