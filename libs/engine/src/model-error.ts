/**
 * A model that a person described cannot be trained here. `path` names the field of the run spec in its own words
 * (`model.topology.config.layers.3`, `engine`), `message` says what is wrong and what to do about it.
 */
export class ModelError extends Error {
  readonly code = 'INVALID_MODEL';

  constructor(
    readonly path: string,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = 'ModelError';
  }
}

/** What a thrown value says about itself, for the message of the error that wraps it. */
export function messageOf(cause: unknown): string {
  return (cause instanceof Error ? cause.message : String(cause)).slice(0, 500);
}
