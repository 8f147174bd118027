/** Parquet by hyparquet, one row group at a time. Lists of numbers become arrays, structs become columns with a dot, dates ISO 8601 texts. */
import { open, type FileHandle } from 'node:fs/promises';
import { parquetMetadataAsync, parquetReadObjects, type AsyncBuffer, type FileMetaData } from 'hyparquet';
import * as codecs from 'hyparquet-compressors';
import { BATCH_ROWS, type Cell, type RowBatch } from '../cell.js';
import { IngestError } from '../ingest-error.js';
import { readAt, seekable } from '../sources/spool.js';
import type { SourceContext, SourceFile } from '../sources/source-file.js';
import { isPicture, recordRow } from './records.js';
import { NameTable } from './plain-cells.js';

const METADATA_MAX_BYTES = 128 << 20;
const GROUP_MAX_BYTES = 2 ** 31;
const GROUP_MAX_ROWS = 20_000_000;

export async function* readParquet(file: SourceFile, context: SourceContext): AsyncGenerator<RowBatch> {
  const { path, bytes } = await seekable(file, context);
  const handle = await open(path, 'r');
  try {
    yield* rowsOf(handle, bytes, file.name, context);
  } finally {
    await handle.close();
  }
}

async function* rowsOf(handle: FileHandle, bytes: number, file: string, context: SourceContext): AsyncGenerator<RowBatch> {
  const buffer = await checkedBuffer(handle, bytes, file);
  const metadata = await parsed(file, () => parquetMetadataAsync(buffer));
  checkGroups(metadata, bytes, file);
  const table = new NameTable();
  let firstRow = 1;
  for (let group = 0, from = 0; group < metadata.row_groups.length; group++) {
    context.signal?.throwIfAborted();
    const to = from + Number(metadata.row_groups[group]!.num_rows);
    const records = await parsed(file, () =>
      parquetReadObjects(Object.assign({ file: buffer, metadata, rowStart: from, rowEnd: to, utf8: false }, codecs)),
    );
    if (records.length !== to - from)
      throw new IngestError('FORMAT_MALFORMED', `A row group has ${records.length} rows, and claims ${to - from}.`, { file });
    for (let at = 0; at < records.length; at += BATCH_ROWS) {
      const rows: Cell[][] = [];
      for (const record of records.slice(at, at + BATCH_ROWS)) {
        const place = { file, row: firstRow + rows.length };
        rows.push(await recordRow(plain(record, place), table, place));
      }
      yield { names: table.refresh(), rows, file, firstRow };
      firstRow += rows.length;
    }
    from = to;
  }
}

async function checkedBuffer(handle: FileHandle, byteLength: number, file: string): Promise<AsyncBuffer> {
  if (byteLength < 12) throw new IngestError('FORMAT_MALFORMED', 'The file is too short for Parquet.', { file });
  const tail = Buffer.from(await readAt(handle, byteLength - 8, 8, file));
  if (tail.toString('latin1', 4) !== 'PAR1') throw new IngestError('FORMAT_MALFORMED', 'A Parquet file ends with PAR1.', { file });
  const length = tail.readUInt32LE(0);
  if (length > byteLength - 12 || length > METADATA_MAX_BYTES)
    throw new IngestError('FORMAT_MALFORMED', `Its metadata claims ${length} bytes.`, { file });
  return {
    byteLength,
    async slice(start, end = byteLength) {
      const from = Math.max(0, start < 0 ? byteLength + start : start);
      const to = Math.min(end < 0 ? byteLength + end : end, byteLength);
      if (!Number.isSafeInteger(from) || !Number.isSafeInteger(to) || to < from)
        throw new Error(`bytes ${start} to ${end} are none of the file`);
      return (await readAt(handle, from, to - from, file)).buffer as ArrayBuffer;
    },
  };
}

/** A row group is in memory as a whole. */
function checkGroups({ row_groups: groups }: FileMetaData, bytes: number, file: string): void {
  for (const [i, group] of groups.entries()) {
    const rows = Number(group.num_rows);
    const unpacked = group.columns.reduce((sum, { meta_data: column }) => sum + Number(column?.total_uncompressed_size ?? 0), 0);
    if (
      !Number.isSafeInteger(rows) ||
      rows < 0 ||
      group.columns.some(({ meta_data: column }) => Number(column?.total_compressed_size ?? 0) > bytes)
    )
      throw new IngestError('FORMAT_MALFORMED', `Row group ${i} claims what the file cannot hold.`, { file });
    if (unpacked > GROUP_MAX_BYTES || rows > GROUP_MAX_ROWS)
      throw new IngestError('UNSUPPORTED', `Row group ${i} has ${rows} rows of ${unpacked} bytes: write smaller row groups.`, { file });
  }
}

async function parsed<T>(file: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof IngestError) throw error;
    throw new IngestError('FORMAT_MALFORMED', `It cannot be read (${(error as Error).message}).`, { file }, { cause: error });
  }
}

/** Byte arrays without a type: pictures, or texts that were written without saying so. */
function plain(record: Record<string, unknown>, place: { file: string; row: number }): object {
  const entries = Object.entries(record).map(([name, value]): [string, unknown] => {
    if (!(value instanceof Uint8Array)) return [name, value];
    if (isPicture(value)) return [name, { image: value }];
    try {
      return [name, new TextDecoder('utf-8', { fatal: true }).decode(value)];
    } catch (error) {
      throw new IngestError(
        'UNSUPPORTED',
        'Bytes that are neither a picture nor a text.',
        { file: place.file, row: place.row, column: name },
        { cause: error },
      );
    }
  });
  return Object.fromEntries(entries);
}
