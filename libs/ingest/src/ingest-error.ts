/** The closed catalogue of what an import refuses. docs/errors.md lists the same codes; a test compares both. */
export const INGEST_ERRORS = {
  OPTIONS_INVALID: 'The options of the import contradict each other or the source; the message says which.',
  SOURCE_NOT_FOUND: 'There is nothing under that address. Check the path, the URL or the bucket.',
  SOURCE_UNREADABLE:
    'The source cannot be read: rights, the disk, or the network. The message has the cause; the same command goes on where it stopped.',
  SOURCE_FORBIDDEN:
    'This address may not be read from here: a private network, a host that is not allowed, or a path outside of the allowed folder.',
  SOURCE_TOO_LARGE: 'The source is larger than the limit, packed or unpacked. Import a part of it, or raise the limit.',
  SOURCE_CHANGED: 'The source changed while it was read. Import it again when nobody writes to it.',
  FORMAT_UNKNOWN: 'The format of the source is not recognised. Name it with the option format.',
  FORMAT_MALFORMED: 'The file is not what its format says; the message has the place. Write it again from where it came.',
  UNSUPPORTED: 'The file is well-formed, but holds something that is not read; the message says what, and what to write instead.',
  ROW_TOO_LONG: 'One row, line or value is larger than the limit. Is the delimiter right, is a quote left open?',
  TOO_MANY_COLUMNS: 'The source has more columns than a dataset may have. Put numbers that belong together into one array column.',
  COLUMN_NAME_INVALID: 'A column has a name that a dataset cannot have. Rename it in the source.',
  COLUMN_COUNT: 'A row has more or fewer columns than the others. Mend the row; is the delimiter right?',
  COLUMN_UNKNOWN: 'An option names a column that the source does not have, or a row has one that the others do not have.',
  VALUE_MISFIT: 'A value does not fit the type of its column. Mend the value, or force another type with the option columns.',
  VALUE_MISSING:
    'A value is missing. Mend the source, or import with missing: drop (leave such rows out) or fill (keep them, the value marked as missing); --missing on the command line.',
  VOCABULARY_TOO_LARGE:
    'The category columns have too many different values. Import the column as text or number, or leave it out with the type ignore.',
  NO_ROWS: 'The source has no rows to train on.',
  DISK_FULL:
    'No room is left on a disk that the import writes to; the message names it. Make room; the same command goes on where it stopped.',
  ABORTED: 'The import was stopped. Nothing of it is visible; the same command goes on where it stopped.',
} as const;

export type IngestErrorCode = keyof typeof INGEST_ERRORS;

export interface Place {
  /** As the user named it, or as it is called in its archive. */
  readonly file?: string | undefined;
  /** Counted from 1; a header is not counted. */
  readonly row?: number | undefined;
  readonly column?: string | undefined;
}

/** An error that the user can mend. The message says what, where, and what to do. */
export class IngestError extends Error {
  override readonly name = 'IngestError';
  readonly file: string | undefined;
  readonly row: number | undefined;
  readonly column: string | undefined;

  constructor(
    readonly code: IngestErrorCode,
    readonly detail: string,
    place: Place = {},
    options?: ErrorOptions,
  ) {
    super(`${code}: ${placeText(place)}${detail} ${INGEST_ERRORS[code]}`, options);
    this.file = place.file;
    this.row = place.row;
    this.column = place.column;
  }

  /** What to do about it. */
  get advice(): string {
    return INGEST_ERRORS[this.code];
  }
}

/** Words that quote a file, without what a terminal or a table could not take. */
export const plain = (text: string): string => text.replaceAll(/[\p{Cc}\p{Cs}]/gu, '\uFFFD');

/** Names from files are shown short and without control characters. */
export const shown = (text: string): string => JSON.stringify(text.length > 80 ? `${text.slice(0, 77)}...` : text);

function placeText({ file, row, column }: Place): string {
  const parts = [
    ...(file === undefined ? [] : [file.replaceAll(/\p{Cc}/gu, '?').slice(0, 500)]),
    ...(row === undefined ? [] : [`row ${row}`]),
    ...(column === undefined ? [] : [`column ${shown(column)}`]),
  ];
  return parts.length === 0 ? '' : `${parts.join(', ')}: `;
}
