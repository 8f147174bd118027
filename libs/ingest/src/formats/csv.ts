/**
 * CSV and TSV by csv-parse: quotes, quoted line ends, a byte order mark. Rows have as many cells as the first; the delimiter and whether there
 * is a header are found in the first lines unless they are said. Cells are strings here; their types are inferred later.
 */
import { isUtf8 } from 'node:buffer';
import { Parser, type CsvError } from 'csv-parse';
import type { Cell, RowBatch } from '../cell.js';
import { checkNames, isMissingNumber } from '../infer.js';
import { IngestError } from '../ingest-error.js';
import { isNumberText, type DecimalSign } from '../number-text.js';
import type { CheckedOptions } from '../options.js';
import { unpacked } from '../sources/compression.js';
import type { SourceContext, SourceFile } from '../sources/source-file.js';

export const DELIMITERS: readonly string[] = [',', ';', '\t', '|'];
const SNIFF_BYTES = 64 << 10;
/** Pieces of this size give batches of some hundred rows. */
const PIECE_BYTES = 64 << 10;

export async function* readCsv(file: SourceFile, context: SourceContext, isTsv: boolean): AsyncGenerator<RowBatch> {
  const { options } = context;
  let parser: CsvRows | undefined;
  const encoding = new EncodingCheck(file.name);
  let sniffed: Uint8Array[] = [];
  let sniffedBytes = 0;
  const start = (): CsvRows => {
    const text = new TextDecoder().decode(Buffer.concat(sniffed).subarray(0, SNIFF_BYTES));
    const delimiter = options.delimiter ?? (isTsv ? '\t' : delimiterOf(text, options.decimal));
    return new CsvRows(file.name, delimiter, options);
  };
  try {
    for await (const whole of littleEndian(unpacked(file, context))) {
      for (let from = 0; from < whole.length; from += PIECE_BYTES) {
        const piece = whole.subarray(from, from + PIECE_BYTES);
        encoding.push(piece);
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
    encoding.end();
    yield* parser.end();
  } finally {
    parser?.close();
  }
}

/** UTF-16 in the other order of bytes, which the parser does not read, by its byte order mark. All else as it is. */
async function* littleEndian(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let isSwapped: boolean | undefined;
  let rest: Uint8Array = new Uint8Array(0);
  for await (const piece of pieces) {
    if (isSwapped === false) {
      yield piece;
      continue;
    }
    const bytes = Buffer.concat([rest, piece]);
    if (isSwapped === undefined && bytes.length < 2) {
      rest = bytes;
      continue;
    }
    isSwapped ??= bytes[0] === 0xfe && bytes[1] === 0xff;
    const end = isSwapped ? bytes.length - (bytes.length % 2) : bytes.length;
    rest = bytes.subarray(end);
    yield isSwapped ? bytes.subarray(0, end).swap16() : bytes;
  }
  if (rest.length > 0) yield rest;
}

/** Bytes that are no UTF-8 would all be read as one character: Müller and Möller would be one word. UTF-16 says by its first bytes that it is. */
class EncodingCheck {
  private rest: Uint8Array = new Uint8Array(0);
  private isOther: boolean | undefined;

  constructor(private readonly file: string) {}

  /** @throws IngestError FORMAT_MALFORMED */
  push(piece: Uint8Array): void {
    this.isOther ??= (piece[0] === 0xff && piece[1] === 0xfe) || (piece[0] === 0xfe && piece[1] === 0xff);
    if (this.isOther) return;
    const bytes = this.rest.length > 0 ? Buffer.concat([this.rest, piece]) : piece;
    const end = wholeCharacters(bytes);
    if (!isUtf8(bytes.subarray(0, end))) this.refuse();
    this.rest = bytes.slice(end);
  }

  /** @throws IngestError FORMAT_MALFORMED */
  end(): void {
    if (this.rest.length > 0) this.refuse();
  }

  private refuse(): never {
    throw new IngestError('FORMAT_MALFORMED', 'The text is not UTF-8: save the file as UTF-8 (in Excel: "CSV UTF-8").', {
      file: this.file,
    });
  }
}

/** Bytes in front of a character that is cut off at the end. */
function wholeCharacters(bytes: Uint8Array): number {
  const { length } = bytes;
  for (let back = 1; back <= Math.min(3, length); back++) {
    const byte = bytes[length - back]!;
    if (byte >= 0xc0) return (byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2) > back ? length - back : length;
    if (byte < 0x80) return length;
  }
  return length;
}

/** Whichever of the delimiters the first line that has any has most of, outside of quotes. */
export function delimiterOf(text: string, decimal?: DecimalSign): string {
  const counts = new Map<string, number>();
  let [isQuoted, isHeader] = [false, true];
  for (const character of text.replace(/^[\r\n]+/, '')) {
    if (character === '"') isQuoted = !isQuoted;
    else if (!isQuoted && (character === '\n' || character === '\r')) {
      if (counts.size > 0) break;
      isHeader = false;
    } else if (!isQuoted && DELIMITERS.includes(character) && (isHeader || character !== decimal))
      counts.set(character, (counts.get(character) ?? 0) + 1);
  }
  // A decimal comma separates no columns, unless it stands in the header and nothing else does.
  if (decimal === ',' && counts.size > 1) counts.delete(',');
  let found = decimal === ',' && !counts.has(',') ? ';' : ',';
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
    private readonly options: CheckedOptions,
  ) {
    this.parser = new RowParser({
      delimiter,
      bom: true,
      skip_empty_lines: true,
      max_record_size: options.limits.rowBytes,
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
      const { header, decimal } = this.options;
      if (body.length === 1 && header === undefined && !isEnd) {
        this.first = body[0];
        return undefined;
      }
      const hasHeader = header ?? looksLikeHeader(body[0]!, body.slice(1, 20), decimal);
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

/** Names are no numbers, differ, and stand above something that is not like them. Where each column of numbers begins with a word, it is a name, whatever the others are. */
function looksLikeHeader(first: readonly string[], rows: readonly string[][], decimal: DecimalSign | undefined): boolean {
  const isNumber = (cell: string): boolean => isNumberText(cell, decimal);
  const ofNumbers = first
    .map((_, i) => i)
    .filter((i) => {
      const cells = rows.map((row) => row[i] ?? '').filter((cell) => !isMissingNumber(cell));
      return cells.length > 0 && cells.every(isNumber);
    });
  const isWord = (cell: string): boolean => !isMissingNumber(cell) && !isNumber(cell);
  if (ofNumbers.length > 0 && ofNumbers.every((i) => isWord(first[i]!))) return true;
  if (first.some(isNumber) || new Set(first).size < first.length) return false;
  if (rows.length === 0) return true;
  if (rows.some((row) => row.some(isNumber))) return true;
  // All texts: a header is then what people write; a word of it that occurs again below was a value.
  return !rows.some((row) => row.some((cell, i) => cell !== '' && cell === first[i]));
}
