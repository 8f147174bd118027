import { PacelineApiError } from '../api-error.js';

export type TrainErrorCode =
  | 'TRAIN_NOT_COMPILED'
  | 'TRAIN_UNSUPPORTED'
  | 'TRAIN_DATA'
  | 'TRAIN_STRATEGY'
  | 'TRAIN_OPTIONS'
  | 'TRAIN_IMPORT_FAILED'
  | 'TRAIN_NOT_SUCCEEDED';

/** What `train` cannot send, or what came of it. The message says what to do. */
export class TrainError extends PacelineApiError {
  declare readonly code: TrainErrorCode;

  constructor(
    code: TrainErrorCode,
    /** The part of the model, the compilation or the data. */
    readonly what: string,
    reason: string,
    cause?: unknown,
  ) {
    super(code, `${what}: ${reason}`, cause === undefined ? {} : { cause });
  }
}
