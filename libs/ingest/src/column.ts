/**
 * One column on its way into shards: cells become stored values (numbers float32, categories codes), and what the manifest says of the column is
 * counted. Cells of a block are converted in the order of the source; the values then go to the buffers of their splits.
 */
import { DATASET_LIMITS, isStorable, type Column, type HeldOut } from '@paceline/spec';
import { isArrayCell, isImageCell, type ArrayCell, type Cell } from './cell.js';
import { isMissingNumber, sameShape, type ColumnForm } from './infer.js';
import { IngestError, shown, type Place } from './ingest-error.js';
import { DECIMAL_HINT, isNumberInAnyStyle, plainNumber } from './number-text.js';
import { HeldOutTally, NumberTally, type HeldOutName } from './statistics.js';
import type { StoredCell } from './stored-rows.js';

export interface VocabularyBudget {
  left: number;
}

const INTEGERS_EXACT_TO = 2 ** 24;
const MISSING_CODE = -1;
const PLACES_KEPT = 10_000;

export class ColumnState {
  readonly vocabulary = new Map<string, number>();
  /** Counts the training split. Numbers: values; others: lengths, heights. */
  readonly tally = new NumberTally();
  readonly lengths = new NumberTally();
  readonly widths = new NumberTally();
  readonly channels = new Set<number>();
  readonly codeCounts: number[] = [];
  missingCodes = 0;
  private readonly others = new Map<HeldOutName, HeldOutTally>();
  /** Where each category of the label stood first. */
  private readonly firstPlaces: Place[] | undefined;
  /** A whole number that float32 does not hold. */
  inexact: number | bigint | undefined;

  constructor(
    readonly name: string,
    readonly form: ColumnForm,
    private readonly budget: VocabularyBudget,
    readonly isLabel = false,
  ) {
    if (isLabel) this.firstPlaces = [];
  }

  get isScalar(): boolean {
    return this.form.kind === 'number' || this.form.kind === 'category';
  }

  isMissing(cell: Cell): boolean {
    if (cell === null || cell === undefined) return true;
    const { kind } = this.form;
    if (kind === 'number') return typeof cell === 'number' ? Number.isNaN(cell) : typeof cell === 'string' && isMissingNumber(cell);
    if (kind === 'category') {
      const isMissingWord = (word: string): boolean =>
        this.form.kind === 'category' && this.form.isOfNumbers ? isMissingNumber(word) : word.trim() === '';
      return typeof cell === 'number' ? Number.isNaN(cell) : typeof cell === 'string' && isMissingWord(cell);
    }
    if (kind === 'array' || kind === 'sequence') return isArrayCell(cell) && hasNaN(cell.values);
    return false;
  }

  /** What is stored for a missing value. @throws IngestError VALUE_MISSING where nothing can stand for it */
  missingValue(place: Place): StoredCell {
    const { form } = this;
    if (form.kind === 'number') return NaN;
    if (form.kind === 'category') return MISSING_CODE;
    if (form.kind === 'text') return '';
    if (form.kind === 'sequence') return { kind: 'array', values: [], shape: [0, ...form.shape] };
    if (form.kind === 'array' && form.dtype === 'F32') {
      const elements = form.shape.reduce((product, n) => product * n, 1);
      return { kind: 'array', values: new Float32Array(elements).fill(NaN), shape: form.shape };
    }
    throw new IngestError('VALUE_MISSING', `There is no value that stands for a missing ${form.kind}.`, place);
  }

  /**
   * @returns the value as it is stored; `isMissing` has been false for it, or the policy is to fill
   * @throws IngestError VALUE_MISFIT, VOCABULARY_TOO_LARGE
   */
  convert(cell: Cell, place: () => Place): StoredCell {
    const { kind } = this.form;
    if (kind === 'number') return this.numberOf(cell, place);
    if (kind === 'category') return this.codeOf(cell, place);
    if (kind === 'text') {
      if (typeof cell === 'object' || cell === undefined) return this.misfit(cell, 'no text', place);
      return String(cell);
    }
    if (kind === 'image') return isImageCell(cell) ? cell : this.misfit(cell, 'no picture', place);
    return this.arrayOf(cell, place);
  }

  heldOut(split: HeldOutName): HeldOutTally {
    let tally = this.others.get(split);
    if (!tally) this.others.set(split, (tally = new HeldOutTally()));
    return tally;
  }

  /** Categories of a complete label that no row of the training split has, with the place where each stood first. */
  *untrained(): Generator<{ readonly word: string; readonly place: Place | undefined }> {
    for (const [word, code] of this.vocabulary) if ((this.codeCounts[code] ?? 0) === 0) yield { word, place: this.firstPlaces?.[code] };
  }

  private numberOf(cell: Cell, place: () => Place): number {
    let value: number;
    if (typeof cell === 'string') {
      value = this.form.kind === 'number' && this.form.decimal !== undefined ? Number(plainNumber(cell, this.form.decimal)) : +cell;
      // Number() takes 0x1f and blanks; a table that has them means something else.
      if (Number.isNaN(value) || (value === 0 && cell.trim() === '') || (cell.length > 2 && /^\s*0[xob]/i.test(cell)))
        return this.misfit(cell, 'no number', place, isNumberInAnyStyle(cell) ? ` ${DECIMAL_HINT}.` : '');
    } else if (typeof cell === 'number' || typeof cell === 'boolean' || typeof cell === 'bigint') value = Number(cell);
    else return this.misfit(cell, 'no number', place);
    const stored = Math.fround(value);
    if (stored === Infinity || stored === -Infinity) return this.misfit(cell, 'too large for float32', place);
    if (typeof cell === 'bigint') {
      if (BigInt(stored) !== cell) this.inexact ??= cell;
    } else if (losesDigits(value, stored)) this.inexact ??= value;
    return stored;
  }

  private codeOf(cell: Cell, place: () => Place): number {
    if (typeof cell === 'object' || cell === undefined) return this.misfit(cell, 'no category', place);
    const word = typeof cell === 'string' ? cell.trim() : String(cell);
    const known = this.vocabulary.get(word);
    if (known !== undefined) return known;
    if (word.length > DATASET_LIMITS.vocabularyCharacters)
      return this.misfit(cell, `too long for a category (${DATASET_LIMITS.vocabularyCharacters} characters)`, place);
    if (!isStorable(word)) return this.misfit(cell, 'no category: it holds U+0000 or half a character', place);
    if (this.budget.left-- <= 0)
      throw new IngestError('VOCABULARY_TOO_LARGE', `More than ${DATASET_LIMITS.vocabularyEntries} different values.`, place());
    const code = this.vocabulary.size;
    this.vocabulary.set(word, code);
    if (this.firstPlaces && code < PLACES_KEPT) this.firstPlaces.push(place());
    return code;
  }

  private arrayOf(cell: Cell, place: () => Place): ArrayCell {
    const { form } = this;
    if (!isArrayCell(cell) || (form.kind !== 'array' && form.kind !== 'sequence')) return this.misfit(cell, 'no list of numbers', place);
    const isEmptySequence = form.kind === 'sequence' && cell.shape[0] === 0;
    const expected = form.kind === 'array' ? form.shape : [cell.shape[0] ?? -1, ...form.shape];
    if (!isEmptySequence && !sameShape(cell.shape, expected))
      return this.misfit(
        cell,
        `of shape [${cell.shape.join(', ')}], not [${form.kind === 'array' ? '' : 'any, '}${form.shape.join(', ')}]`,
        place,
      );
    const isInteger = form.dtype !== 'F32';
    const fits = !isInteger || areIntegers(cell.values, form.dtype);
    if (!fits) return this.misfit(cell, `not of type ${form.dtype}`, place);
    if (form.dtype === 'F32')
      for (let i = 0; i < cell.values.length; i++) {
        const value = cell.values[i]!;
        const stored = Math.fround(value);
        if (!Number.isFinite(stored) && !Number.isNaN(value)) return this.misfit(value, 'too large for float32', place);
        if (losesDigits(value, stored)) this.inexact ??= value;
      }
    return cell;
  }

  private misfit(cell: Cell, why: string, place: () => Place, hint = ''): never {
    const text = typeof cell === 'object' && cell !== null ? `a value of kind ${cell.kind}` : shown(String(cell));
    throw new IngestError('VALUE_MISFIT', `${text} is ${why}; the column is of type ${this.form.kind}.${hint}`, place());
  }

  private describeHeldOut(): Partial<Record<HeldOutName, HeldOut>> | undefined {
    const { kind } = this.form;
    const missing = kind === 'category' ? this.missingCodes : this.tally.missingValues;
    const extremes = kind === 'sequence' ? 'all' : kind === 'number' ? 'negative' : 'none';
    const found = [...this.others].flatMap(([split, tally]) => {
      const surprise = tally.beyond({ missing, bounds: this.tally.bounds, shortest: this.lengths.bounds.minimum }, extremes);
      return surprise ? [[split, surprise] as const] : [];
    });
    return found.length > 0 ? Object.fromEntries(found) : undefined;
  }

  /** The column's entry in the manifest; `histogram` for number columns. */
  describe(histogram: number[] | undefined): Column {
    const { name, form } = this;
    const heldOut = this.describeHeldOut();
    switch (form.kind) {
      case 'number':
        return { name, kind: 'number', statistics: this.tally.result(histogram), heldOut };
      case 'category': {
        const counts = Array.from({ length: this.vocabulary.size }, (_, code) => this.codeCounts[code] ?? 0);
        const count = counts.reduce((a, b) => a + b, 0);
        return {
          name,
          kind: 'category',
          vocabulary: [...this.vocabulary.keys()],
          statistics: { count, missing: this.missingCodes, counts },
          heldOut,
        };
      }
      case 'array':
        return { name, kind: 'array', dtype: form.dtype, shape: [...form.shape], statistics: this.tally.result(), heldOut };
      case 'sequence': {
        const shape = [...form.shape];
        return {
          name,
          kind: 'sequence',
          dtype: form.dtype,
          shape,
          statistics: this.tally.result(),
          lengths: this.lengths.sizes(),
          heldOut,
        };
      }
      case 'text':
        return { name, kind: 'text', lengths: this.lengths.sizes() };
      case 'image': {
        const channels = [...this.channels].sort((a, b) => a - b);
        return { name, kind: 'image', heights: this.lengths.sizes(), widths: this.widths.sizes(), channels };
      }
    }
  }
}

const losesDigits = (value: number, stored: number): boolean =>
  stored !== value && (value >= INTEGERS_EXACT_TO || value <= -INTEGERS_EXACT_TO) && Number.isInteger(value);

function hasNaN(values: ArrayLike<number>): boolean {
  if (values instanceof Uint8Array || values instanceof Int32Array) return false;
  for (let i = 0; i < values.length; i++) if (Number.isNaN(values[i])) return true;
  return false;
}

/** Whole numbers that the type holds, whatever they come in. */
function areIntegers(values: ArrayCell['values'], dtype: 'I32' | 'U8'): boolean {
  if (values instanceof Uint8Array || (dtype === 'I32' && values instanceof Int32Array)) return true;
  for (let i = 0; i < values.length; i++) if (values[i] !== (dtype === 'I32' ? values[i]! | 0 : values[i]! & 0xff)) return false;
  return true;
}
