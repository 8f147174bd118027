/** Texts: one row per line, or one per file. The column is called text. */
import { BATCH_ROWS, type Cell, type RowBatch } from '../cell.js';
import { linesOf } from '../sources/lines.js';
import type { SourceContext, SourceFile } from '../sources/source-file.js';

const NAMES = ['text'];

export async function* readText(file: SourceFile, context: SourceContext): AsyncGenerator<RowBatch> {
  if (context.options.textBy === 'file') {
    const lines: string[] = [];
    for await (const more of linesOf(file, context)) for (const line of more) lines.push(line);
    yield { names: NAMES, rows: [[lines.join('\n')]], file: file.name, firstRow: 1 };
    return;
  }
  let firstRow = 1;
  for await (const lines of linesOf(file, context)) {
    for (let from = 0; from < lines.length; from += BATCH_ROWS) {
      const rows: Cell[][] = lines.slice(from, from + BATCH_ROWS).map((line) => [line]);
      yield { names: NAMES, rows, file: file.name, firstRow };
      firstRow += rows.length;
    }
  }
}
