/** Models with attention, for the comparison of gradients (gradients.test.ts). */
import type { RunSpecInput } from '@paceline/spec';
import { sequential } from '../run.fixture.js';

type Model = RunSpecInput['model'];
type Layer = readonly [className: string, config?: Record<string, unknown>];

const out10: Layer = ['Dense', { units: 10, kernel_initializer: 'glorot_uniform' }];
const input: Layer = ['InputLayer', { batch_input_shape: [null, 784] }];
const rows: readonly Layer[] = [
  ['Reshape', { target_shape: [28, 28] }],
  ['AveragePooling1D', { pool_size: 4 }],
];
/** Token ids of 0 to 19, 14 of them. */
const ids: readonly Layer[] = [
  ['Reshape', { target_shape: [28, 28, 1] }],
  ['AveragePooling2D', { pool_size: [2, 28] }],
  ['Reshape', { target_shape: [14] }],
  ['Rescaling', { scale: 400, offset: -190 }],
  ['ReLU', { max_value: 19 }],
];
const attention = (config: Record<string, unknown> = {}): Layer => ['MultiHeadAttention', { num_heads: 2, key_dim: 3, ...config }];
const onRows = (...layers: readonly Layer[]): Model => sequential(input, ...rows, ...layers, ['Flatten'], out10);

const node = (class_name: string, name: string, config: Record<string, unknown>, ...from: readonly string[]) => ({
  class_name,
  config: Object.assign({ name }, config),
  inbound_nodes: from.length === 0 ? [] : [from.map((source) => [source, 0, 0, {}])],
});
const edge = (name: string): [string, number, number] => [name, 0, 0];

/** Rows that look at longer, wider ones, by keys of another width. */
function crossing(config: Record<string, unknown>): Model {
  const layers = [
    node('InputLayer', 'in', { batch_input_shape: [null, 784] }),
    node('Reshape', 'query', { target_shape: [7, 112] }, 'in'),
    node('Dense', 'narrow', { units: 5 }, 'query'),
    node('Reshape', 'value', { target_shape: [14, 56] }, 'in'),
    node('Dense', 'key', { units: 4 }, 'value'),
    node('MultiHeadAttention', 'cross', Object.assign({ num_heads: 3, key_dim: 4 }, config), 'narrow', 'value', 'key'),
    node('Add', 'sum', {}, 'narrow', 'cross'),
    node('Flatten', 'flat', {}, 'sum'),
    node('Dense', 'out', { units: 10 }, 'flat'),
  ];
  return { topology: { class_name: 'Model', config: { layers, input_layers: [edge('in')], output_layers: [edge('out')] } } };
}

export const ATTENTION_MODELS: readonly (readonly [string, Model])[] = [
  ['attention', onRows(attention())],
  ['causal attention', onRows(attention({ use_causal_mask: true, value_dim: 5, output_shape: 9 }))],
  ['attention without bias, with dropout', onRows(attention({ use_bias: false, dropout: 0.3, use_causal_mask: true }))],
  ['attention of one to another', crossing({ value_dim: 2 })],
  ['causal attention of one to another', crossing({ use_causal_mask: true, kernel_regularizer: 'l1l2' })],
  [
    'tokens, places, attention, layer normalisation and GELU',
    sequential(
      input,
      ...ids,
      ['TokenAndPositionEmbedding', { vocabulary_size: 20, sequence_length: 16, embedding_dim: 8 }],
      ['LayerNormalization'],
      attention({ use_causal_mask: true }),
      ['Dense', { units: 12, activation: 'gelu', kernel_initializer: 'glorot_uniform' }],
      ['GlobalAveragePooling1D'],
      out10,
    ),
  ],
];
