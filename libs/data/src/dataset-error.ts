export const DATASET_ERROR_CODES = [
  'DATASET_UNKNOWN',
  'DATASET_AWAY',
  'DATASET_UNREADABLE',
  'DATASET_MALFORMED',
  'DATASET_ROW_INVALID',
] as const;
export type DatasetErrorCode = (typeof DATASET_ERROR_CODES)[number];

/** A row that cannot become an example. Rows are counted from 0, as they were given. */
export interface RowFault {
  readonly row: number;
  readonly column: string;
  readonly detail: string;
}

/** A dataset that is not registered, cannot be read, or does not hold what its format says. */
export class DatasetError extends Error {
  constructor(
    readonly code: DatasetErrorCode,
    /** The dataset or the file it is about. */
    readonly subject: string,
    message: string,
    options?: ErrorOptions,
    readonly fault?: RowFault,
  ) {
    super(`${subject}: ${message}`, options);
    this.name = 'DatasetError';
  }
}
