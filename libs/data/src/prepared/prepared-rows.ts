/** Opens a prepared dataset for a run: its training and evaluation rows by index, as the feature plan makes them. */
import type { DatasetManifest, FeaturePlan, SplitName } from '@paceline/spec';
import type { RowSplit, RunRows } from '../contract.js';
import { SeriesExamples } from '../series.js';
import { fieldsOf, type Field } from '../features/field.js';
import { decodeImage } from '../features/image.js';
import { DEFAULT_MEMORY_BYTES, MemoryBudget } from './memory-budget.js';
import { PreparedSplit, type SplitFields } from './prepared-split.js';
import { residentBytes, type Residency } from './resident-shard.js';
import { ShardTable } from './shard-table.js';
import type { ShardSource } from './shard-source.js';

export interface PreparedRowsOptions {
  /** What the shards in memory may take; the same budget may be given to several datasets and threads. Left out: 1 GiB of its own. */
  readonly memory?: MemoryBudget;
}

/** A finished row may take so many times the memory of its columns; more is made anew for each batch. */
const GROWTH_MAX = 8;

/**
 * Shards are fetched when rows of them are asked for first.
 * @param manifest whose hash is the version of the run
 */
export function openPreparedRows(
  manifest: DatasetManifest,
  plan: FeaturePlan,
  source: ShardSource,
  { memory = new MemoryBudget(DEFAULT_MEMORY_BYTES) }: PreparedRowsOptions = {},
): RunRows {
  const { inputs, targets, trainWeight, evaluationWeight } = fieldsOf(plan, decodeImage);
  const vocabularies = new Map(
    manifest.columns.flatMap((column) => (column.kind === 'category' ? [[column.name, column.vocabulary] as const] : [])),
  );
  const tables: ShardTable[] = [];
  const open = (split: SplitName, weight: Field | undefined): RowSplit => {
    const { shards } = manifest.splits[split]!;
    const series = new SeriesExamples(manifest.splits[split]!, plan.span);
    const fields: SplitFields = { inputs, targets, weight };
    const encoded = [...inputs, ...targets, weight].filter((field) => field?.kind === 'encoded');
    const residency = residencyOf(manifest, encoded, split, memory.bytes);
    const table = new ShardTable(manifest, vocabularies, shards, source, residency, memory);
    tables.push(table);
    return new PreparedSplit(
      plan.examples[split] ?? 0,
      fields,
      table,
      new Map(residency.dense.map((field, i) => [field, i])),
      plan.span,
      series.isPlain ? undefined : series,
      vocabularies,
    );
  };
  return {
    format: plan.rowFormat,
    train: open('train', trainWeight),
    evaluation: open(plan.evaluateOn, evaluationWeight),
    close: () => {
      for (const table of tables) table.close();
      return Promise.resolve();
    },
  };
}

/** Fields of fixed size are finished ahead, unless a split would then not fit into memory any more, and would as it is. */
function residencyOf(manifest: DatasetManifest, fields: readonly Field[], split: SplitName, memoryBytes: number): Residency {
  const rowBytes = new Map(manifest.columns.map((column) => [column.name, fixedBytes(column)]));
  const isSmall = ({ columns, rowWidth }: Field): boolean => {
    const stored = columns.reduce((sum, name) => sum + (rowBytes.get(name) ?? 0), 0);
    return rowWidth * Float32Array.BYTES_PER_ELEMENT <= Math.max(64, GROWTH_MAX * stored);
  };
  const made = (dense: readonly Field[]): Residency => ({
    dense,
    columns: [...new Set(fields.filter((field) => !dense.includes(field)).flatMap(({ columns }) => columns))],
  });
  const finished = made(fields.filter((field) => field.isFixed && isSmall(field)));
  const total = (residency: Residency): number =>
    manifest.splits[split]!.shards.reduce((sum, shard) => sum + residentBytes(residency, shard), 0);
  const asTheyAre = made([]);
  return total(finished) > memoryBytes && total(asTheyAre) <= memoryBytes ? asTheyAre : finished;
}

const SIZES = { F32: 4, I32: 4, U8: 1 } as const;

function fixedBytes(column: DatasetManifest['columns'][number]): number {
  if (column.kind === 'number' || column.kind === 'category') return 4;
  return column.kind === 'array' ? column.shape.reduce((all, n) => all * n, SIZES[column.dtype]) : 0;
}
