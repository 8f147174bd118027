/**
 * Plain JavaScript values as cells: what JSON Lines and modules have. Objects inside of a row become columns with a dot in their names; lists
 * must hold numbers, nested ones of one length.
 */
import type { ArrayCell, Cell } from '../cell.js';
import { IngestError, type Place } from '../ingest-error.js';

const DEPTH_MAX = 8;
const RANK_MAX = 6;
/** As many as a dataset may have columns: one row cannot make more names than that. */
const NAMES_MAX = 100_000;

/** Names in order of first appearance; rows of cells by their position. A new list whenever a name is added. */
export class NameTable {
  private readonly positions = new Map<string, number>();
  names: readonly string[] = [];

  position(name: string, place: Place): number {
    const known = this.positions.get(name);
    if (known !== undefined) return known;
    const added = this.positions.size;
    if (added >= NAMES_MAX) throw new IngestError('TOO_MANY_COLUMNS', `More than ${NAMES_MAX} names.`, place);
    this.positions.set(name, added);
    return added;
  }

  /** Call once per batch. */
  refresh(): readonly string[] {
    if (this.names.length !== this.positions.size) this.names = [...this.positions.keys()];
    return this.names;
  }
}

/** @throws IngestError for what no cell can hold */
export function rowOf(record: object, table: NameTable, place: Place): Cell[] {
  const row: Cell[] = [];
  fill(record, '', row, table, place, 0);
  return row;
}

function fill(record: object, prefix: string, row: Cell[], table: NameTable, place: Place, depth: number): void {
  if (depth > DEPTH_MAX) throw new IngestError('UNSUPPORTED', `Objects are nested more than ${DEPTH_MAX} deep.`, place);
  for (const [key, value] of Object.entries(record)) {
    const name = prefix + key;
    if (isPlainObject(value)) fill(value, `${name}.`, row, table, place, depth + 1);
    else row[table.position(name, place)] = cellOf(value, { file: place.file, row: place.row, column: name });
  }
}

const isPlainObject = (value: unknown): value is object => {
  if (typeof value !== 'object' || value === null || Array.isArray(value) || ArrayBuffer.isView(value)) return false;
  if (value instanceof Date) return false;
  if ((value as { kind?: unknown }).kind === 'image' || (value as { kind?: unknown }).kind === 'array') return isForeign(value);
  return true;
};
/** A cell that a reader has made is no object of the file: its bytes are a typed array. */
const isForeign = (value: object): boolean =>
  !ArrayBuffer.isView((value as { bytes?: unknown }).bytes) && !ArrayBuffer.isView((value as { values?: unknown }).values);

export function cellOf(value: unknown, place: Place): Cell {
  switch (typeof value) {
    case 'string':
    case 'number':
    case 'boolean':
    case 'bigint':
    case 'undefined':
      return value;
    case 'object':
      if (value === null) return null;
      if (Array.isArray(value)) return nested(value, place);
      if (ArrayBuffer.isView(value)) return typed(value, place);
      // Float32 has no room for moments: as texts they lose nothing.
      if (value instanceof Date) return value.toISOString();
      return value as Cell;
    default:
      throw new IngestError('UNSUPPORTED', `A value of type ${typeof value} stands in no column.`, place);
  }
}

function typed(value: ArrayBufferView, place: Place): ArrayCell {
  if (value instanceof Float32Array || value instanceof Int32Array || value instanceof Uint8Array || value instanceof Float64Array)
    return { kind: 'array', values: value, shape: [value.length] };
  if (value instanceof Int8Array || value instanceof Int16Array || value instanceof Uint16Array || value instanceof Uint8ClampedArray)
    return { kind: 'array', values: Int32Array.from(value), shape: [value.length] };
  throw new IngestError('UNSUPPORTED', `A ${value.constructor.name} is not read; use a Float32Array, Int32Array or Uint8Array.`, place);
}

function nested(list: readonly unknown[], place: Place): ArrayCell {
  const shape: number[] = [];
  for (let level: unknown = list; Array.isArray(level); level = (level as unknown[])[0]) {
    shape.push(level.length);
    if (shape.length > RANK_MAX) throw new IngestError('UNSUPPORTED', `Lists are nested more than ${RANK_MAX} deep.`, place);
  }
  const values: number[] = [];
  flatten(list, 0, shape, values, place);
  return { kind: 'array', values, shape };
}

function flatten(list: readonly unknown[], depth: number, shape: readonly number[], values: number[], place: Place): void {
  if (list.length !== shape[depth]) throw new IngestError('VALUE_MISFIT', 'Lists inside of the list have several lengths.', place);
  for (const item of list) {
    if (Array.isArray(item) && depth + 1 < shape.length) flatten(item, depth + 1, shape, values, place);
    else if (depth + 1 === shape.length && (typeof item === 'number' || typeof item === 'boolean' || typeof item === 'bigint'))
      values.push(Number(item));
    else if (depth + 1 === shape.length && item === null) values.push(NaN);
    else throw new IngestError('VALUE_MISFIT', 'The list holds something else than numbers, or lists and numbers mixed.', place);
  }
}
