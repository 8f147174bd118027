/**
 * How the tables of Embedding layers are exchanged. A dense table travels whole, as every other variable does. A sparse one travels by rows: a worker
 * asks for the rows that its batch names, and sends the gradients of those alone.
 */
import { z } from 'zod';
import { isEncoded, sendsEncodedParameters, type CodecSpec } from './codec-spec.js';
import { fieldLength, type RowFormat } from './datasets/row-format.js';
import type { ModelDescription, VariableSpec } from './model-description.js';
import { isLayerwise, type OptimizerSpec } from './optimizer-spec.js';
import { backupReplicasOf, type StrategySpec } from './strategy.js';

export const EMBEDDING_KINDS = ['dense', 'sparse'] as const;
export const SLOT_KINDS = ['dense', 'lazy'] as const;

export const embeddingsSchema = z.strictObject({
  kind: z
    .enum(EMBEDDING_KINDS)
    .describe(
      'How tables of Embedding layers travel: dense sends all rows; sparse pulls the rows that a batch names and sends the gradients of those alone.',
    )
    .default('sparse'),
  slots: z
    .enum(SLOT_KINDS)
    .describe(
      'With sparse: dense updates every row in each round, with the bits of a dense table; lazy moves the rows and slots that the round has touched, as LazyAdam of TensorFlow Addons does.',
    )
    .default('dense'),
});

export type EmbeddingsSpec = z.output<typeof embeddingsSchema>;

interface Conflicting {
  readonly embeddings?: EmbeddingsSpec | undefined;
  readonly strategy: StrategySpec;
  readonly gradient: { readonly clipNorm?: unknown; readonly clipGlobalNorm?: unknown; readonly nonFinite: string };
  readonly optimizer: OptimizerSpec;
  readonly codec?: CodecSpec | undefined;
  readonly engine: string;
}

export const isSparse = ({ embeddings }: { readonly embeddings?: EmbeddingsSpec | undefined }): boolean => embeddings?.kind === 'sparse';

/** Engines that compute with a table of the rows that a batch names. */
const ENGINES_BY_ROWS = ['wasm', 'wasm-relaxed', 'cpu', 'tensorflow'];

/** What sparse embeddings do not go with. */
export function embeddingConflicts(spec: Conflicting): [field: string, message: string][] {
  const { embeddings, strategy, gradient, optimizer, engine } = spec;
  if (!embeddings) return [];
  if (!isSparse(spec))
    return embeddings.slots === 'lazy' ? [['embeddings.slots', 'lazy needs kind sparse: a dense table moves as a whole']] : [];
  const conflicts: [string, string][] = [];
  const refuse = (field: string, why: string): void => void conflicts.push([field, `${why}; or set embeddings.kind to dense`]);
  if (strategy.kind !== 'parameter-server' && strategy.kind !== 'auto')
    refuse('strategy.kind', `${strategy.kind} does not go with sparse embeddings: take parameter-server`);
  else if (strategy.mode !== 'sync')
    refuse('strategy.mode', `sparse embeddings need mode sync, where a row has one value in a round; the mode is ${strategy.mode}`);
  if (strategy.standby > 0) refuse('strategy.standby', 'does not go with sparse embeddings: rows are not replicated; set it to 0');
  if (backupReplicasOf(strategy) > 0)
    refuse(
      'strategy.backupReplicas',
      'does not go with sparse embeddings, whose rows are added before it is known who counts; set it to 0',
    );
  if (isEncoded(spec) || sendsEncodedParameters(spec))
    refuse('codec', 'does not go with sparse embeddings: gradients of rows are not encoded; leave it out');
  for (const rule of ['clipNorm', 'clipGlobalNorm'] as const)
    if (gradient[rule] !== undefined)
      refuse(`gradient.${rule}`, 'does not go with sparse embeddings: norms over rows are not taken; take clipValue, or leave it out');
  if (gradient.nonFinite === 'skip')
    refuse('gradient.nonFinite', 'skip does not go with sparse embeddings, whose rows are applied as they come; take fail or rollback');
  if (isLayerwise(optimizer))
    refuse('optimizer.name', `${optimizer.name} does not go with sparse embeddings: its steps depend on norms of whole variables`);
  if (!ENGINES_BY_ROWS.includes(engine))
    refuse('engine', `${engine} does not go with sparse embeddings: take ${ENGINES_BY_ROWS.join(', ')}`);
  if (embeddings.slots === 'lazy') conflicts.push(...lazyConflicts(optimizer));
  return conflicts;
}

/** What moves weights that no example has touched. */
function lazyConflicts(optimizer: OptimizerSpec): [field: string, message: string][] {
  const conflicts: [string, string][] = [];
  if ('weightDecay' in optimizer && optimizer.weightDecay)
    conflicts.push([
      'optimizer.weightDecay',
      'moves every row in each round, which lazy slots do not: set it to 0, or embeddings.slots to dense',
    ]);
  if (optimizer.emaMomentum !== undefined)
    conflicts.push([
      'optimizer.emaMomentum',
      'moves the average of every row in each round, which lazy slots do not: leave it out, or set embeddings.slots to dense',
    ]);
  return conflicts;
}

/**
 * Whether an update with a gradient of zero changes nothing, neither the weight nor a slot: then lazy slots have the bits of dense ones, and only the
 * rows that were touched have to be looked at.
 */
export function restsWithoutGradient(optimizer: OptimizerSpec): boolean {
  if (('weightDecay' in optimizer && optimizer.weightDecay) || optimizer.emaMomentum !== undefined) return false;
  return optimizer.name === 'sgd' || optimizer.name === 'adagrad';
}

/** Rows that an evaluation scores at once, at most. */
export const EVALUATION_EXAMPLES = 500;
/** Ids come as float32, which has no others of the whole numbers beyond it. */
export const MOST_TABLE_ROWS = 2 ** 24;
/** Rows of one frame: its payload is at most so long. */
export const MOST_ROW_BYTES = 64 << 20;

/** Rows of a table that a worker holds at once: those that a round or a part of an evaluation can name, and one that stands for id 0. */
export function heldRows({ globalBatch }: { readonly globalBatch: number }, { inputs }: RowFormat, { shape, rows }: VariableSpec): number {
  const ids = fieldLength(inputs[rows!.input]!) * Math.max(globalBatch, EVALUATION_EXAMPLES);
  return Math.min(shape[0]!, ids + 1);
}

/** Parameters and state that a worker holds: of tables that are exchanged by rows, the rows of one round. */
export function workerElements(
  spec: { readonly globalBatch: number },
  format: RowFormat,
  { parameterCount, stateCount, variables }: Pick<ModelDescription, 'parameterCount' | 'stateCount' | 'variables'>,
): number {
  const absent = variables.map((variable) =>
    variable.rows ? (variable.shape[0]! - heldRows(spec, format, variable)) * (variable.shape[1] ?? 1) : 0,
  );
  return parameterCount + stateCount - absent.reduce((sum, elements) => sum + elements, 0);
}
