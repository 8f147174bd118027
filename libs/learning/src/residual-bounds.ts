/**
 * How much of what a codec keeps of replicas one server writes into a checkpoint, and passes on when replicas move. It is streamed chunk by chunk, so it is bounded
 * by the store and the deadline of a checkpoint, and not by the memory of a server. A run beyond the bounds is refused when it is created.
 */
import { keepsRest, MOST_RESIDUAL_BYTES, MOST_RESIDUAL_TENSORS, picksCodec, residualVectors, type RunSpec } from '@paceline/spec';
import { shardChunks, type Layout } from './layout.js';

const FLOAT_BYTES = 4;

export interface ResidualBounds {
  /** Of vectors; what power-sgd begins with comes on top, at most half as much again. */
  readonly bytes: number;
  /** One for each replica and chunk. */
  readonly tensors: number;
}

export const RESIDUAL_BOUNDS: ResidualBounds = { bytes: MOST_RESIDUAL_BYTES, tensors: MOST_RESIDUAL_TENSORS };

/** What the first server beyond the bounds would have to write; undefined where there is none, or nothing is kept. */
export function beyondResidualBounds(
  spec: Pick<RunSpec, 'codec' | 'replicas'>,
  layout: Layout,
  servers: number,
  bounds = RESIDUAL_BOUNDS,
): ResidualBounds | undefined {
  const { codec, replicas } = spec;
  if (!codec || !keepsRest(codec) || picksCodec(spec)) return undefined;
  for (let server = 0; server < servers; server++) {
    const chunks = shardChunks(layout, servers, server).filter((chunk) => layout.chunks[chunk]!.section === 'trainable');
    const elements = chunks.reduce((sum, chunk) => sum + layout.chunks[chunk]!.length, 0);
    const bytes = FLOAT_BYTES * replicas * residualVectors(codec) * elements;
    const tensors = replicas * chunks.length;
    if (bytes > bounds.bytes || tensors > bounds.tensors) return { bytes, tensors };
  }
  return undefined;
}

/** What is wrong, and what may be done. */
export function residualBoundsMessage(
  { codec, replicas }: Pick<RunSpec, 'codec' | 'replicas'>,
  { bytes, tensors }: ResidualBounds,
  servers: number,
  bounds = RESIDUAL_BOUNDS,
): string {
  const { kind, errorFeedback, feedbackRule } = codec!;
  const instead = errorFeedback
    ? feedbackRule === 'ef21'
      ? 'int8, which keeps nothing'
      : 'no error feedback'
    : 'int8, which keeps nothing';
  return (
    `${kind}${errorFeedback ? ` with ${feedbackRule === 'ef21' ? 'ef21' : 'error feedback'}` : ''} keeps a part of each of the ${replicas} replicas, which checkpoints have: one of ${servers} ` +
    `${servers === 1 ? 'server' : 'servers'} would have to write ${Math.ceil(bytes / 2 ** 20)} MiB of it in ${tensors} tensors, and at most ${Math.floor(bounds.bytes / 2 ** 20)} MiB and ` +
    `${bounds.tensors} tensors are written: use more servers, fewer replicas, or ${instead}`
  );
}
