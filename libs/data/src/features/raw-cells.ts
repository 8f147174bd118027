/** Rows as people have them, plain objects, turned into the cells that an import would have stored: so they become the same bits. */
import type { Encoder, FeaturePlan } from '@paceline/spec';
import { rowError, type Cells, type FixedCells } from './cells.js';

/** Values by column: numbers, texts, lists (nested ones too), typed arrays, and the bytes of an image file. Null or left out is missing. */
export type RawRow = Readonly<Record<string, unknown>>;

const encoder = new TextEncoder();
const product = (shape: readonly number[]): number => shape.reduce((all, n) => all * n, 1);
const isMissing = (value: unknown): boolean => value === undefined || value === null || value === '';

interface Pieces {
  readonly kind: 'sequence' | 'text' | 'image';
  readonly size: number;
}

export class RawCells implements Cells {
  readonly subject = 'rows';
  private readonly sizes = new Map<string, number>();
  private readonly pieceKinds = new Map<string, Pieces>();
  private readonly isCategory = new Set<string>();
  private readonly found = new Map<string, FixedCells>();
  private readonly vocabularies = new Map<string, string[]>();

  constructor(
    private readonly given: readonly RawRow[],
    plan: FeaturePlan,
  ) {
    for (const { encoders } of [...plan.inputs, ...plan.targets]) for (const each of encoders) this.note(each);
    if (plan.weight.column !== undefined) this.sizes.set(plan.weight.column, 1);
  }

  get rows(): number {
    return this.given.length;
  }

  fixed(column: string): FixedCells {
    let cells = this.found.get(column);
    if (!cells) this.found.set(column, (cells = this.isCategory.has(column) ? this.codes(column) : this.numbers(column)));
    return cells;
  }

  pieces(column: string): readonly FixedCells[] {
    const { kind, size } = this.pieceKinds.get(column)!;
    return this.given.map((row, i) => {
      const value = row[column];
      if (kind === 'text') return encoder.encode(isMissing(value) ? '' : this.text(value, i, column));
      if (kind === 'image')
        return value instanceof Uint8Array ? value : this.refuse(i, column, 'must be the bytes of a PNG, JPEG or WebP file', value);
      const elements = isMissing(value) ? [] : this.elements(value, i, column);
      if (elements.length % size !== 0)
        this.refuse(i, column, `must have elements of ${size} numbers; there are ${elements.length} numbers`);
      return Float32Array.from(elements);
    });
  }

  vocabulary(column: string): readonly string[] {
    this.fixed(column);
    return this.vocabularies.get(column)!;
  }

  private note(each: Encoder): void {
    if (each.kind === 'numbers') for (const name of each.columns) this.sizes.set(name, 1);
    else if (each.kind === 'array') this.sizes.set(each.column, product(each.shape));
    else if (each.kind === 'sequence') this.pieceKinds.set(each.column, { kind: 'sequence', size: product(each.shape) });
    else if (each.kind === 'text' || each.kind === 'image') this.pieceKinds.set(each.column, { kind: each.kind, size: 1 });
    else if (each.kind !== 'same') this.isCategory.add(each.column);
  }

  private codes(column: string): Int32Array {
    const codes = new Map<string, number>();
    const found = Int32Array.from(this.given, (row, i) => {
      const value = row[column];
      if (isMissing(value)) return -1;
      const text = this.text(value, i, column).trim();
      if (text === '') return -1;
      if (!codes.has(text)) codes.set(text, codes.size);
      return codes.get(text)!;
    });
    this.vocabularies.set(column, [...codes.keys()]);
    return found;
  }

  private numbers(column: string): Float32Array {
    const size = this.sizes.get(column)!;
    const isScalar = size === 1;
    const values = new Float32Array(this.rows * size);
    for (const [i, row] of this.given.entries()) {
      const value = row[column];
      if (isScalar && !isList(value)) {
        values[i] = isMissing(value) ? NaN : this.number(value, i, column);
        continue;
      }
      const elements = this.elements(value, i, column);
      if (elements.length !== size) this.refuse(i, column, `must have ${size} numbers; there are ${elements.length}`);
      values.set(elements, i * size);
    }
    return values;
  }

  private text(value: unknown, row: number, column: string): string {
    if (typeof value === 'string') return value;
    if (typeof value === 'number' || typeof value === 'boolean' || typeof value === 'bigint') return String(value);
    return this.refuse(row, column, 'must be a text', value);
  }

  private number(value: unknown, row: number, column: string): number {
    if (typeof value === 'number' || typeof value === 'boolean' || typeof value === 'bigint')
      return this.bounded(Number(value), row, column);
    // Number() takes 0x1f too.
    const isNumber = typeof value === 'string' && value.trim() !== '' && !Number.isNaN(Number(value)) && !/^\s*0[xob]/i.test(value);
    return isNumber ? this.bounded(Number(value), row, column) : this.refuse(row, column, 'must be a number', value);
  }

  private bounded(value: number, row: number, column: string): number {
    const isTooLarge = !Number.isNaN(value) && !Number.isFinite(Math.fround(value));
    return isTooLarge ? this.refuse(row, column, `must be a number that float32 holds, not ${value}`) : value;
  }

  private elements(value: unknown, row: number, column: string): readonly number[] | FixedCells {
    if (value instanceof Float32Array || value instanceof Int32Array || value instanceof Uint8Array) return value;
    if (!isList(value)) return this.refuse(row, column, 'must be a list of numbers', value);
    const flat: unknown[] = Array.from(value as ArrayLike<unknown>).flat(Infinity);
    return flat.map((each) => this.number(each, row, column));
  }

  private refuse(row: number, column: string, expected: string, value?: unknown): never {
    const type = value === null ? 'null' : Array.isArray(value) ? 'a list' : typeof value;
    const shown = value === undefined ? '' : typeof value === 'string' ? `, not ${JSON.stringify(value.slice(0, 40))}` : `, not ${type}`;
    throw rowError(this.subject, row, column, `${expected}${shown}`);
  }
}

const isList = (value: unknown): boolean => Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView));
