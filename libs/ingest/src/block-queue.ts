/**
 * Rows on their way to the shards: cells are converted column by column in the order of the source, rows with missing values are refused or left
 * out, and what remains is handed on in blocks of 100 rows.
 */
import { flattened, type Cell, type RowBatch } from './cell.js';
import type { ColumnState } from './column.js';
import { IngestError, type Place } from './ingest-error.js';
import type { MissingPolicy } from './options.js';
import { BLOCK_ROWS, type BlockSplits } from './splits.js';
import { joined, rowsAfter, type StoredCell, type StoredColumn, type StoredRows } from './stored-rows.js';

/** Whole numbers below are float32. */
const INTEGERS_EXACT_TO = 2 ** 24;
const BLANK = 0x20;
const FIRST_LETTER = 0x40;

export class RowConverter {
  dropped = 0;
  private names: readonly string[] | undefined;
  /** Where the cell of each column is in a row; -1 when the row has none. */
  private positions: number[] = [];
  private readonly known: ReadonlySet<string>;

  constructor(
    private readonly columns: readonly ColumnState[],
    ignored: ReadonlySet<string>,
    private readonly missing: MissingPolicy,
  ) {
    this.known = new Set([...columns.map(({ name }) => name), ...ignored]);
  }

  /**
   * @returns the rows that stay
   * @throws IngestError VALUE_MISSING, VALUE_MISFIT, COLUMN_UNKNOWN with file, row and column
   */
  convert(batch: RowBatch): StoredRows {
    if (batch.names !== this.names) this.learnNames(batch);
    const { rows: cells, numbers } = this.staying(batch);
    const columns = this.columns.map((column, c): StoredColumn => {
      const position = this.positions[c]!;
      const placeOf = (row: number): Place => ({
        file: batch.file,
        row: numbers ? numbers[row]! : batch.firstRow + row,
        column: column.name,
      });
      const stored = emptyColumn(column, cells.length);
      if (stored instanceof Float32Array) this.fillNumbers(stored, column, cells, position, placeOf);
      else if (stored instanceof Int32Array) this.fillCodes(stored, column, cells, position, placeOf);
      else for (let row = 0; row < cells.length; row++) stored[row] = this.value(column, cells[row]![position], () => placeOf(row));
      return stored;
    });
    return { count: cells.length, columns };
  }

  /** @returns numbers of the rows in their file where some were left out */
  private staying({ rows, firstRow }: RowBatch): { readonly rows: readonly Cell[][]; readonly numbers: readonly number[] | undefined } {
    if (this.missing !== 'drop') return { rows, numbers: undefined };
    const stay: Cell[][] = [];
    const numbers: number[] = [];
    for (const [i, cells] of rows.entries()) {
      if (this.hasMissing(cells)) this.dropped++;
      else {
        stay.push(cells);
        numbers.push(firstRow + i);
      }
    }
    return { rows: stay, numbers };
  }

  private fillNumbers(
    into: Float32Array,
    column: ColumnState,
    rows: readonly Cell[][],
    position: number,
    placeOf: (row: number) => Place,
  ): void {
    const isPlain = column.form.kind === 'number' && column.form.decimal === undefined;
    for (let row = 0; row < rows.length; row++) {
      const cell = rows[row]![position];
      if (isPlain && typeof cell === 'string') {
        // The common case of large tables, before anything else is asked: digits, no blank and no 0x in front.
        const value = +cell;
        if (value > 1e-6 && value < INTEGERS_EXACT_TO && cell.charCodeAt(0) > BLANK && !(cell.charCodeAt(1) >= FIRST_LETTER)) {
          into[row] = value;
          continue;
        }
      }
      into[row] = this.value(column, cell, () => placeOf(row)) as number;
    }
  }

  private fillCodes(
    into: Int32Array,
    column: ColumnState,
    rows: readonly Cell[][],
    position: number,
    placeOf: (row: number) => Place,
  ): void {
    for (let row = 0; row < rows.length; row++) {
      const cell = rows[row]![position];
      const known = typeof cell === 'string' ? column.vocabulary.get(cell) : undefined;
      into[row] = known ?? (this.value(column, cell, () => placeOf(row)) as number);
    }
  }

  private value(column: ColumnState, given: Cell, place: () => Place): StoredCell {
    const cell = typeof given === 'object' && column.isScalar ? flattened(given) : given;
    if (column.isMissing(cell)) {
      if (this.missing === 'refuse') throw new IngestError('VALUE_MISSING', 'There is no value.', place());
      if (column.isLabel)
        throw new IngestError(
          'VALUE_MISSING',
          'The label has no value, and a label is never filled: leave such rows out, or import without a label.',
          place(),
        );
      return column.missingValue(place());
    }
    return column.convert(cell, place);
  }

  private hasMissing(cells: readonly Cell[]): boolean {
    for (let c = 0; c < this.columns.length; c++) {
      const column = this.columns[c]!;
      const cell = cells[this.positions[c]!];
      if (column.isMissing(column.isScalar ? flattened(cell) : cell)) return true;
    }
    return false;
  }

  private learnNames(batch: RowBatch): void {
    const at = new Map(batch.names.map((name, i) => [name, i]));
    for (const name of batch.names)
      if (!this.known.has(name)) {
        const position = at.get(name)!;
        const first = batch.rows.findIndex((row) => row[position] !== undefined);
        const row = batch.firstRow + Math.max(0, first);
        throw new IngestError('COLUMN_UNKNOWN', 'The rows before have no such column.', { file: batch.file, row, column: name });
      }
    this.positions = this.columns.map(({ name }) => at.get(name) ?? -1);
    this.names = batch.names;
  }
}

function emptyColumn({ form: { kind } }: ColumnState, rows: number): StoredColumn {
  if (kind === 'number') return new Float32Array(rows);
  return kind === 'category' ? new Int32Array(rows) : new Array<StoredCell>(rows);
}

/** Gathers rows until whole blocks of 100 are there; the last block may be smaller. */
export class BlockQueue {
  private waiting: StoredRows | undefined;

  constructor(readonly splits: BlockSplits) {}

  /** @returns the rows that wait, of which so many are whole blocks; the others wait on */
  push(rows: StoredRows): { readonly rows: StoredRows; readonly whole: number } {
    const all = this.waiting ? joined(this.waiting, rows) : rows;
    const whole = all.count - (all.count % BLOCK_ROWS);
    this.waiting = whole < all.count ? rowsAfter(all, whole) : undefined;
    return { rows: all, whole };
  }

  take(): StoredRows | undefined {
    const rows = this.waiting;
    this.waiting = undefined;
    return rows;
  }
}
