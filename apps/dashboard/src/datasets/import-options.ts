/** What the form of an import makes of a file: a name for the dataset, the columns that may be the label, the shares of the splits. */
const MOST_NAME = 64;
/** As the api has it (libs/spec, DATASET_NAME). */
const NAME = /^[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?$/;

export const NAME_RULE = '1 to 64 lower-case letters, digits, dots, dashes and underscores, with a letter or digit at both ends';
/** Names that the api refuses after the upload (libs/spec, BUILT_IN_DATASETS). */
export const BUILT_IN_NAMES: readonly string[] = ['mnist', 'iris', 'made-up-regression', 'made-up-sequence'];
export const isName = (text: string): boolean => NAME.test(text);

/** House prices (2).csv.gz as "house-prices-2". */
export function nameOf(fileName: string): string {
  const stem = fileName.replace(/\.(?:gz|gzip|zst|zstd)$/i, '').replace(/\.[a-z0-9]{1,12}$/i, '');
  const plain = stem
    .normalize('NFKD')
    .replace(/\p{M}/gu, '')
    .toLowerCase()
    .replace(/[^a-z0-9._-]+/g, '-');
  return plain.slice(0, MOST_NAME).replace(/^[^a-z0-9]+|[^a-z0-9]+$/g, '');
}

export const SPLITS = [
  { id: 'three', label: '80 % training, 10 % validation, 10 % test', shares: [0.8, 0.1, 0.1] },
  { id: 'two', label: '80 % training, 20 % test', shares: [0.8, 0.2] },
  { id: 'none', label: 'By file names, else all for training', shares: null },
] as const;
export type SplitId = (typeof SPLITS)[number]['id'];

export const MISSING = [
  { id: 'refuse', label: 'Refuse the file' },
  { id: 'drop', label: 'Leave those rows out' },
  { id: 'fill', label: 'Fill them' },
] as const;
export type MissingId = (typeof MISSING)[number]['id'];

export const DECIMALS = [
  { id: 'auto', label: 'As programs write (1234.5)', decimal: null },
  { id: 'point', label: 'Point (1,234.5)', decimal: '.' },
  { id: 'comma', label: 'Comma (1.234,5)', decimal: ',' },
] as const;
export type DecimalId = (typeof DECIMALS)[number]['id'];

export const DELIMITERS = [
  { id: 'auto', label: 'Found by itself', delimiter: null },
  { id: 'comma', label: 'Comma', delimiter: ',' },
  { id: 'semicolon', label: 'Semicolon', delimiter: ';' },
  { id: 'tab', label: 'Tab', delimiter: '\t' },
  { id: 'bar', label: 'Bar |', delimiter: '|' },
] as const;
export type DelimiterId = (typeof DELIMITERS)[number]['id'];

const NAME_ORDER = new Intl.Collator('en', { numeric: true });

/** Files in the order of their names, as the command line reads those of a folder: day-10 behind day-2. A browser gives them in any order. */
export const inNameOrder = <T extends { readonly name: string }>(files: Iterable<T>): T[] =>
  [...files].sort((a, b) => NAME_ORDER.compare(a.name, b.name));

/** Whether a file is a table of text, whose columns and decimals may be written in several ways; what is packed counts by its name. */
export const isTableOfText = (fileName: string): boolean => /\.(?:csv|tsv|tab|txt)(?:\.(?:gz|gzip|zst|zstd))?$/i.test(fileName);

/** How much of a file is read for the names of its columns. */
export const HEAD_BYTES = 64 << 10;
const MOST_COLUMNS = 1000;

/**
 * Names of the columns, as far as the beginning of the file tells them. They are suggestions alone: the import reads the file by itself.
 * @param head the beginning of the file as text
 * @param given what separates columns, where a person has said it
 */
export function columnsIn(fileName: string, head: string, given: string | null = null): readonly string[] {
  if (/\.(?:jsonl|ndjson)$/i.test(fileName)) return fieldsOf(head.split('\n', 1)[0] ?? '');
  if (!/\.(?:csv|tsv|tab|txt)$/i.test(fileName)) return [];
  const line = head.replace(/^\ufeff/, '').split(/\r?\n/, 1)[0] ?? '';
  const found = ['\t', ';', '|', ','].map((each) => [cellsOf(line, each).length, each] as const).sort(([a], [b]) => b - a)[0]![1];
  const cells = cellsOf(line, given ?? found);
  // A first line of numbers is no header.
  return cells.some((cell) => cell === '' || Number.isFinite(Number(cell))) ? [] : cells.slice(0, MOST_COLUMNS);
}

function fieldsOf(line: string): readonly string[] {
  try {
    const row: unknown = JSON.parse(line);
    return row !== null && typeof row === 'object' && !Array.isArray(row) ? Object.keys(row).slice(0, MOST_COLUMNS) : [];
  } catch {
    return []; // cut off, or no JSON: then nothing is suggested
  }
}

/** The cells of one line. A quoted cell may hold the delimiter; two quotes in it stand for one. */
function cellsOf(line: string, delimiter: string): string[] {
  const cells: string[] = [];
  let cell = '';
  let quoted = false;
  for (const character of line) {
    if (character === '"') quoted = !quoted;
    else if (character === delimiter && !quoted) {
      cells.push(cell.trim());
      cell = '';
    } else cell += character;
  }
  return [...cells, cell.trim()];
}
