import { table, type Column } from './format.js';
import type { Terminal } from './terminal.js';

/** A file or a pipe has no width: only cells of hundreds of characters are cut there. */
const PIPED_COLUMNS = 240;

/** A table that fits into the terminal. @param paint may colour a cell */
export function printTable(
  terminal: Terminal,
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
  paint?: (text: string, row: number, column: number) => string,
): void {
  const width = terminal.stdout.isTTY ? terminal.stdout.columns() : PIPED_COLUMNS;
  const paintTitle = (text: string): string => terminal.style('bold', text);
  for (const line of table(columns, rows, Object.assign({ width, paintTitle }, paint && { paint }))) terminal.print(line);
}
