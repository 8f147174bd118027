/** What is shown of a manifest: columns with statistics, splits and the label. It is bounded, whatever the manifest holds. */
import { SPLITS, type Column, type DatasetManifest } from '@paceline/spec';
import type { DatasetColumn, DatasetSchema } from './dataset.types.js';

const SHOWN_ENTRIES = 100;
/** The words of all columns that are shown at once have so many characters at most. */
const SHOWN_CHARACTERS = 1 << 20;

/** @param first columns that are shown, from `offset` on */
export function schemaOf(manifest: DatasetManifest, first: number, offset: number): DatasetSchema {
  const splits = SPLITS.flatMap((name) => {
    const split = manifest.splits[name];
    if (!split) return [];
    const bytes = split.shards.reduce((sum, shard) => sum + shard.bytes, 0);
    const series = manifest.isOrdered ? (split.rows > 0 ? 1 : 0) + (split.starts?.length ?? 0) : null;
    return [{ name, rows: split.rows, bytes, shards: split.shards.length, series }];
  });
  return {
    columns: columnsOf(manifest.columns.slice(offset, offset + first)),
    label: manifest.label ?? null,
    untrainedClasses: untrainedClassesOf(manifest),
    splits,
    isOrdered: manifest.isOrdered,
    droppedRows: manifest.dropped.missing,
  };
}

function untrainedClassesOf({ columns, label }: DatasetManifest): string[] {
  const column = columns.find(({ name }) => name === label);
  if (column?.kind !== 'category') return [];
  return column.vocabulary.filter((_, code) => column.statistics.counts[code] === 0).slice(0, SHOWN_ENTRIES);
}

function columnsOf(columns: readonly Column[]): DatasetColumn[] {
  let left = SHOWN_CHARACTERS;
  return columns.map((column) => {
    const { name, kind } = column;
    const shown: string[] = [];
    if (kind === 'category')
      for (const word of column.vocabulary.slice(0, SHOWN_ENTRIES)) {
        if ((left -= word.length) < 0) break;
        shown.push(word);
      }
    return {
      name,
      kind,
      dtype: 'dtype' in column ? column.dtype : null,
      shape: 'shape' in column ? column.shape : null,
      vocabularySize: kind === 'category' ? column.vocabulary.length : null,
      vocabulary: kind === 'category' ? shown : null,
      statistics: statisticsOf(column),
    };
  });
}

function statisticsOf(column: Column): unknown {
  switch (column.kind) {
    case 'number':
    case 'array':
      return column.statistics;
    case 'category': {
      const { count, missing, counts } = column.statistics;
      return { count, missing, counts: counts.slice(0, SHOWN_ENTRIES) };
    }
    case 'sequence':
      return { values: column.statistics, lengths: column.lengths };
    case 'text':
      return { lengths: column.lengths };
    case 'image':
      return { heights: column.heights, widths: column.widths, channels: column.channels };
  }
}
