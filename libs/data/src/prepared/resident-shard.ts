/**
 * What is kept of a shard in memory: fields of fixed size as their finished floats, row after row, so that a row is one copy; and the columns
 * that other fields are made of (images, texts, sequences) as they are.
 */
import type { DatasetManifest, DatasetShard } from '@paceline/spec';
import { DatasetError } from '../dataset-error.js';
import type { Cells, FixedCells } from '../features/cells.js';
import type { Field } from '../features/field.js';
import { columnOf, type ColumnValues } from './shard-columns.js';
import { shardLayout, ShardInvalid } from './shard-layout.js';
import { nameOfShard } from './shard-source.js';

export interface ResidentShard {
  /** rows × rowWidth floats for each dense field. */
  readonly rows: readonly Float32Array[];
  readonly columns: ReadonlyMap<string, ColumnValues>;
  /** Bytes of memory. */
  readonly bytes: number;
}

/** What a split keeps: which fields are finished ahead, and which columns the others need. */
export interface Residency {
  readonly dense: readonly Field[];
  readonly columns: readonly string[];
}

/** Bytes of memory that a shard may take at most, before it is there. */
export const residentBytes = ({ dense, columns }: Residency, shard: DatasetShard): number =>
  dense.reduce((sum, { rowWidth }) => sum + shard.rows * rowWidth * Float32Array.BYTES_PER_ELEMENT, 0) +
  (columns.length > 0 ? shard.bytes + shard.rows * Float64Array.BYTES_PER_ELEMENT : 0);

/** @throws DatasetError DATASET_MALFORMED, DATASET_ROW_INVALID */
export function residentShard(
  manifest: DatasetManifest,
  vocabularies: ReadonlyMap<string, readonly string[]>,
  residency: Residency,
  shard: DatasetShard,
  file: Uint8Array,
): ResidentShard {
  try {
    const layout = shardLayout(manifest, shard, file);
    const read = (name: string): ColumnValues => columnOf(name, layout, shard, file);
    const rows: Float32Array[] = [];
    let bytes = 0;
    for (const field of residency.dense) {
      const cells = new ColumnCells(nameOfShard(shard), shard.rows, new Map(field.columns.map((name) => [name, read(name)])), vocabularies);
      const floats = new Float32Array(shard.rows * field.rowWidth);
      void field.write(cells, floats, 0);
      rows.push(floats);
      bytes += floats.byteLength;
    }
    const columns = new Map(residency.columns.map((name) => [name, read(name)]));
    for (const { values, offsets } of columns.values()) bytes += values.byteLength + (offsets?.byteLength ?? 0);
    return { rows, columns, bytes };
  } catch (error) {
    throw named(shard, error);
  }
}

/** Says of a file that is not what it should be which shard it is, and what to do. */
export async function asNamed<T>(shard: DatasetShard, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    throw named(shard, error);
  }
}

function named(shard: DatasetShard, error: unknown): unknown {
  if (!(error instanceof ShardInvalid)) return error;
  return new DatasetError('DATASET_MALFORMED', nameOfShard(shard), `${error.message}; import the data again`, { cause: error });
}

/** Cells over whole columns. */
export class ColumnCells implements Cells {
  constructor(
    readonly subject: string,
    readonly rows: number,
    private readonly columns: ReadonlyMap<string, ColumnValues>,
    private readonly vocabularies: ReadonlyMap<string, readonly string[]>,
  ) {}

  fixed(column: string): FixedCells {
    return this.columns.get(column)!.values;
  }

  pieces(column: string): readonly FixedCells[] {
    const { values, offsets } = this.columns.get(column)!;
    return Array.from({ length: this.rows }, (_, row) => values.subarray(offsets![row], offsets![row + 1]));
  }

  vocabulary(column: string): readonly string[] {
    return this.vocabularies.get(column) ?? [];
  }
}
