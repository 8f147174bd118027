/**
 * What a version says of its columns, for people. Statistics come from the server as JSON and differ from kind to kind; nothing about their shape
 * is taken for granted. All of them are of the training split.
 */
import type { DatasetContentResult } from '../graphql/generated/operations.js';
import { DASH, compact, count, percent, value } from '../text/format.js';
import { plainText } from '../text/plain-text.js';

export type DatasetContent = NonNullable<NonNullable<DatasetContentResult['dataset']>['version']>;
export type DatasetColumn = DatasetContent['schema']['columns'][number];

type Json = Readonly<Record<string, unknown>>;
const object = (given: unknown): Json => (given !== null && typeof given === 'object' && !Array.isArray(given) ? (given as Json) : {});
const number = (given: unknown): number | null => (typeof given === 'number' && Number.isFinite(given) ? given : null);
const counts = (given: unknown): readonly number[] => (Array.isArray(given) ? given.map((each) => number(each) ?? 0) : []);

/** One line of the table of columns. */
export interface ColumnFacts {
  readonly kind: string;
  readonly missing: string;
  readonly mean: string;
  readonly extremes: string;
  readonly classes: string;
}

export function columnFacts(column: DatasetColumn): ColumnFacts {
  const statistics = object(column.statistics);
  const facts = { kind: kindText(column), missing: missingText(sizesOf(column)), mean: DASH, extremes: DASH, classes: DASH };
  switch (column.kind) {
    case 'number':
    case 'array':
      return Object.assign(facts, spreadOf(statistics));
    case 'sequence':
      return Object.assign(facts, spreadOf(object(statistics['values'])), { classes: `${range(object(statistics['lengths']))} elements` });
    case 'text':
      return Object.assign(facts, { extremes: `${range(object(statistics['lengths']))} characters` });
    case 'image':
      return Object.assign(facts, { extremes: imageSizes(statistics) });
    default:
      return Object.assign(facts, { classes: count(column.vocabularySize) });
  }
}

const spreadOf = (statistics: Json): Pick<ColumnFacts, 'mean' | 'extremes'> =>
  number(statistics['count']) === 0
    ? { mean: DASH, extremes: DASH }
    : {
        mean: `${value(number(statistics['mean']))} ± ${value(number(statistics['deviation']))}`,
        extremes: range(statistics),
      };

function range({ minimum, maximum }: Json): string {
  const [low, high] = [value(number(minimum)), value(number(maximum))];
  return low === high ? low : `${low} to ${high}`;
}

/** Width before height, as pictures are named. */
function imageSizes({ widths, heights, channels }: Json): string {
  const kinds = counts(channels).map((each) => ({ 1: 'grey', 3: 'colour' })[each] ?? `${each} channels`);
  return `${range(object(widths))} × ${range(object(heights))} px${kinds.length > 0 ? `, ${kinds.join(' or ')}` : ''}`;
}

function kindText({ kind, dtype, shape }: DatasetColumn): string {
  const type = [dtype && plainText(dtype, 8).toLowerCase(), shape && shape.length > 0 ? shape.join(' × ') : ''].filter(Boolean).join(' ');
  return type ? `${plainText(kind, 20)}, ${type}` : plainText(kind, 20);
}

/** Where the kind keeps how many values there are and how many are missing. */
function sizesOf({ kind, statistics: given }: DatasetColumn): Json {
  const statistics = object(given);
  if (kind === 'text' || kind === 'sequence') return object(statistics['lengths']);
  return kind === 'image' ? object(statistics['heights']) : statistics;
}

function missingText(sizes: Json): string {
  const [missing, there] = [number(sizes['missing']), number(sizes['count'])];
  if (missing === null) return DASH;
  if (missing === 0 || there === null) return count(missing);
  const share = missing / (missing + there);
  return `${count(missing)} (${share < 0.01 ? '<\u202f1\u202f%' : percent(share)})`;
}

export interface Bin {
  readonly from: number;
  readonly to: number;
  readonly count: number;
}

/** Bins of equal width from the lowest to the highest value; empty where the import made none. */
export function binsOf({ kind, statistics: given }: DatasetColumn): readonly Bin[] {
  const statistics = kind === 'sequence' ? object(object(given)['values']) : object(given);
  const heights = counts(statistics['histogram']);
  const [low, high] = [number(statistics['minimum']), number(statistics['maximum'])];
  if (heights.length === 0 || low === null || high === null) return [];
  if (high <= low) return [{ from: low, to: high, count: heights.reduce((sum, each) => sum + each, 0) }];
  const width = (high - low) / heights.length;
  return heights.map((each, i) => ({ from: low + i * width, to: low + (i + 1) * width, count: each }));
}

export interface ClassShare {
  readonly name: string;
  readonly count: number;
  /** Share of the rows that have a value. */
  readonly share: number;
}

/** The most frequent classes, of those that the server names. */
export function frequentClasses({ vocabulary, statistics: given }: DatasetColumn, most: number): readonly ClassShare[] {
  const statistics = object(given);
  const rows = counts(statistics['counts']);
  const all = number(statistics['count']) ?? 0;
  return (vocabulary ?? [])
    .map((name, code) => ({ name: plainText(name, 100), count: rows[code] ?? 0, share: all > 0 ? (rows[code] ?? 0) / all : 0 }))
    .sort((a, b) => b.count - a.count)
    .slice(0, most);
}

const MOST_NAMED = 10;

/** As the command line warns of them; empty where the training split has every class. */
export function untrainedText({ label, untrainedClasses }: Pick<DatasetContent['schema'], 'label' | 'untrainedClasses'>): string {
  if (untrainedClasses.length === 0) return '';
  const named = untrainedClasses.slice(0, MOST_NAMED).map((name) => `“${plainText(name, 60)}”`);
  const more = untrainedClasses.length > MOST_NAMED ? ` and ${count(untrainedClasses.length - MOST_NAMED)} more` : '';
  return `No row of the training split has these classes of ${plainText(label, 60)}, so nothing can learn them: ${named.join(', ')}${more}. Are the words right?`;
}

/** A cell of a preview that is no picture. */
export function cellText(cell: unknown): string {
  if (cell === null || cell === undefined) return DASH;
  if (typeof cell === 'number') return value(cell);
  if (typeof cell === 'string') return plainText(cell, 200);
  if (Array.isArray(cell)) {
    const shown = cell.slice(0, 6).map(cellText).join(', ');
    return cell.length > 6 ? `[${shown}, … ${compact(cell.length)} values]` : `[${shown}]`;
  }
  return plainText(JSON.stringify(cell), 200);
}

/** A data address of a picture, as the server makes them; nothing else may become the address of an image. */
export const isPicture = (cell: unknown): cell is string =>
  typeof cell === 'string' && /^data:image\/(?:png|jpeg|webp);base64,[A-Za-z0-9+/=]+$/.test(cell);
