/** Mistakes of people and of hostile job payloads, with what to do about them. Broken invariants are plain Errors. */
export const LEARNING_ERRORS = {
  LAYOUT_EMPTY: 'The model has no trainable variables, so there is nothing to train: add a layer with weights.',
  LAYOUT_SHAPE: 'A variable has an impossible shape: dimensions must be whole numbers from 1 on, at most 8 of them.',
  LAYOUT_DUPLICATE: 'Two variables have the same path: give the layers different names.',
  LAYOUT_ORDER: 'Trainable variables must come before the state.',
  LAYOUT_COUNT: 'The counts of the model description differ from its variables: both sides must run the same release.',
  LAYOUT_TOO_LARGE: 'The model has more parameters than a run may have: make layers smaller.',
  LAYOUT_TOO_MANY: 'The model has more variables than a run may have: use fewer and larger layers.',
  SCHEDULE_IMPOSSIBLE: 'The dataset, the global batch and the length of the run do not go together.',
  INITIALIZER_UNKNOWN: 'The initializer is none of those that are known: use one of the tf.js initializers named in the message.',
  INITIALIZER_CONFIG: "The initializer's configuration does not fit.",
} as const;

export type LearningErrorCode = keyof typeof LEARNING_ERRORS;

export class LearningError extends Error {
  override readonly name = 'LearningError';
  /**
   * @param detail what is wrong, naming the thing
   * @param field the field of the model description or the run spec that it is about
   */
  constructor(
    readonly code: LearningErrorCode,
    detail: string,
    readonly field: string,
  ) {
    super(`${code}: ${field}: ${detail}. ${LEARNING_ERRORS[code]}`);
  }
}
