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
  const text = cause instanceof Error ? cause.message : String(cause);
  // tf.js goes on with advice to programmers.
  const [, kind, name] = /^Unknown (\w+): (.{1,100}?)\. This may be due to/s.exec(text) ?? [];
  return kind === undefined ? text.slice(0, 500) : `there is no ${kind} ${JSON.stringify(name)}`;
}
