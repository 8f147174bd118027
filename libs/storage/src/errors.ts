/** The closed catalogue of what the object store and the checkpoints refuse. docs/errors.md lists the same codes; a test compares both. */
export const STORAGE_ERRORS = {
  ALREADY_EXISTS: 'There is an object under that key already, and it is not overwritten.',
  NO_SUCH_OBJECT: 'There is no object under that key.',
  OBJECT_CHANGED: 'The object was written again while it was read. Read it again when nobody writes to it.',
  DISK_FULL: 'The disk of the store is full; what was written before is intact. Make room, or keep fewer checkpoints.',
  STORE_UNAVAILABLE: 'The store does not answer, or not in time. Is the disk mounted, is the S3 endpoint reachable?',
  STORE_FORBIDDEN:
    'The store may not be read or written with these rights. Check the owner of the folder, or the AWS_* credentials and the bucket policy.',
  STORE_URL_INVALID: 'The address of the store is not valid: it must be a folder, or s3://bucket/prefix?endpoint=...&region=...',
  BAD_KEY: 'The key names no place inside the store.',
  CHECKPOINT_INCOMPLETE:
    'What belongs to the checkpoint was lost with a worker while it was written; the run goes on, and its next checkpoint may have it.',
  CHECKPOINT_INVALID: 'The checkpoint is incomplete or damaged and is not loaded; an older one of the run may be intact.',
  CHECKPOINT_ELSEWHERE:
    'This store holds no checkpoint of the run: it is not the one that they were written to. Give all parameter servers the same PACELINE_CHECKPOINT_STORE, and mount it.',
  CHECKPOINT_TOO_LARGE: 'A server would have to write more into a checkpoint than it may; the message says how the run has less.',
  CONFIG_CHANGED:
    'The checkpoint was written by another configuration; the message shows the difference. Train with the same one, or begin anew.',
  INITIAL_WEIGHTS_INVALID:
    'The weights that the run begins with are not in this store or do not fit its model. Give all parameter servers the same PACELINE_CHECKPOINT_STORE as the api, or create the run again.',
  SAFETENSORS_INVALID:
    'The file is not a complete safetensors file; the message says what is wrong with it. Write it again from where it came.',
  WRITE_ABORTED: 'The write was given up before it was complete; nothing of it is visible.',
} as const;

export type StorageErrorCode = keyof typeof STORAGE_ERRORS;

export class StorageError extends Error {
  override readonly name = 'StorageError';
  constructor(
    readonly code: StorageErrorCode,
    detail: string,
    options?: { cause?: unknown },
  ) {
    super(`${code}: ${detail}`, options);
  }
}
