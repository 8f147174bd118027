/** Why a model cannot be handed out in a form. */
export type ExportErrorCode =
  | 'LAYER_NOT_EXPORTABLE'
  | 'MODEL_TOO_LARGE'
  | 'WEIGHTS_DIFFER'
  | 'WEIGHTS_DO_NOT_FIT'
  | 'WEIGHTS_NOT_FINITE'
  | 'ARCHIVE_UNREADABLE'
  | 'FOLDER_TAKEN'
  | 'MODEL_UNREADABLE'
  | 'ROW_INVALID'
  | 'NOT_GENERATIVE';

export class ExportError extends Error {
  override readonly name = 'ExportError';
  constructor(
    readonly code: ExportErrorCode,
    message: string,
    /** The field of the run spec, where a layer is the reason. */
    readonly field?: string,
    options?: ErrorOptions,
  ) {
    super(field === undefined ? message : `${field}: ${message}`, options);
  }
}
