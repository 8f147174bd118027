/**
 * What api, servers and workers have to agree on about a model before a byte moves: the ordered variables.
 * Plain data (it travels in job payloads); offsets and the chunk grid are derived from it by libs/learning.
 */

/** `trainable` variables get gradients; `state` is what layers carry without them (moving averages of batch normalisation). */
export type Section = 'trainable' | 'state';

export interface VariableSpec {
  /** Unique path, `layer/weight`, e.g. `dense_1/kernel`. */
  readonly path: string;
  readonly shape: readonly number[];
  readonly section: Section;
  /** tf.js initializer by class name and config: the servers compute the initial value as a pure function of (seed, path, index). */
  readonly initializer: { readonly className: string; readonly config: Readonly<Record<string, unknown>> };
  /** A table that is exchanged by rows: which input of the row format names them. */
  readonly rows?: { readonly input: number } | undefined;
}

/** An input or output of a model: its name there, and the shape of one example, e.g. [784] or [28, 28, 1]. */
export interface ModelEnd {
  readonly name: string;
  readonly shape: readonly number[];
}

export interface ModelDescription {
  /** Trainable variables first, then state, each in model order. */
  readonly variables: readonly VariableSpec[];
  /** In the order of the model. */
  readonly inputs: readonly ModelEnd[];
  readonly outputs: readonly ModelEnd[];
  readonly parameterCount: number;
  readonly stateCount: number;
}
