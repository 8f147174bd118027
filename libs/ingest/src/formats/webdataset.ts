/**
 * WebDataset: a tar archive in which consecutive files with the same name up to the first dot are one row. The ending names the column:
 * pictures are image, cls is label, txt is text, the fields of a json are columns.
 */
import { BATCH_ROWS, type Cell, type Part, type RowBatch } from '../cell.js';
import { IngestError } from '../ingest-error.js';
import { ByteReader } from '../sources/byte-reader.js';
import { tarEntries, type ArchiveEntry } from '../sources/tar.js';
import { splitInName, type SourceContext, type SourceFile } from '../sources/source-file.js';
import { parseJson } from './exact-json.js';
import { openNpy } from './npy.js';
import { NameTable } from './plain-cells.js';
import { recordRow } from './records.js';
import { inSplitOrder } from './array-columns.js';

const BATCH_BYTES = 16 << 20;
const FILES_PER_ROW_MAX = 1000;

export const webDatasetParts = (files: readonly SourceFile[], context: SourceContext): Part[] =>
  inSplitOrder(files.map((file) => [file.split ?? splitInName(file.relative), file] as const)).map(([split, file]) => ({
    split,
    types: { text: 'text' },
    read: () => readWebDataset(file, context),
  }));

async function* readWebDataset(file: SourceFile, context: SourceContext): AsyncGenerator<RowBatch> {
  const table = new NameTable();
  let rows: Cell[][] = [];
  let firstRow = 1;
  let bytes = 0;
  for await (const files of samples(file, context)) {
    const place = { file: file.name, row: firstRow + rows.length };
    rows.push(await recordRow(await record(files, place, context), table, place));
    bytes += files.reduce((sum, entry) => sum + entry.bytes.length, 0);
    if (rows.length < BATCH_ROWS && bytes < BATCH_BYTES) continue;
    yield { names: table.refresh(), rows, file: file.name, firstRow };
    firstRow += rows.length;
    rows = [];
    bytes = 0;
  }
  if (rows.length > 0) yield { names: table.refresh(), rows, file: file.name, firstRow };
}

interface SampleFile {
  readonly ending: string;
  readonly name: string;
  readonly bytes: Uint8Array;
}

async function* samples(file: SourceFile, context: SourceContext): AsyncGenerator<SampleFile[]> {
  let key: string | undefined;
  let files: SampleFile[] = [];
  let bytes = 0;
  for await (const entry of tarEntries(file, context)) {
    const parts = /^(?<key>(?:.*\/)?[^./][^./]*)\.(?<ending>[^/]+)$/.exec(entry.name)?.groups;
    if (!parts) continue; // no ending: a note, or a file of the operating system
    if (parts['key'] !== key && files.length > 0) {
      yield files;
      files = [];
      bytes = 0;
    }
    key = parts['key'];
    files.push({ ending: parts['ending']!.toLowerCase(), name: entry.name, bytes: entry.bytes });
    bytes += entry.bytes.length;
    if (files.length > FILES_PER_ROW_MAX || bytes > context.options.limits.rowBytes)
      throw new IngestError('ROW_TOO_LONG', `One row has ${files.length} files of ${bytes} bytes.`, { file: `${file.name}/${entry.name}` });
  }
  if (files.length > 0) yield files;
}

async function record(files: readonly SampleFile[], place: { file: string; row: number }, context: SourceContext): Promise<object> {
  const entries: [string, unknown][] = [];
  for (const file of files) for (const field of await fields(file, place, context)) entries.push(field);
  const names = new Set(entries.map(([name]) => name));
  if (names.size < entries.length)
    throw new IngestError('FORMAT_MALFORMED', `Two files of the row ${files[0]!.name} are the same column.`, place);
  return Object.fromEntries(entries);
}

async function fields(
  { ending, name, bytes }: SampleFile,
  place: { file: string; row: number },
  { options }: SourceContext,
): Promise<[string, unknown][]> {
  const inside = { file: `${place.file}/${name}`, row: place.row };
  if (/(?:^|\.)(?:png|jpe?g|webp)$/.test(ending))
    return [[ending.includes('.') ? ending.replace(/\.[^.]*$/, '') : 'image', { image: bytes }]];
  if (ending === 'cls' || ending === 'cls2') return [['label', textOf(bytes, inside).trim()]];
  if (ending === 'txt' || ending === 'text') return [['text', textOf(bytes, inside)]];
  if (ending === 'json') {
    const value = jsonOf(textOf(bytes, inside), inside);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? Object.entries(value) : [['json', value]];
  }
  if (ending.endsWith('npy')) {
    const column = await openNpy(new ByteReader(one(bytes), inside.file), ending, inside.file, options.limits.rowBytes);
    const cells = await column.read(column.rows);
    await column.close();
    return [[ending, stacked(cells, inside)]];
  }
  throw new IngestError(
    'UNSUPPORTED',
    `Files with the ending .${ending} are not read: png, jpg, webp, cls, txt, json and npy are.`,
    inside,
  );
}

/** The rows of an array inside of one row are its first dimension. */
function stacked(cells: readonly Cell[], place: { file: string; row: number }): Cell {
  const values: number[] = [];
  let inner: readonly number[] = [];
  for (const cell of cells) {
    if (typeof cell === 'number' || typeof cell === 'boolean' || typeof cell === 'bigint') values.push(Number(cell));
    else if (typeof cell === 'object' && cell?.kind === 'array') {
      inner = cell.shape;
      for (let i = 0; i < cell.values.length; i++) values.push(cell.values[i]!);
    } else throw new IngestError('UNSUPPORTED', 'An array that holds no numbers.', place);
  }
  return { kind: 'array', values, shape: [cells.length, ...inner] };
}

async function* one(bytes: ArchiveEntry['bytes']): AsyncGenerator<Uint8Array> {
  yield bytes;
}

function textOf(bytes: Uint8Array, place: { file: string; row: number }): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (error) {
    throw new IngestError('FORMAT_MALFORMED', 'The text is not UTF-8.', place, { cause: error });
  }
}

function jsonOf(text: string, place: { file: string; row: number }): unknown {
  try {
    return parseJson(text);
  } catch (error) {
    throw new IngestError('FORMAT_MALFORMED', `It is not JSON (${(error as Error).message}).`, place, { cause: error });
  }
}
