/** JSON Lines: one object per line. Empty lines are passed over. */
import { BATCH_ROWS, type Cell, type RowBatch } from '../cell.js';
import { IngestError, plain } from '../ingest-error.js';
import { linesOf } from '../sources/lines.js';
import type { SourceContext, SourceFile } from '../sources/source-file.js';
import { parseJson } from './exact-json.js';
import { NameTable, rowOf } from './plain-cells.js';

export async function* readJsonLines(file: SourceFile, context: SourceContext): AsyncGenerator<RowBatch> {
  const table = new NameTable();
  let rows: Cell[][] = [];
  let firstRow = 1;
  for await (const lines of linesOf(file, context)) {
    for (const line of lines) {
      if (line.trim() === '') continue;
      const place = { file: file.name, row: firstRow + rows.length };
      rows.push(rowOf(objectOf(line, place), table, place));
      if (rows.length < BATCH_ROWS) continue;
      yield { names: table.refresh(), rows, file: file.name, firstRow };
      firstRow += rows.length;
      rows = [];
    }
  }
  if (rows.length > 0) yield { names: table.refresh(), rows, file: file.name, firstRow };
}

function objectOf(line: string, place: { file: string; row: number }): object {
  let value: unknown;
  try {
    value = parseJson(line);
  } catch (error) {
    const hint = place.row === 1 && line.trim() === '[' ? ' The file is one JSON array; write one object per line, without the array.' : '';
    throw new IngestError('FORMAT_MALFORMED', `The line is not JSON (${plain((error as Error).message)}).${hint}`, place, { cause: error });
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new IngestError(
      'FORMAT_MALFORMED',
      'The line is no JSON object, such as {"a": 1}. An array of objects is written one per line.',
      place,
    );
  return value;
}
