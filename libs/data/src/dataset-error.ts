export const DATASET_ERROR_CODES = ['DATASET_UNKNOWN', 'DATASET_UNREADABLE', 'DATASET_MALFORMED'] as const;
export type DatasetErrorCode = (typeof DATASET_ERROR_CODES)[number];

/** A dataset that is not registered, cannot be read, or does not hold what its format says. */
export class DatasetError extends Error {
  constructor(
    readonly code: DatasetErrorCode,
    /** The dataset or the file it is about. */
    readonly subject: string,
    message: string,
    options?: ErrorOptions,
  ) {
    super(`${subject}: ${message}`, options);
    this.name = 'DatasetError';
  }
}
