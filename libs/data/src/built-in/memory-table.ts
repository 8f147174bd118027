/** A prepared dataset that is made in memory: manifest and one shard per split, for built-in tables. So features work on them as on any other. */
import type { Column, DatasetManifest, DatasetShard, NumberStatistics } from '@paceline/spec';
import { sha256Of, type ShardSource } from '../prepared/shard-source.js';

export type TableColumn =
  | { readonly name: string; readonly kind: 'number'; readonly values: readonly number[] }
  | { readonly name: string; readonly kind: 'category'; readonly values: readonly string[] }
  /** A column of sequences with `size` numbers per element. */
  | { readonly name: string; readonly kind: 'sequence'; readonly size: number; readonly values: readonly (readonly number[])[] };

export interface MemoryTable {
  readonly manifest: DatasetManifest;
  readonly source: ShardSource;
}

/** Values of the training split come first in each column, and then those of the test split. */
export function memoryTable(columns: readonly TableColumn[], label: string, trainRows: number): MemoryTable {
  const rows = columns[0]!.values.length;
  const vocabularies = columns.map((column) => (column.kind === 'category' ? [...new Set(column.values)] : []));
  const files = [
    [0, trainRows],
    [trainRows, rows],
  ].map(([from, to]) => shardFile(columns.flatMap((column, i) => tensorsOf(column, from!, to!, vocabularies[i]!))));
  const shards = files.map((file, i): DatasetShard => ({
    sha256: sha256Of(file),
    rows: i === 0 ? trainRows : rows - trainRows,
    bytes: file.length,
  }));
  const fileOf = (shard: DatasetShard): Uint8Array => files[shards.findIndex(({ sha256 }) => sha256 === shard.sha256)]!;
  const [train, test] = shards as [DatasetShard, DatasetShard];
  return {
    manifest: {
      format: 'paceline.dataset',
      version: 1,
      columns: columns.map((column, i) => described(column, trainRows, vocabularies[i]!)),
      label,
      splits: { train: { rows: train.rows, shards: [train] }, test: { rows: test.rows, shards: [test] } },
      dropped: { missing: 0 },
      isOrdered: false,
    },
    source: {
      place: 'memory',
      whole: (shard) => Promise.resolve(fileOf(shard)),
      range: (shard, from, to) => Promise.resolve(fileOf(shard).subarray(from, to)),
    },
  };
}

interface Tensor {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data: Float32Array | Int32Array | BigInt64Array;
}

function tensorsOf(column: TableColumn, from: number, to: number, vocabulary: readonly string[]): Tensor[] {
  const { name } = column;
  const shape = [to - from];
  if (column.kind === 'number') return [{ name, dtype: 'F32', shape, data: Float32Array.from(column.values.slice(from, to)) }];
  if (column.kind === 'category')
    return [{ name, dtype: 'I32', shape, data: Int32Array.from(column.values.slice(from, to), (value) => vocabulary.indexOf(value)) }];
  const pieces = column.values.slice(from, to);
  const offsets = new BigInt64Array(pieces.length + 1);
  for (const [i, piece] of pieces.entries()) offsets[i + 1] = offsets[i]! + BigInt(piece.length / column.size);
  return [
    { name, dtype: 'F32', shape: [Number(offsets[pieces.length]), column.size], data: Float32Array.from(pieces.flat()) },
    { name: `${name}:offsets`, dtype: 'I64', shape: [pieces.length + 1], data: offsets },
  ];
}

function shardFile(tensors: readonly Tensor[]): Uint8Array {
  const header: Record<string, unknown> = {};
  let at = 0;
  for (const { name, dtype, shape, data } of tensors) {
    header[name] = { dtype, shape, data_offsets: [at, at + data.byteLength] };
    at += data.byteLength;
  }
  const json = new TextEncoder().encode(JSON.stringify(header));
  const file = new Uint8Array(8 + json.length + at);
  new DataView(file.buffer).setBigUint64(0, BigInt(json.length), true);
  file.set(json, 8);
  let write = 8 + json.length;
  for (const { data } of tensors) {
    file.set(new Uint8Array(data.buffer), write);
    write += data.byteLength;
  }
  return file;
}

function described(column: TableColumn, trainRows: number, vocabulary: readonly string[]): Column {
  const { name, kind } = column;
  switch (kind) {
    case 'number':
      return { name, kind, statistics: statisticsOf(column.values.slice(0, trainRows)) };
    case 'category': {
      const train = column.values.slice(0, trainRows);
      const counts = vocabulary.map((category) => train.filter((value) => value === category).length);
      return { name, kind, vocabulary: [...vocabulary], statistics: { count: train.length, missing: 0, counts } };
    }
    case 'sequence': {
      const train = column.values.slice(0, trainRows);
      const { count, missing, mean, minimum, maximum } = statisticsOf(train.map(({ length }) => length / column.size));
      const lengths = { count, missing, mean, minimum, maximum };
      return { name, kind, dtype: 'F32', shape: [column.size], statistics: statisticsOf(train.flat()), lengths };
    }
  }
}

function statisticsOf(values: readonly number[]): NumberStatistics {
  const stored = values.map(Math.fround);
  const mean = stored.reduce((sum, value) => sum + value, 0) / stored.length;
  const deviation = Math.sqrt(stored.reduce((sum, value) => sum + (value - mean) ** 2, 0) / stored.length);
  const minimum = stored.reduce((least, value) => Math.min(least, value), Infinity);
  const maximum = stored.reduce((most, value) => Math.max(most, value), -Infinity);
  return { count: stored.length, missing: 0, mean, deviation, minimum, maximum };
}
