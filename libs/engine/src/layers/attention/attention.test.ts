/** A model of Keras 3 with attention, as its `to_json` writes it: the same values from the same weights, on both backends. */
import { readFileSync } from 'node:fs';
import * as tf from '@tensorflow/tfjs-core';
import type { ModelTopology } from '@paceline/spec';
import { describe, expect, it } from 'vitest';
import { startBackend } from '../../backends/start-backend.js';
import { buildModel } from '../../model/build-model.js';
import { describeModel } from '../../describe/describe.js';
import { IMAGES, sequential, specOf } from '../../run.fixture.js';
import { planTopology } from '../../topology/plan-topology.js';
import { prepareLayers } from '../prepare.js';
import { Randomness } from '../../training/randomness.js';

interface Fixture {
  readonly topology: ModelTopology;
  readonly inputs: number[][];
  readonly outputs: number[][][];
}
const read = (): Fixture => JSON.parse(readFileSync(new URL('keras-attention.fixture.json', import.meta.url), 'utf8')) as Fixture;

it.each(['wasm', 'cpu'] as const)('on %s it computes what Keras does', async (name) => {
  const { topology, inputs, outputs } = read();
  const backend = await startBackend(name);
  backend.activate();
  const { model, weights } = buildModel(planTopology(topology, 'm'), 'm', true);
  prepareLayers(model, backend, new Randomness());
  let from = 0;
  for (const { shape, variable } of weights) {
    const size = tf.util.sizeFromShape([...shape]);
    variable!.write(
      tf.tensor(
        Float32Array.from({ length: size }, (_, i) => Math.sin((from + i) * 0.7)),
        [...shape],
      ),
    );
    from += size;
  }
  const got = (model.apply(tf.tensor2d(inputs), { training: false }) as tf.Tensor3D).arraySync();
  got.flat(2).forEach((value, i) => expect(value, `number ${i}`).toBeCloseTo(outputs.flat(2)[i]!, 4));
});

/** The call of the attention layer, written otherwise. */
function called(node: unknown, config: Record<string, unknown> = {}): () => unknown {
  const { topology } = read();
  const layers = topology.config['layers'] as { config: Record<string, unknown>; inbound_nodes: unknown }[];
  const attention = layers[2]!;
  attention.inbound_nodes = [node];
  Object.assign(attention.config, config);
  return () => planTopology(topology, 'm').layers[2];
}
const tensor = { class_name: '__keras_tensor__', config: { keras_history: ['embedding', 0, 0] } };

describe('the call of an attention layer', () => {
  it.each([
    ['with tensors by name', { args: [], kwargs: { value: tensor, query: tensor, use_causal_mask: true } }],
    [
      'with arguments that say nothing',
      { args: [tensor, tensor], kwargs: { use_causal_mask: true, attention_mask: null, return_attention_scores: false } },
    ],
    [
      'as Keras 2 writes it',
      [
        ['embedding', 0, 0, { use_causal_mask: true }],
        ['embedding', 0, 0, {}],
      ],
    ],
  ])('%s is understood', (_, node) => {
    expect(called(node)()).toMatchObject({
      config: { useCausalMask: true },
      calls: [
        [
          ['embedding', 0, 0],
          ['embedding', 0, 0],
        ],
      ],
    });
  });

  it.each<[string, unknown, Record<string, unknown>, string]>([
    ['a mask of its own', { args: [tensor, tensor], kwargs: { attention_mask: tensor } }, {}, '"attention_mask"'],
    ['scores as an output', { args: [tensor, tensor], kwargs: { return_attention_scores: true } }, {}, '"return_attention_scores"'],
    [
      'another mask than its config',
      { args: [tensor], kwargs: { use_causal_mask: true } },
      { use_causal_mask: false },
      'all of its calls or none',
    ],
  ])('with %s is refused', (_, node, config, message) => {
    const refused = expect.objectContaining({
      path: 'm.config.layers.2.inbound_nodes.0',
      message: expect.stringContaining(message) as string,
    });
    expect(called(node, config)).toThrow(refused as unknown as Error);
  });
});

describe('is refused when the run is described:', () => {
  const flat = ['InputLayer', { batch_input_shape: [null, 784] }] as const;
  const attention = ['MultiHeadAttention', { num_heads: 2, key_dim: 2 }] as const;
  const tokens = (sequence_length: number) =>
    ['TokenAndPositionEmbedding', { vocabulary_size: 3, sequence_length, embedding_dim: 2 }] as const;
  const end = [['Flatten'], ['Dense', { units: 10 }]] as const;
  it.each([
    ['attention to something that is no sequence', sequential(flat, attention, ...end), 'takes sequences [steps, width], not [784]', 1],
    ['more tokens than places', sequential(flat, tokens(5), ...end), 'the input has 784 steps', 1],
    [
      'places of something that is no text',
      sequential(flat, ['Reshape', { target_shape: [28, 28] }], tokens(28), ...end),
      'takes token ids',
      2,
    ],
    [
      'attention behind a mask',
      sequential(flat, ['Reshape', { target_shape: [28, 28] }], ['Masking', { mask_value: 0 }], attention, ...end),
      'takes no mask',
      3,
    ],
    [
      'attention from each of many steps to each',
      sequential(flat, tokens(784), ['MultiHeadAttention', { num_heads: 64, key_dim: 1 }], ...end),
      'what each step sees of each (39337984 elements)',
      2,
    ],
  ])('%s', async (_, model, message, layer) => {
    await expect(describeModel(specOf({ model }), IMAGES)).rejects.toMatchObject({
      path: `model.topology.config.layers.${layer}`,
      message: expect.stringContaining(message) as string,
    });
  });
});
