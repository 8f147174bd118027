/** Cells of a few rows of a split as people read them: numbers, words, the beginnings of texts. Everything that one cell shows is bounded. */
import type { Column, DatasetManifest, DatasetShard, SplitName } from '@paceline/spec';
import { asNamed } from './resident-shard.js';
import { rowsOfColumn, startOf, type ColumnValues } from './shard-columns.js';
import { shardLayout } from './shard-layout.js';
import type { ShardSource } from './shard-source.js';

const TEXT_BYTES_MAX = 600;
const ELEMENTS_MAX = 32;

/** What JSON can hold; null is a missing value, and an image. */
export type ShownCell = string | number | null | readonly (number | null)[];

/**
 * @param rows of the split, counted from 0
 * @returns for each row a cell for each column
 * @throws DatasetError
 */
export async function shownRows(
  manifest: DatasetManifest,
  split: SplitName,
  source: ShardSource,
  rows: readonly number[],
  columns: readonly string[],
): Promise<ShownCell[][]> {
  const wanted = columns.map((name) => manifest.columns.find((column) => column.name === name)!);
  const found = rows.map((): ShownCell[] => []);
  let before = 0;
  for (const shard of manifest.splits[split]?.shards ?? []) {
    const inside = rows.flatMap((row, i) => (row >= before && row < before + shard.rows ? [{ i, local: row - before }] : []));
    before += shard.rows;
    if (inside.length === 0) continue;
    const cells = await cellsOfShard(
      manifest,
      shard,
      source,
      inside.map(({ local }) => local),
      wanted,
    );
    for (const [k, { i }] of inside.entries()) found[i] = cells[k]!;
  }
  return found;
}

function cellsOfShard(
  manifest: DatasetManifest,
  shard: DatasetShard,
  source: ShardSource,
  rows: readonly number[],
  columns: readonly Column[],
): Promise<ShownCell[][]> {
  return asNamed(shard, async () => {
    const layout = shardLayout(manifest, shard, await startOf(source, shard));
    const cells = rows.map((): ShownCell[] => []);
    for (const column of columns) {
      const values = column.kind === 'image' ? undefined : await rowsOfColumn(column.name, layout, shard, source, rows);
      for (const [i, of] of cells.entries()) of.push(values ? shownCell(column, values, i) : null);
    }
    return cells;
  });
}

function shownCell(column: Column, { values, size, offsets }: ColumnValues, row: number): ShownCell {
  const [from, to] = offsets ? [offsets[row]!, offsets[row + 1]!] : [row * size, (row + 1) * size];
  if (column.kind === 'category') return column.vocabulary[values[from]!] ?? null;
  if (column.kind === 'text') {
    const end = Math.min(to, from + TEXT_BYTES_MAX);
    const text = Buffer.from(values.subarray(from, end)).toString('utf8');
    return end === to ? text : `${text.replace(/\uFFFD$/, '')}…`;
  }
  const numbers = Array.from(values.subarray(from, Math.min(to, from + ELEMENTS_MAX)), shownNumber);
  return column.kind === 'number' ? numbers[0]! : numbers;
}

/** As it was written down: float32 has seven digits and a bit. JSON knows no NaN. */
export const shownNumber = (value: number): number | null => (Number.isFinite(value) ? Number(value.toPrecision(7)) : null);
