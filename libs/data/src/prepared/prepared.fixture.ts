/** Writes small prepared datasets for tests: shards and a manifest whose statistics are computed from the rows of the training split. */
import { createHash } from 'node:crypto';
import { datasetManifestSchema, datasetShardKey, type Column, type DatasetManifest, type SplitName } from '@paceline/spec';
import { LocalStore, nodeDisk, type ObjectStore } from '@paceline/storage';

export type Cell = number | string | null | readonly number[] | Uint8Array;
export type Row = Readonly<Record<string, Cell>>;

export type FixtureColumn =
  | { readonly name: string; readonly kind: 'number' | 'category' | 'text' }
  | { readonly name: string; readonly kind: 'array'; readonly dtype: 'F32' | 'I32' | 'U8'; readonly shape: number[] }
  | { readonly name: string; readonly kind: 'sequence'; readonly dtype: 'F32' | 'I32'; readonly shape: number[] }
  | { readonly name: string; readonly kind: 'image'; readonly height: number; readonly width: number };

export interface Fixture {
  readonly columns: readonly FixtureColumn[];
  readonly splits: { readonly train: readonly Row[]; readonly validation?: readonly Row[]; readonly test?: readonly Row[] };
  readonly label?: string;
  readonly isOrdered?: boolean;
  readonly rowsPerShard?: number;
}

export const FIXTURE_TEAM = '11111111-1111-4111-8111-111111111111';

export const localStoreAt = (folder: string): ObjectStore => new LocalStore(folder, nodeDisk);

interface Tensor {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

export function safetensorsOf(tensors: readonly Tensor[]): Uint8Array {
  const header: Record<string, unknown> = {};
  let at = 0;
  for (const { name, dtype, shape, bytes } of tensors) {
    header[name] = { dtype, shape, data_offsets: [at, at + bytes.length] };
    at += bytes.length;
  }
  const json = new TextEncoder().encode(JSON.stringify(header));
  const file = new Uint8Array(8 + json.length + at);
  new DataView(file.buffer).setBigUint64(0, BigInt(json.length), true);
  file.set(json, 8);
  let write = 8 + json.length;
  for (const { bytes } of tensors) {
    file.set(bytes, write);
    write += bytes.length;
  }
  return file;
}

const bytesOf = (view: ArrayBufferView): Uint8Array => new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
const product = (shape: readonly number[]): number => shape.reduce((all, n) => all * n, 1);
const arrayOf = (dtype: 'F32' | 'I32' | 'U8', values: readonly number[]) =>
  dtype === 'F32' ? Float32Array.from(values) : dtype === 'I32' ? Int32Array.from(values) : Uint8Array.from(values);

function tensorsOf(column: FixtureColumn, rows: readonly Row[], vocabulary: readonly string[]): Tensor[] {
  const { name } = column;
  const cells = rows.map((row) => row[name] ?? null);
  const shape = [rows.length];
  switch (column.kind) {
    case 'number':
      return [{ name, dtype: 'F32', shape, bytes: bytesOf(Float32Array.from(cells, (cell) => (cell === null ? NaN : Number(cell)))) }];
    case 'category':
      return [
        {
          name,
          dtype: 'I32',
          shape,
          bytes: bytesOf(Int32Array.from(cells, (cell) => (cell === null ? -1 : vocabulary.indexOf(cell as string)))),
        },
      ];
    case 'array':
      return [
        {
          name,
          dtype: column.dtype,
          shape: [...shape, ...column.shape],
          bytes: bytesOf(
            arrayOf(
              column.dtype,
              cells.flatMap((cell) => [...(cell as number[])]),
            ),
          ),
        },
      ];
    case 'sequence': {
      const pieces = cells.map((cell) => arrayOf(column.dtype, (cell ?? []) as number[]));
      return piecesOf(name, column.dtype, column.shape, pieces, product(column.shape));
    }
    case 'text':
      return piecesOf(
        name,
        'U8',
        [],
        cells.map((cell) => new TextEncoder().encode((cell ?? '') as string)),
        1,
      );
    case 'image':
      return piecesOf(name, 'U8', [], cells as Uint8Array[], 1);
  }
}

function piecesOf(
  name: string,
  dtype: string,
  shape: readonly number[],
  pieces: readonly (Float32Array | Int32Array | Uint8Array)[],
  size: number,
): Tensor[] {
  const offsets = new BigInt64Array(pieces.length + 1);
  for (const [i, piece] of pieces.entries()) offsets[i + 1] = offsets[i]! + BigInt(piece.length / size);
  const bytes = Uint8Array.from(pieces.flatMap((piece) => [...bytesOf(piece)]));
  return [
    { name, dtype, shape: [Number(offsets[pieces.length]), ...shape], bytes },
    { name: `${name}:offsets`, dtype: 'I64', shape: [pieces.length + 1], bytes: bytesOf(offsets) },
  ];
}

function statisticsOf(values: readonly number[]) {
  const present = values.filter((value) => !Number.isNaN(value)).map(Math.fround);
  const count = present.length;
  const mean = count === 0 ? 0 : present.reduce((sum, value) => sum + value, 0) / count;
  const deviation = count === 0 ? 0 : Math.sqrt(present.reduce((sum, value) => sum + (value - mean) ** 2, 0) / count);
  const [minimum, maximum] = count === 0 ? [0, 0] : [Math.min(...present), Math.max(...present)];
  return { count, missing: values.length - count, mean, deviation, minimum, maximum };
}

const sizesOf = (values: readonly number[]) => {
  const { count, missing, mean, minimum, maximum } = statisticsOf(values);
  return { count, missing, mean, minimum, maximum };
};

function describedColumn(column: FixtureColumn, train: readonly Row[], vocabulary: readonly string[]): Column {
  const { name } = column;
  const cells = train.map((row) => row[name] ?? null);
  switch (column.kind) {
    case 'number':
      return { name, kind: 'number', statistics: statisticsOf(cells.map((cell) => (cell === null ? NaN : Number(cell)))) };
    case 'category': {
      const counts = vocabulary.map((category) => cells.filter((cell) => cell === category).length);
      const count = counts.reduce((sum, each) => sum + each, 0);
      return { name, kind: 'category', vocabulary: [...vocabulary], statistics: { count, missing: cells.length - count, counts } };
    }
    case 'array':
      return {
        name,
        kind: 'array',
        dtype: column.dtype,
        shape: column.shape,
        statistics: statisticsOf(cells.flatMap((cell) => [...(cell as number[])])),
      };
    case 'sequence': {
      const lists = cells.map((cell) => (cell ?? []) as readonly number[]);
      const lengths = sizesOf(lists.map(({ length }) => length / product(column.shape)));
      return { name, kind: 'sequence', dtype: column.dtype, shape: column.shape, statistics: statisticsOf(lists.flat()), lengths };
    }
    case 'text':
      return { name, kind: 'text', lengths: sizesOf(cells.map((cell) => ((cell ?? '') as string).length)) };
    case 'image':
      return {
        name,
        kind: 'image',
        heights: sizesOf(cells.map(() => column.height)),
        widths: sizesOf(cells.map(() => column.width)),
        channels: [3],
      };
  }
}

/** Puts the shards into the store. @returns the manifest, held against its schema */
export async function writePrepared(store: ObjectStore, fixture: Fixture, teamId = FIXTURE_TEAM): Promise<DatasetManifest> {
  const { columns, splits, label, isOrdered = false, rowsPerShard = 1000 } = fixture;
  const all = Object.values(splits).flat();
  const vocabularies = columns.map(({ name, kind }) =>
    kind === 'category' ? [...new Set(all.map((row) => row[name]).filter((cell) => typeof cell === 'string'))] : [],
  );
  const written: Partial<Record<SplitName, { rows: number; shards: { sha256: string; rows: number; bytes: number }[] }>> = {};
  for (const [split, rows] of Object.entries(splits) as [SplitName, readonly Row[]][]) {
    const shards: { sha256: string; rows: number; bytes: number }[] = [];
    for (let from = 0; from < rows.length; from += rowsPerShard) {
      const part = rows.slice(from, from + rowsPerShard);
      const file = safetensorsOf(columns.flatMap((column, i) => tensorsOf(column, part, vocabularies[i]!)));
      const sha256 = createHash('sha256').update(file).digest('hex');
      await store.put(datasetShardKey(teamId, sha256), [file]);
      shards.push({ sha256, rows: part.length, bytes: file.length });
    }
    written[split] = { rows: rows.length, shards };
  }
  return datasetManifestSchema.parse({
    format: 'paceline.dataset',
    version: 1,
    columns: columns.map((column, i) => describedColumn(column, splits.train, vocabularies[i]!)),
    ...(label === undefined ? {} : { label }),
    splits: written,
    dropped: { missing: 0 },
    isOrdered,
  });
}
