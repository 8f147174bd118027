/** Configs of the `.keras` form have the keys that the classes of Keras 3 take, and what Keras would compute otherwise is refused. */
import { readFileSync } from 'node:fs';
import { planModel, type PlannedModel } from '@paceline/engine';
import { EVERY_LAYER, LAYER_SETTINGS, type Settings } from '@paceline/engine/planning';
import { ALLOWED_CELLS, ALLOWED_LAYERS, fieldsOf, type ModelTopology } from '@paceline/spec';
import { describe, expect, it } from 'vitest';
import { kerasConfig } from './formats/keras-topology.js';
import { layer, sequential } from './trained-model.fixture.js';

type Config = Record<string, unknown>;
const KERAS = (
  JSON.parse(readFileSync(new URL('../../engine/src/topology/settings/keras-3.fixture.json', import.meta.url), 'utf8')) as {
    configs: Readonly<Record<string, Config>>;
  }
).configs;

const written = (plan: PlannedModel, className: string): Config =>
  (kerasConfig(plan, 'm')['config'] as { layers: { class_name: string; config: Config }[] }).layers.find(
    ({ class_name: name }) => name === className,
  )!.config;

it.each(Object.keys(KERAS))('%s has all keys that it takes and none else, whatever program its config comes from', (className) => {
  const settings = (LAYER_SETTINGS as Readonly<Record<string, Settings>>)[className]!;
  const all = Object.fromEntries([...Object.keys(EVERY_LAYER), ...Object.keys(settings)].map((key) => [key, null]));
  // Planning takes them out.
  for (const key of ['batchShape', 'trainable']) delete all[key];
  const given = Object.fromEntries([...fieldsOf(KERAS[className]!)].map(([key, { value }]) => [key, value]));
  const config = Object.assign(all, given, { isExact: true, unitesMasks: true });
  const outputs = [['it', 0, 0] as const];
  const plan = { sequential: false, layers: [{ className, name: 'it', config, calls: [], path: 'm' }], inputs: [], outputs };
  const keys = Object.keys(written(plan, className));
  expect(keys.filter((key) => !Object.hasOwn(KERAS[className]!, key))).toEqual([]);
  const used = [...fieldsOf(KERAS[className]!)].filter(([key]) => settings[key] && 'use' in settings[key] && key !== 'backwardLayer');
  expect(used.map(([, { key }]) => key).filter((key) => !keys.includes(key))).toEqual([]);
});

it('the table of Keras has all layers and cells', () => {
  const missing = [...ALLOWED_LAYERS, ...ALLOWED_CELLS].filter((name) => !Object.hasOwn(KERAS, name));
  expect(missing).toEqual(['ThresholdedReLU']);
});

it('names initializers as all releases of Keras 3 know them', () => {
  const settings = { units: 3, recurrent_activation: 'sigmoid', batch_input_shape: [null, 5, 4] };
  const initializers = {
    kernel_initializer: { class_name: 'LeCunNormal', config: {} },
    recurrent_initializer: { class_name: 'Orthogonal', config: { gain: 1 } },
  };
  const { plan } = planModel({ model: { topology: sequential([layer('LSTM', Object.assign(settings, initializers))]) } }, undefined);
  expect(written(plan, 'LSTM')).toMatchObject({
    kernel_initializer: { class_name: 'LecunNormal' },
    recurrent_initializer: { class_name: 'OrthogonalInitializer', config: { gain: 1 } },
  });
});

it('refuses the tanh form of GELU, which Keras has under no name', () => {
  const topology = sequential([layer('Dense', { units: 3, activation: 'gelu_new', batch_input_shape: [null, 4] })]);
  const { plan } = planModel({ model: { topology } }, undefined);
  expect(() => kerasConfig(plan, 'm')).toThrow(/layers\.0: .*gelu_new/);
});

describe('where masks meet', () => {
  const on = (class_name: string, name: string, sources: readonly string[], config: object = {}) => ({
    class_name,
    name,
    config: { name, ...config },
    inbound_nodes: sources.length === 0 ? [] : [sources.map((source) => [source, 0, 0])],
  });
  const embedding = { input_dim: 9, output_dim: 4, mask_zero: true };
  const planOf = (layers: readonly object[], output: string, rest: object = {}) => {
    const inputs = ['a', 'b'].map((name) => on('InputLayer', name, [], { batch_input_shape: [null, 5] }));
    const config = {
      name: 'm',
      layers: [...inputs, ...layers],
      input_layers: inputs.map(({ name }) => [name, 0, 0]),
      output_layers: [[output, 0, 0]],
    };
    return planModel(
      { model: { topology: Object.assign({ class_name: 'Functional', config }, rest) as unknown as ModelTopology } },
      undefined,
    ).plan;
  };
  const [EA, EB] = [on('Embedding', 'ea', ['a'], embedding), on('Embedding', 'eb', ['b'], embedding)];
  const PLAIN = on('Embedding', 'plain', ['b'], { input_dim: 9, output_dim: 4 });
  const LSTM = on('LSTM', 'lstm', ['met'], { units: 3, recurrent_activation: 'sigmoid' });

  it.each([
    ['two masks in Add', [EA, EB, on('Add', 'met', ['ea', 'eb']), LSTM], 'Add .*layer lstm uses it'],
    ['a mask and none in Add', [EA, PLAIN, on('Add', 'met', ['ea', 'plain']), LSTM], 'Add .*layer lstm uses it'],
    ['two masks in Concatenate', [EA, EB, on('Concatenate', 'met', ['ea', 'eb']), LSTM], 'Concatenate .*layer lstm uses it'],
    [
      'a mask and none in Multiply',
      [EA, PLAIN, on('Multiply', 'met', ['ea', 'plain']), on('GlobalMaxPooling1D', 'lstm', ['met'])],
      'Multiply',
    ],
  ])('%s are refused: Keras 3 goes on with another one', (_, layers, message) => {
    expect(() => kerasConfig(planOf(layers, 'lstm'), 'm')).toThrow(new RegExp(`different masks meet.*${message}`));
  });

  it('an operation is refused, which would become a layer with a mask', () => {
    const tensor = (name: string) => ({ class_name: '__keras_tensor__', config: { keras_history: [name, 0, 0] } });
    const plus = {
      ...on('Add', 'met', []),
      module: 'keras.src.ops.numpy',
      inbound_nodes: [{ args: [tensor('ea'), tensor('eb')], kwargs: {} }],
    };
    expect(() => kerasConfig(planOf([EA, EB, plus, LSTM], 'lstm', { keras_version: '3.15.1' }), 'm')).toThrow(
      /Add stands for an operation.*layer lstm uses it/,
    );
  });

  it.each([
    ['the same mask twice', [EA, on('Dense', 'd', ['ea'], { units: 4 }), on('Multiply', 'met', ['ea', 'd']), LSTM], {}],
    ['masks that nothing behind uses', [EA, EB, on('Add', 'met', ['ea', 'eb']), on('Flatten', 'lstm', ['met'])], {}],
    ['two masks of Keras 3', [EA, EB, on('Add', 'met', ['ea', 'eb']), LSTM], { keras_version: '3.15.1' }],
  ])('%s pass', (_, layers, rest) => {
    expect(Object.keys(written(planOf(layers, 'lstm', rest), (layers[2] as { class_name: string }).class_name)).sort()).toEqual(['name']);
  });
});
