/** The first rows of a source, kept until the types of the columns follow from them. Bounded by rows and by size. */
import { DATASET_LIMITS } from '@paceline/spec';
import { isArrayCell, isImageCell, type Cell, type Part, type RowBatch } from './cell.js';
import { ColumnState, type VocabularyBudget } from './column.js';
import { checkNames, inferForm, isMissingNumber } from './infer.js';
import { IngestError, shown } from './ingest-error.js';
import { DECIMAL_HINT, isNumberInAnyStyle, isNumberText } from './number-text.js';
import type { CheckedOptions } from './options.js';

const HEAD_ROWS = 10_000;
const HEAD_BYTES = 32 << 20;

export class HeadBuffer {
  private batches: RowBatch[] = [];
  private readonly positions = new Map<readonly string[], ReadonlyMap<string, number>>();
  rows = 0;
  private bytes = 0;

  add(batch: RowBatch): void {
    this.batches.push(batch);
    this.rows += batch.rows.length;
    for (const row of batch.rows) for (const cell of row) this.bytes += weight(cell);
  }

  get isFull(): boolean {
    return this.rows >= HEAD_ROWS || this.bytes >= HEAD_BYTES;
  }

  get file(): string {
    return this.batches[0]!.file;
  }

  /** In the order in which they appeared. Later batches have the names of the earlier ones, and perhaps more. */
  names(): string[] {
    return [...new Set(this.batches.flatMap(({ names }) => names))];
  }

  cells(name: string): Cell[] {
    return this.batches.flatMap((batch) => {
      const position = this.positionsIn(batch.names).get(name);
      return position === undefined ? [] : batch.rows.map((row) => row[position]);
    });
  }

  private positionsIn(names: readonly string[]): ReadonlyMap<string, number> {
    let known = this.positions.get(names);
    if (!known) this.positions.set(names, (known = new Map(names.map((name, i) => [name, i]))));
    return known;
  }

  take(): RowBatch[] {
    const { batches } = this;
    this.batches = [];
    return batches;
  }
}

function weight(cell: Cell): number {
  if (typeof cell === 'string') return 16 + 2 * cell.length;
  if (isArrayCell(cell)) return 64 + 8 * cell.values.length;
  return isImageCell(cell) ? 64 + cell.bytes.length : 8;
}

/** @throws IngestError COLUMN_UNKNOWN, COLUMN_NAME_INVALID, TOO_MANY_COLUMNS and what `inferForm` throws */
export function inferColumns(
  head: HeadBuffer,
  options: CheckedOptions,
  { label, types = {} }: Pick<Part, 'label' | 'types'>,
): { columns: ColumnState[]; ignored: Set<string>; warnings: string[] } {
  const { file } = head;
  const names = head.names();
  const wanted = names.filter((name) => options.columns.get(name) !== 'ignore');
  checkNames(wanted, file);
  const known = new Set(names);
  for (const name of [...options.columns.keys(), ...(options.label === undefined ? [] : [options.label])])
    if (!known.has(name)) {
      const list = names.slice(0, 20).map((known) => JSON.stringify(known));
      throw new IngestError('COLUMN_UNKNOWN', `The columns are ${list.join(', ')}${names.length > 20 ? ', ...' : ''}.`, {
        file,
        column: name,
      });
    }
  if (wanted.length === 0) throw new IngestError('NO_ROWS', 'No column is left.', { file });
  const budget: VocabularyBudget = { left: DATASET_LIMITS.vocabularyEntries };
  const warnings: string[] = [];
  const columns = wanted.map((name) => {
    const cells = head.cells(name);
    const forced = options.columns.get(name) ?? (Object.hasOwn(types, name) ? types[name] : undefined);
    const form = inferForm(cells, forced, name === label, { file, column: name }, options.decimal);
    if (forced === undefined && (form.kind === 'category' || form.kind === 'text')) warnings.push(...unreadNumbers(name, form.kind, cells));
    return new ColumnState(name, form, budget, name === label);
  });
  return { columns, ignored: new Set(names.filter((name) => options.columns.get(name) === 'ignore')), warnings };
}

/** Numbers of another style than that of programs are words here, and nobody would see it. */
function unreadNumbers(name: string, kind: string, cells: readonly Cell[]): string[] {
  const texts = cells.filter((cell): cell is string => typeof cell === 'string' && !isMissingNumber(cell));
  const odd = texts.find((text) => !isNumberText(text));
  if (odd === undefined || !texts.every(isNumberInAnyStyle)) return [];
  return [`Column ${shown(name)} holds numbers such as ${shown(odd)}, and became a ${kind} column: ${DECIMAL_HINT}.`];
}
