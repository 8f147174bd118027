/** What a dataset holds, as a table. */
import type { DatasetColumn, DatasetSchema } from '@paceline/client';
import { clean } from './terminal/clean.js';
import { count, decimals, percent } from './terminal/format.js';
import { printTable } from './terminal/print-table.js';
import type { Terminal } from './terminal/terminal.js';

const COLUMNS = [
  { title: 'COLUMN', least: 8 },
  { title: 'KIND' },
  { title: 'SHAPE', drop: 3 },
  { title: 'VALUES', drop: 1, least: 12 },
  { title: 'MISSING', align: 'right', drop: 2 },
] as const;
const MAX_NAMED = 6;

export function printSchema(terminal: Terminal, { splits, columns, label, droppedRows, isOrdered }: DatasetSchema): void {
  const parts = splits.map(({ name, rows, series }) => `${name} ${count(rows)}${(series ?? 0) > 1 ? ` in ${count(series!)} series` : ''}`);
  terminal.print(
    [...parts, ...(isOrdered ? ['in order'] : []), ...(droppedRows > 0 ? [`${count(droppedRows)} rows left out`] : [])].join('  '),
  );
  const rows = columns.map((column) => [
    `${clean(column.name, 60)}${column.name === label ? ' (label)' : ''}`,
    column.kind,
    column.shape && column.shape.length > 0 ? column.shape.join('×') : '',
    valuesOf(column),
    missingOf(column),
  ]);
  printTable(terminal, COLUMNS, rows);
}

interface Numbers {
  readonly count?: number;
  readonly missing?: number;
  readonly mean?: number;
  readonly deviation?: number;
  readonly minimum?: number;
  readonly maximum?: number;
}

const numbersOf = (value: unknown): Numbers => (value ?? {}) as Numbers;
const range = ({ minimum, maximum }: Numbers): string => `${short(minimum)} to ${short(maximum)}`;
const short = (value: number | undefined): string =>
  value === undefined ? '–' : Number.isInteger(value) ? count(value) : decimals(value, 3);

function valuesOf({ kind, statistics, vocabulary, vocabularySize }: DatasetColumn): string {
  switch (kind) {
    case 'number':
    case 'array': {
      const numbers = numbersOf(statistics);
      return `${range(numbers)}, mean ${short(numbers.mean)}, deviation ${short(numbers.deviation)}`;
    }
    case 'category': {
      const names = (vocabulary ?? []).slice(0, MAX_NAMED).map((entry) => clean(entry, 24));
      return `${count(vocabularySize ?? 0)}: ${names.join(', ')}${(vocabularySize ?? 0) > names.length ? ', …' : ''}`;
    }
    case 'sequence':
      return `length ${range(numbersOf(statistics['lengths']))}`;
    case 'text':
      return `${range(numbersOf(statistics['lengths']))} characters`;
    case 'image':
      return `height ${range(numbersOf(statistics['heights']))}, width ${range(numbersOf(statistics['widths']))}`;
  }
}

function missingOf({ statistics }: DatasetColumn): string {
  const { count: there, missing } = numbersOf(statistics['lengths'] ?? statistics['heights'] ?? statistics['values'] ?? statistics);
  if (!missing) return '';
  return `${count(missing)} (${percent(missing / (missing + (there ?? 0)), 1)})`;
}
