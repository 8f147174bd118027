/** Pictures that a table names: the cells of a column of type image are paths beside the file of the table. */
import type { Cell, RowBatch } from '../cell.js';
import { IngestError, shown, type Place } from '../ingest-error.js';
import { fileBeside } from '../sources/local-files.js';
import type { SourceContext, SourceFile } from '../sources/source-file.js';
import { imageCell, wholeFile } from './images.js';

/** Rows whose pictures are read at once, and in memory together. */
const ROWS_AT_ONCE = 16;

/** @throws IngestError SOURCE_NOT_FOUND, SOURCE_FORBIDDEN, UNSUPPORTED and what `imageCell` throws, with row and column */
export async function* withPictures(
  batches: AsyncIterable<RowBatch> | Iterable<RowBatch>,
  table: Pick<SourceFile, 'path'>,
  context: SourceContext,
): AsyncGenerator<RowBatch> {
  const { columns } = context.options;
  const wanted = new Set([...columns].flatMap(([name, type]) => (type === 'image' ? [name] : [])));
  for await (const batch of batches) {
    const { names, file, firstRow } = batch;
    const positions = names.flatMap((name, i) => (wanted.has(name) ? [i] : []));
    if (positions.length === 0 || !batch.rows.some((row) => positions.some((position) => typeof row[position] === 'string'))) {
      yield batch;
      continue;
    }
    for (let from = 0; from < batch.rows.length; from += ROWS_AT_ONCE) {
      const rows = batch.rows.slice(from, from + ROWS_AT_ONCE);
      const read = async (row: Cell[], i: number): Promise<void> => {
        for (const position of positions) {
          const place = { file, row: firstRow + from + i, column: names[position]! };
          row[position] = await pictureOf(row[position], table.path, context, place);
        }
      };
      await Promise.all(rows.map(read));
      yield { names, rows, file, firstRow: firstRow + from };
    }
  }
}

async function pictureOf(named: Cell, table: string | undefined, context: SourceContext, place: Place): Promise<Cell> {
  if (typeof named !== 'string') return named;
  if (named.trim() === '') return null;
  if (table === undefined)
    throw new IngestError(
      'UNSUPPORTED',
      `The picture ${shown(named)} lies beside a file that is not on this machine: copy both here.`,
      place,
    );
  let bytes: Uint8Array;
  try {
    bytes = await wholeFile(await fileBeside(table, named, context), context);
  } catch (error) {
    if (!(error instanceof IngestError)) throw error;
    throw new IngestError(error.code, `The picture ${shown(named)}: ${error.detail}`, place, { cause: error });
  }
  return await imageCell(bytes, place);
}
