/**
 * CSV and TSV by csv-parse: quotes, quoted line ends, a byte order mark. Rows have as many cells as the first; the delimiter and whether there
 * is a header are found in the first lines unless they are said. Cells are strings here; their types are inferred later.
 */
import { Parser, type CsvError } from 'csv-parse';
import type { Cell, RowBatch } from '../cell.js';
import { checkNames, isNumberText } from '../infer.js';
import { IngestError } from '../ingest-error.js';
import { unpacked } from '../sources/compression.js';
import type { SourceContext, SourceFile } from '../sources/source-file.js';

const DELIMITERS = [',', ';', '\t', '|'];
const SNIFF_BYTES = 64 << 10;
/** Pieces of this size give batches of some hundred rows. */
const PIECE_BYTES = 64 << 10;

export async function* readCsv(file: SourceFile, context: SourceContext, isTsv: boolean): AsyncGenerator<RowBatch> {
  const { options } = context;
  let parser: CsvRows | undefined;
  let sniffed: Uint8Array[] = [];
  let sniffedBytes = 0;
  const start = (): CsvRows => {
    const text = new TextDecoder().decode(Buffer.concat(sniffed).subarray(0, SNIFF_BYTES));
    return new CsvRows(file.name, options.delimiter ?? (isTsv ? '\t' : delimiterOf(text)), options.header, options.limits.rowBytes);
  };
  try {
    for await (const whole of unpacked(file, context)) {
      for (let from = 0; from < whole.length; from += PIECE_BYTES) {
        const piece = whole.subarray(from, from + PIECE_BYTES);
        if (parser) yield* parser.push(piece);
        else {
          sniffed.push(piece);
          sniffedBytes += piece.length;
          if (sniffedBytes < SNIFF_BYTES) continue;
          parser = start();
          for (const early of sniffed) yield* parser.push(early);
          sniffed = [];
        }
      }
    }
    if (!parser) {
      parser = start();
      for (const early of sniffed) yield* parser.push(early);
    }
    yield* parser.end();
  } finally {
    parser?.close();
  }
}

/** Whichever of the delimiters the first line has most of, outside of quotes. */
export function delimiterOf(text: string): string {
  const counts = new Map<string, number>();
  let isQuoted = false;
  for (const character of text) {
    if (character === '"') isQuoted = !isQuoted;
    else if (!isQuoted && (character === '\n' || character === '\r')) {
      if (counts.size > 0) break;
    } else if (!isQuoted && DELIMITERS.includes(character)) counts.set(character, (counts.get(character) ?? 0) + 1);
  }
  let found = ',';
  for (const [delimiter, count] of counts) if (count > (counts.get(found) ?? 0)) found = delimiter;
  return found;
}

/** Takes the rows where csv-parse would hand them to its object stream, which costs twice the time; its callback makes a record of figures for each. */
class RowParser extends Parser {
  rows: string[][] = [];

  override push(row: string[] | null): boolean {
    if (row === null) return super.push(null);
    this.rows.push(row);
    return true;
  }
}

class CsvRows {
  private readonly parser: RowParser;
  private names: readonly string[] | undefined;
  private first: string[] | undefined;
  private row = 1;
  private failure: Error | undefined;

  constructor(
    private readonly file: string,
    delimiter: string,
    private readonly header: boolean | undefined,
    maxRowBytes: number,
  ) {
    this.parser = new RowParser({
      delimiter,
      bom: true,
      skip_empty_lines: true,
      max_record_size: maxRowBytes,
    });
    this.parser.on('error', (error) => (this.failure ??= error));
    this.parser.resume();
  }

  async *push(piece: Uint8Array): AsyncGenerator<RowBatch> {
    await new Promise<void>((resolve) => this.parser.write(piece, () => resolve()));
    yield* this.ready(false);
  }

  async *end(): AsyncGenerator<RowBatch> {
    if (!this.failure)
      await new Promise<void>((resolve) => {
        this.parser.once('error', () => resolve());
        this.parser.end(() => resolve());
      });
    yield* this.ready(true);
  }

  close(): void {
    this.parser.destroy();
  }

  private *ready(isEnd: boolean): Generator<RowBatch> {
    const { rows } = this.parser;
    this.parser.rows = [];
    const batch = this.batchOf(rows, isEnd);
    if (batch && batch.rows.length > 0) yield batch;
    if (this.failure) throw this.translated(this.failure as CsvError);
  }

  /** Whether the first row is a header may need the second. */
  private batchOf(rows: string[][], isEnd: boolean): RowBatch | undefined {
    let body = rows;
    if (!this.names) {
      if (this.first) body = [this.first, ...rows];
      if (body.length === 0) return undefined;
      if (body.length === 1 && this.header === undefined && !isEnd) {
        this.first = body[0];
        return undefined;
      }
      const hasHeader = this.header ?? looksLikeHeader(body[0]!, body.slice(1, 20));
      this.names = hasHeader ? named(body[0]!) : body[0]!.map((_, i) => `column${i + 1}`);
      if (hasHeader) body = body.slice(1);
      checkNames(this.names, this.file);
    }
    const batch = { names: this.names, rows: body as Cell[][], file: this.file, firstRow: this.row };
    this.row += body.length;
    return batch;
  }

  private translated(error: CsvError): IngestError {
    const place = { file: this.file, row: this.row };
    const code = (error as { code?: string }).code ?? '';
    if (code === 'CSV_MAX_RECORD_SIZE')
      return new IngestError('ROW_TOO_LONG', 'The row is longer than the limit.', place, { cause: error });
    if (code === 'CSV_RECORD_INCONSISTENT_FIELDS_LENGTH') {
      const found = (error as unknown as { record?: unknown[] }).record?.length;
      const wanted = this.names?.length ?? this.first?.length;
      return new IngestError('COLUMN_COUNT', `The row has ${found ?? 'other'} columns, the first row ${wanted ?? 'others'}.`, place, {
        cause: error,
      });
    }
    return new IngestError('FORMAT_MALFORMED', `${error.message}.`, place, { cause: error });
  }
}

const named = (header: readonly string[]): string[] => header.map((name, i) => name.trim() || `column${i + 1}`);

/** Names are no numbers, differ, and stand above something that is not like them. */
function looksLikeHeader(first: readonly string[], rows: readonly string[][]): boolean {
  if (first.some((name) => isNumberText(name)) || new Set(first).size < first.length) return false;
  if (rows.length === 0) return true;
  if (rows.some((row) => row.some((cell) => isNumberText(cell)))) return true;
  // All texts: a header is then what people write; a word of it that occurs again below was a value.
  return !rows.some((row) => row.some((cell, i) => cell !== '' && cell === first[i]));
}
