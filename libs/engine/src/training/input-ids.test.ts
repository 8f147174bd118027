import { expect, it } from 'vitest';
import { failedLayer } from '../errors/failed-layer.js';
import { loadedEngine, sequential } from '../run.fixture.js';

const TOKENS = {
  inputs: [{ name: 'tokens', shape: [4] }],
  targets: [{ name: 'label', kind: 'classes' as const, shape: [], classes: 3 }],
  isWeighted: false,
};
const ids = ['InputLayer', { batch_input_shape: [null, 4] }] as const;

it.each([
  ['Embedding', [['Embedding', { input_dim: 5, output_dim: 3 }], ['Flatten']]],
  ['Embedding behind Reshape', [['Reshape', { target_shape: [2, 2] }], ['Embedding', { input_dim: 5, output_dim: 3 }], ['Flatten']]],
  ['TokenAndPositionEmbedding', [['TokenAndPositionEmbedding', { vocabulary_size: 5, sequence_length: 4, embedding_dim: 3 }], ['Flatten']]],
  ['CategoryEncoding', [['CategoryEncoding', { num_tokens: 5 }]]],
] as const)('%s takes its ids and nothing else', async (_, layers) => {
  const loaded = await loadedEngine({ model: sequential(ids, ...layers, ['Dense', { units: 3 }]) }, undefined, TOKENS);
  const { engine, layout } = loaded;
  const step = (...values: number[]) => {
    const batch = { inputs: [Float32Array.from(values)], targets: [new Float32Array(values.length / 4)], count: values.length / 4 };
    return engine.step({ round: 0, replica: 0, batches: [batch], out: new Float32Array(layout.totalLength) });
  };
  expect(step(0, 4, 1, 1.9).count).toBe(1);
  for (const value of [Number.NaN, Infinity, -Infinity, -1, 5, 1e10]) {
    const taking = () => step(0, 1, 2, 3, 0, 1, value, 3);
    expect(taking, `${value}`).toThrow(RangeError);
    expect(taking).toThrow(/^\S+ in \w+ of example 1 is no id that \w+ knows: it has 5, from 0 on/);
    try {
      taking();
    } catch (error) {
      expect(failedLayer(error)).toMatch(/embedding|encoding/);
    }
  }
  engine.dispose();
});

it('a number that is no id for one input may be one for another', async () => {
  const node = (class_name: string, name: string, config: object, ...from: string[]) => ({
    class_name,
    config: Object.assign({ name }, config),
    inbound_nodes: from.length === 0 ? [] : [from.map((source) => [source, 0, 0, {}])],
  });
  const layers = [
    node('InputLayer', 'number', { batch_input_shape: [null, 1] }),
    node('InputLayer', 'word', { batch_input_shape: [null, 1] }),
    node('Embedding', 'embedding', { input_dim: 2, output_dim: 3 }, 'word'),
    node('Flatten', 'flat', {}, 'embedding'),
    node('Concatenate', 'both', {}, 'flat', 'number'),
    node('Dense', 'out', { units: 3 }, 'both'),
  ];
  const input_layers = [0, 1].map((i) => [layers[i]!.config.name, 0, 0]);
  const topology = { class_name: 'Model', config: { layers, input_layers, output_layers: [['out', 0, 0]] } };
  const format = { ...TOKENS, inputs: ['word', 'number'].map((name) => ({ name, shape: [1] })) };
  const { engine } = await loadedEngine({ model: { topology } as never }, undefined, format);
  const evaluated = (word: number, number: number) =>
    engine.evaluate({ inputs: [Float32Array.of(word), Float32Array.of(number)], targets: [Float32Array.of(0)], count: 1 });
  expect(evaluated(1, -7).count).toBe(1);
  expect(() => evaluated(2, -7)).toThrow('2 in word of example 0 is no id that embedding knows');
  engine.dispose();
});
