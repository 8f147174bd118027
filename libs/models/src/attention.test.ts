/** What becomes of transformers on their way out: Keras carries them, stock tf.js has no such layers. */
import { describeModel } from '@paceline/engine';
import { parseRunSpec, type RowFormat } from '@paceline/spec';
import { expect, it } from 'vitest';
import { exportModel } from './export-model.js';
import { kerasConfig, kerasGroups } from './formats/keras-topology.js';
import { planModel } from '@paceline/engine';
import { layer, sequential, trained } from './trained-model.fixture.js';

const format: RowFormat = {
  inputs: [{ name: 'x', shape: [6], ids: 9 }],
  targets: [{ name: 'y', kind: 'classes', shape: [6], classes: 9 }],
  isWeighted: false,
};

it('Keras calls attention with its mask, and finds weights where it looks for them', async () => {
  const { plan } = planModel({ model: 'transformer' }, format);
  const { config } = kerasConfig(plan, 'm') as { config: { layers: { class_name: string; config: object; inbound_nodes: object[] }[] } };
  const [embedding, attention] = ['TokenAndPositionEmbedding', 'MultiHeadAttention'].map((name) =>
    config.layers.find(({ class_name }) => class_name === name)!,
  );
  expect(embedding).toMatchObject({
    registered_name: 'keras_hub>TokenAndPositionEmbedding',
    config: { vocabulary_size: 9, sequence_length: 6 },
  });
  expect(attention!.config).not.toHaveProperty('use_causal_mask');
  const query = { class_name: '__keras_tensor__', config: { keras_history: ['norm_1', 0, 0] } };
  expect(attention!.inbound_nodes).toMatchObject([{ args: [query, query], kwargs: { use_causal_mask: true } }]);
  const description = await describeModel({ model: 'transformer', engine: 'wasm' }, format);
  const counts = new Map<string, number>();
  for (const { path } of description.variables) counts.set(path.split('/')[0]!, (counts.get(path.split('/')[0]!) ?? 0) + 1);
  const groups = kerasGroups(plan, counts).flatMap((each) => each.groups);
  expect(
    groups
      .filter(({ variables }) => variables > 0)
      .slice(0, 8)
      .map(({ path, variables }) => [path, variables]),
  ).toEqual([
    ['layers/token_and_position_embedding/token_embedding', 1],
    ['layers/token_and_position_embedding/position_embedding', 1],
    ['layers/layer_normalization', 2],
    ['layers/multi_head_attention/query_dense', 2],
    ['layers/multi_head_attention/key_dense', 2],
    ['layers/multi_head_attention/value_dense', 2],
    ['layers/multi_head_attention/output_dense', 2],
    ['layers/layer_normalization_1', 2],
  ]);
  expect(groups.reduce((sum, { variables }) => sum + variables, 0)).toBe(description.variables.length);
});

it('is refused where it cannot be carried, with the path of the layer', async () => {
  const parsed = parseRunSpec({ model: 'transformer' });
  if (!parsed.ok) throw new Error('unreachable');
  const attention = layer('MultiHeadAttention', { num_heads: 1, key_dim: 2, batch_input_shape: [null, 5, 4] });
  const model = await trained({ topology: sequential([attention, layer('Flatten'), layer('Dense', { units: 3 })]) }, [5, 4], 3);
  expect(() => exportModel(model, 'tfjs')).toThrow(/layers\.0: tf\.js has no MultiHeadAttention; its format is keras/);
  expect(() => exportModel(model, 'keras')).toThrow(/layers\.0: a Sequential model of Keras/);
});
