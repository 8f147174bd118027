/**
 * Models of sequences: LSTM (Hochreiter & Schmidhuber 1997), GRU (Cho et al. 2014) and a decoder of transformers (Vaswani et al. 2017, normalised
 * in front as GPT-2 is, Radford et al. 2019). Each tells the class of a text, or at every step the next token.
 */
import type { InputField, MODEL_ZOO, ModelTopology, RowFormat, TargetField } from '@paceline/spec';
import { ModelError } from '../errors/model-error.js';
import { dense, Graph, input, lastLayers, onlyInput, shown } from './topology-builder.js';

type SequenceModel = 'lstm' | 'gru' | 'transformer';

const EMBEDDING = 32;
const UNITS = 64;
const GATES = { recurrent_activation: 'sigmoid', kernel_initializer: 'glorot_uniform', recurrent_initializer: 'orthogonal' };

const WIDTH = 128;
const HEADS = 4;
const BLOCKS = 2;
/** The initial weights of GPT-2. */
const NORMAL = { class_name: 'RandomNormal', config: { mean: 0, stddev: 0.02 } };

export const isSequenceModel = (name: (typeof MODEL_ZOO)[number]): name is SequenceModel =>
  name === 'lstm' || name === 'gru' || name === 'transformer';

/** A token or a label at every step of the input. */
const isAtEachStep = (target: TargetField, steps: number): boolean =>
  target.kind === 'classes' && target.shape.length === 1 && target.shape[0] === steps;

/** @throws ModelError when the rows are no sequences */
export function sequenceModel(name: SequenceModel, format: RowFormat): ModelTopology {
  const field = onlyInput(name, 'a sequence', format);
  const steps = field.shape[0] ?? 0;
  const atEachStep = format.targets.filter((target) => isAtEachStep(target, steps)).length;
  if (atEachStep > 0 && atEachStep < format.targets.length)
    throw new ModelError(
      'model',
      `${name} gives something at each step or one thing for all steps, and the targets of the data are of both kinds`,
    );
  const graph = new Graph();
  const start = graph.place(input('input', field.shape));
  const trunk =
    name === 'transformer' ? decoder(graph, start, field, atEachStep > 0) : recurrent(graph, start, field, name, atEachStep > 0);
  const outputs = format.targets.map((target, i) => {
    const at = `output_${i + 1}`;
    if (atEachStep > 0 && target.kind === 'classes') {
      const last = dense(at, target.classes);
      if (name === 'transformer') Object.assign(last.config, { kernel_initializer: NORMAL });
      return graph.place(last, trunk);
    }
    return lastLayers(target, at, `reshape_${i + 1}`).reduce((from, one) => graph.place(one, from), trunk);
  });
  return graph.model(name, [start], outputs);
}

function recurrent(graph: Graph, start: string, field: InputField, name: 'lstm' | 'gru', isAtSteps: boolean): string {
  const { shape, ids } = field;
  if (shape.length === 0 || shape.length > 2 || (ids !== undefined && shape.length !== 1))
    throw new ModelError('model', `${name} needs a sequence: token ids [steps], or numbers [steps, width]; the data has ${shown(field)}`);
  const width = { input_dim: ids, output_dim: EMBEDDING };
  const sequence =
    ids !== undefined
      ? graph.add('Embedding', width, start)
      : shape.length === 1
        ? graph.add('Reshape', { target_shape: [shape[0], 1] }, start)
        : start;
  const className = name === 'lstm' ? 'LSTM' : 'GRU';
  const gates = name === 'lstm' ? { unit_forget_bias: true } : { reset_after: true };
  const states = graph.add(className, Object.assign({ units: UNITS, return_sequences: true }, GATES, gates), sequence);
  // Not the last state: texts are padded at their end.
  return isAtSteps ? states : graph.add('GlobalMaxPooling1D', {}, states);
}

function decoder(graph: Graph, start: string, { shape, ids }: InputField, isCausal: boolean): string {
  if (ids === undefined || shape.length !== 1)
    throw new ModelError(
      'model',
      'transformer needs the ids of tokens [steps]: an input of kind text with encode: ids, for example with the target next-token',
    );
  const project = (units: number, from: string, activation = 'linear'): string =>
    graph.add('Dense', { units, activation, kernel_initializer: NORMAL, bias_initializer: 'zeros' }, from);
  const norm = (from: string): string => graph.add('LayerNormalization', { epsilon: 1e-5 }, from);
  const embedding = { vocabulary_size: ids, sequence_length: shape[0], embedding_dim: WIDTH, embeddings_initializer: NORMAL };
  const attention = { num_heads: HEADS, key_dim: WIDTH / HEADS, kernel_initializer: NORMAL, bias_initializer: 'zeros' };
  let trunk = graph.add('TokenAndPositionEmbedding', embedding, start);
  for (let block = 0; block < BLOCKS; block++) {
    const seen = norm(trunk);
    const heard = graph.add('MultiHeadAttention', Object.assign({ use_causal_mask: isCausal }, attention), seen, seen);
    trunk = graph.add('Add', {}, trunk, heard);
    trunk = graph.add('Add', {}, trunk, project(WIDTH, project(4 * WIDTH, norm(trunk), 'gelu')));
  }
  const last = norm(trunk);
  return isCausal ? last : graph.add('GlobalAveragePooling1D', {}, last);
}
