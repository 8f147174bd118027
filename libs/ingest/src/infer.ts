/**
 * Which kind a column is, from its first cells. Without a forced type: numbers are a number column; strings that repeat are a category, others
 * text; arrays of one shape are an array, of several lengths a sequence. Whole numbers in the label column are classes when they are few.
 */
import { DATASET_LIMITS } from '@paceline/spec';
import { flattened, isArrayCell, isImageCell, type ArrayCell, type Cell } from './cell.js';
import { IngestError, type Place } from './ingest-error.js';
import { isNumberText, plainNumber, type DecimalSign } from './number-text.js';
import type { ColumnType } from './options.js';

export type ColumnForm =
  | { readonly kind: 'text' | 'image' }
  | { readonly kind: 'number'; readonly decimal?: DecimalSign | undefined }
  | {
      readonly kind: 'category';
      /** Its words are numbers, of a label: what tables write for a number that is not there is none of them. */
      readonly isOfNumbers?: boolean;
    }
  | { readonly kind: 'array'; readonly dtype: 'F32' | 'I32' | 'U8'; readonly shape: readonly number[] }
  | { readonly kind: 'sequence'; readonly dtype: 'F32' | 'I32'; readonly shape: readonly number[] };

/** What tables write for a number that is not there. In a category or text these are words like others: NA is Namibia. */
const MISSING_NUMBER = new Set(['', 'na', 'n/a', '#n/a', 'nan', 'null', 'none', '?', '-']);
const LABEL_CLASSES_MAX = 1000;
const CATEGORIES_MAX = 10_000;
const CATEGORY_LENGTH_MAX = 100;

export const isMissingNumber = (text: string): boolean => MISSING_NUMBER.has(text.trim().toLowerCase());

/**
 * @param given the first cells of the column
 * @throws IngestError when the cells are of no common kind
 */
export function inferForm(
  given: readonly Cell[],
  forced: ColumnType | undefined,
  isLabel: boolean,
  place: Place,
  decimal?: DecimalSign,
): ColumnForm {
  const isList = forced === 'array' || forced === 'sequence';
  const cells = !isList && given.every((cell) => !isArrayCell(flattened(cell))) ? given.map(flattened) : given;
  const present = cells.filter((cell) => cell !== null && cell !== undefined);
  const arrays = present.filter(isArrayCell);
  if (forced === 'array' || forced === 'sequence' || (forced === undefined && arrays.length > 0))
    return arrayForm(arrays, present.length, forced, place);
  if (forced === 'image' || (forced === undefined && present.some(isImageCell))) return { kind: 'image' };
  if (forced === 'number') return { kind: forced, decimal };
  return forced === 'category' || forced === 'text' ? { kind: forced } : formOfScalars(present, isLabel, decimal);
}

function formOfScalars(present: readonly unknown[], isLabel: boolean, decimal: DecimalSign | undefined): ColumnForm {
  if (present.every((cell) => typeof cell === 'number' || typeof cell === 'bigint'))
    return { kind: isLabel && areClasses(present as (number | bigint)[]) ? 'category' : 'number' };
  if (present.every((cell) => typeof cell === 'boolean')) return { kind: 'category' };
  const texts = present.map(String);
  const numbers = texts.filter((text) => !isMissingNumber(text));
  if (numbers.length > 0 && numbers.every((text) => isNumberText(text, decimal)))
    return isLabel && areClasses(numbers.map((text) => Number(plainNumber(text, decimal))))
      ? { kind: 'category', isOfNumbers: true }
      : { kind: 'number', decimal };
  return { kind: isLabel || areCategories(texts) ? 'category' : 'text' };
}

function areClasses(values: readonly (number | bigint)[]): boolean {
  if (!values.every((value) => typeof value === 'bigint' || Number.isInteger(value))) return false;
  const distinct = new Set(values.map(String)).size;
  return distinct <= LABEL_CLASSES_MAX && (distinct <= 2 || distinct <= values.length / 3);
}

function areCategories(texts: readonly string[]): boolean {
  const distinct = new Set(texts);
  if (distinct.size > CATEGORIES_MAX) return false;
  for (const text of distinct) if (text.length > CATEGORY_LENGTH_MAX) return false;
  // Few rows say little: words are then categories, sentences texts.
  return distinct.size <= texts.length / 2 || (distinct.size <= 20 && !texts.some((text) => /\s/.test(text.trim())));
}

function arrayForm(arrays: readonly ArrayCell[], present: number, forced: ColumnType | undefined, place: Place): ColumnForm {
  const [first] = arrays;
  if (!first || arrays.length < present)
    throw new IngestError('VALUE_MISFIT', 'Some values are lists of numbers and some are not, or there is none.', place);
  if (first.shape.length > 5)
    throw new IngestError('UNSUPPORTED', `An array of ${first.shape.length} dimensions; at most 5 are read.`, place);
  const isOneShape = arrays.every(({ shape }) => sameShape(shape, first.shape));
  const dtype = commonType(arrays);
  if (forced === 'array' || (forced === undefined && isOneShape && first.shape.every((size) => size > 0)))
    return { kind: 'array', dtype, shape: first.shape };
  if (first.shape.length === 0) throw new IngestError('VALUE_MISFIT', 'Single numbers are no sequence.', place);
  const shape = (arrays.find(({ values }) => values.length > 0) ?? first).shape.slice(1);
  return { kind: 'sequence', dtype: dtype === 'U8' ? 'I32' : dtype, shape };
}

export const sameShape = (a: readonly number[], b: readonly number[]): boolean => a.length === b.length && a.every((n, i) => n === b[i]);

function commonType(arrays: readonly ArrayCell[]): 'F32' | 'I32' | 'U8' {
  if (arrays.every(({ values }) => values instanceof Uint8Array)) return 'U8';
  return arrays.every(({ values }) => values instanceof Uint8Array || values instanceof Int32Array) ? 'I32' : 'F32';
}

const NAME = /^[^\p{Cc}\p{Cf}\p{Cs}]*$/u;

/** @throws IngestError COLUMN_NAME_INVALID, TOO_MANY_COLUMNS */
export function checkNames(names: readonly string[], file: string): void {
  if (names.length > DATASET_LIMITS.columns)
    throw new IngestError('TOO_MANY_COLUMNS', `${names.length} columns; at most ${DATASET_LIMITS.columns} are read.`, { file });
  const seen = new Set<string>();
  for (const name of names) {
    const refuse = (why: string): never => {
      throw new IngestError('COLUMN_NAME_INVALID', why, { file, column: name });
    };
    if (name.length === 0 || name.length > 200) refuse('A name has 1 to 200 characters.');
    if (!NAME.test(name)) refuse('A name has no control characters.');
    if (name.endsWith(':offsets') || name === '__metadata__' || name === '__proto__') refuse('This name is reserved.');
    if (seen.has(name)) refuse('Two columns have this name.');
    seen.add(name);
  }
}
