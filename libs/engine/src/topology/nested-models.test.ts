/** Models among the layers, shared layers, several inputs and outputs, frozen layers: against tf.js itself, and as Keras 3 writes them. */
import * as tf from '@tensorflow/tfjs-core';
import '@tensorflow/tfjs-backend-cpu';
import * as tfl from '@tensorflow/tfjs-layers';
import type { ModelTopology, RowFormat, RunSpecInput } from '@paceline/spec';
import { describe, expect, it } from 'vitest';
import { describeModel } from '../describe/describe.js';
import type { Batch } from '../engine.js';
import { freezeOf } from './frozen-layers.js';
import { IMAGES, largestDifference, loadedEngine, sequential, specOf } from '../run.fixture.js';
import { planTopology } from './plan-topology.js';

const { layers } = tfl;
const dense = (name: string, units: number, activation: 'tanh' | 'relu' | 'linear' = 'tanh') => layers.dense({ name, units, activation });
const saved = (model: tfl.LayersModel): ModelTopology => JSON.parse(JSON.stringify(model.toJSON(null, false))) as ModelTopology;
const values = (name: string, length: number) => ({ name, kind: 'values' as const, shape: [length] });
const input = (name: string, length: number) => ({ name, shape: [length] });
const formatOf = (inputs: RowFormat['inputs'], targets: RowFormat['targets']): RowFormat => ({ inputs, targets, isWeighted: false });

function encoder(): tfl.LayersModel {
  const x = tfl.input({ shape: [4], name: 'encoder_in' });
  const hidden = dense('hidden', 5).apply(x) as tfl.SymbolicTensor;
  const out = layers.add({ name: 'sum' }).apply([hidden, dense('side', 5).apply(x) as tfl.SymbolicTensor]) as tfl.SymbolicTensor;
  return tfl.model({ inputs: x, outputs: out, name: 'encoder' });
}

/** One encoder on two inputs, and a layer that is called three times. */
function siamese(): tfl.LayersModel {
  const [a, b] = [tfl.input({ shape: [4], name: 'a' }), tfl.input({ shape: [4], name: 'b' })];
  const shared = encoder();
  const [ea, eb] = [a, b].map((end) => shared.apply(end) as tfl.SymbolicTensor);
  const twice = dense('twice', 5);
  const parts = [twice.apply(ea!), twice.apply(eb!), twice.apply(twice.apply(ea!) as tfl.SymbolicTensor)] as tfl.SymbolicTensor[];
  const both = layers.concatenate({ name: 'both' }).apply(parts) as tfl.SymbolicTensor;
  return tfl.model({
    inputs: [a, b],
    outputs: [
      dense('near', 1, 'linear').apply(both) as tfl.SymbolicTensor,
      dense('far', 2, 'linear').apply(parts[2]!) as tfl.SymbolicTensor,
    ],
  });
}

function deep(): tfl.LayersModel {
  const inner = tfl.sequential({ name: 'inner', layers: [layers.dense({ name: 'i1', units: 3, inputShape: [5], activation: 'tanh' })] });
  const middle = tfl.sequential({ name: 'middle', layers: [encoder(), inner] });
  return tfl.sequential({ layers: [middle, dense('head', 2, 'linear')] });
}

function chain(): tfl.LayersModel {
  const head = tfl.sequential({
    name: 'head',
    layers: [layers.dense({ name: 'h1', units: 3, inputShape: [6] }), dense('h2', 2, 'linear')],
  });
  return tfl.sequential({ layers: [layers.dense({ name: 'first', units: 6, inputShape: [4], activation: 'relu' }), head] });
}

const CASES: readonly (readonly [what: string, make: () => tfl.LayersModel, format: RowFormat])[] = [
  [
    'two calls of a nested model, a shared layer and two outputs',
    siamese,
    formatOf([input('a', 4), input('b', 4)], [values('near', 1), values('far', 2)]),
  ],
  ['a model in a model in a model', deep, formatOf([input('x', 4)], [values('y', 2)])],
  ['a sequential model at the end of another', chain, formatOf([input('x', 4)], [values('y', 2)])],
];

const numbers = (length: number, seed: number): Float32Array => Float32Array.from({ length }, (_, i) => Math.sin((i + 1) * seed));
const batchFor = ({ inputs, targets }: RowFormat, count: number): Batch => ({
  inputs: inputs.map(({ shape }, i) => numbers(count * shape[0]!, 1.3 + i)),
  targets: targets.map(({ shape }, i) => numbers(count * shape[0]!, 0.7 + i)),
  count,
});
/** tf.js names a weight by the layer alone, ours has the models in front. */
const shortened = (path: string): string => path.split('/').slice(-2).join('/');

describe.each(CASES)('%s', (_, make, format) => {
  it.each(['wasm', 'cpu'] as const)('has the gradients of tf.js on %s', async (engineName) => {
    await tf.setBackend('cpu');
    const stock = make();
    const spec: RunSpecInput = { model: { topology: saved(stock) }, engine: engineName, loss: 'meanSquaredError', metrics: [] };
    const { engine, layout, flat } = await loadedEngine(spec, undefined, format);
    const batch = batchFor(format, 3);
    const out = new Float32Array(layout.totalLength);
    const sums = engine.step({ round: 0, replica: 0, batches: [batch], out });
    engine.dispose();

    await tf.setBackend('cpu');
    const own = new Map(stock.trainableWeights.map((weight) => [weight.originalName, weight]));
    expect(layout.variables.map(({ path }) => shortened(path)).sort()).toEqual([...own.keys()].sort());
    for (const { path, shape, offset, length } of layout.variables)
      own.get(shortened(path))!.write(tf.tensor(flat.slice(offset, offset + length), [...shape]));
    const [xs, ys] = [batch.inputs, batch.targets].map((fields) => fields.map((field) => tf.tensor(field, [3, field.length / 3])));
    const { value, grads } = tf.variableGrads(() => {
      const outputs = [stock.apply(xs!.length === 1 ? xs![0]! : xs!) as tf.Tensor | tf.Tensor[]].flat();
      const losses = outputs.map((output, i) => tf.sum(tf.mean(tf.squaredDifference(output, ys![i]!), -1)));
      return losses.reduce((a, b) => tf.add(a, b)) as tf.Scalar;
    });
    expect(sums.metricSums[0]).toBeCloseTo(value.dataSync()[0]!, 4);
    for (const { path, offset, length } of layout.variables) {
      const theirs = grads[(own.get(shortened(path))!.read() as tf.Variable).name]!.dataSync() as Float32Array;
      expect(largestDifference(out.subarray(offset, offset + length), theirs, 0.1)).toBeLessThan(1e-4);
    }
  });
});

it('names layers by the models that they stand in, in one order', async () => {
  const description = await describeModel(
    specOf({ model: { topology: saved(siamese()) }, loss: 'meanSquaredError', metrics: [] }),
    CASES[0]![2],
  );
  expect(description.variables.map(({ path }) => path)).toEqual([
    ...['encoder/hidden', 'encoder/side', 'twice', 'near', 'far'].flatMap((layer) => [`${layer}/kernel`, `${layer}/bias`]),
  ]);
  expect(description.inputs.map(({ name }) => name)).toEqual(['a', 'b']);
  // Ends bear the names of the outermost layers and models, in a chain too.
  const chained = await describeModel(specOf({ model: { topology: saved(chain()) }, loss: 'meanSquaredError' }), CASES[2]![2]);
  expect([chained.inputs, chained.outputs].map(([end]) => end!.name)).toEqual(['first_input', 'head']);
});

/** As Keras 3 writes it: `Functional` with batch_shape, and the histories of tensors. */
const tensor = (...history: readonly unknown[]) => ({
  class_name: '__keras_tensor__',
  config: { shape: [null, 784], dtype: 'float32', keras_history: history },
});
const keras = (class_name: string, name: string, config: object, ...from: readonly (readonly unknown[])[]) => ({
  module: 'keras.layers',
  class_name,
  config: { name, trainable: true, ...config },
  registered_name: null,
  name,
  inbound_nodes: from.map((history) => ({ args: [tensor(...history)], kwargs: {} })),
});
const inner = (config: object = {}) =>
  keras(
    'Functional',
    'base',
    {
      layers: [
        keras('InputLayer', 'base_in', { batch_shape: [null, 784] }),
        keras('Dense', 'fc', { units: 7 }, ['base_in', 0, 0]),
        keras('BatchNormalization', 'norm', {}, ['fc', 0, 0]),
      ],
      input_layers: [['base_in', 0, 0]],
      output_layers: [['norm', 0, 0]],
      ...config,
    },
    ['pixels', 0, 0],
  );
const transfer = (base: object, node = 1): RunSpecInput['model'] => ({
  topology: {
    class_name: 'Functional',
    config: {
      name: 'functional_1',
      trainable: true,
      layers: [
        keras('InputLayer', 'pixels', { batch_shape: [null, 784] }),
        base,
        keras('Dense', 'head', { units: 10, activation: 'softmax' }, ['base', node, 0]),
      ],
      input_layers: ['pixels', 0, 0],
      output_layers: ['head', 0, 0],
    },
  } as unknown as ModelTopology,
});

it.each([0, 1])('takes a nested model of Keras 3 whose first call is node %i', async (node) => {
  const { variables } = await describeModel(specOf({ model: transfer(inner(), node) }), IMAGES);
  expect(variables.map(({ path }) => path)).toEqual([
    'base/fc/kernel',
    'base/fc/bias',
    'base/norm/gamma',
    'base/norm/beta',
    'head/kernel',
    'head/bias',
    'base/norm/moving_mean',
    'base/norm/moving_variance',
  ]);
});

describe('trainable: false', () => {
  const step = async (model: RunSpecInput['model'], rest: RunSpecInput = {}) => {
    const { engine, layout, flat } = await loadedEngine({ model, engine: 'cpu', ...rest });
    const out = new Float32Array(layout.totalLength);
    const batch: Batch = { inputs: [numbers(4 * 784, 0.3)], targets: [Float32Array.of(1, 2, 3, 4)], count: 4 };
    engine.step({ round: 0, replica: 0, batches: [batch], out });
    engine.dispose();
    const of = (path: string, values: Float32Array) => {
      const { offset, length } = layout.variables.find((variable) => variable.path === path)!;
      return values.slice(offset, offset + length);
    };
    return { gradient: (path: string) => of(path, out), before: (path: string) => of(path, flat), out };
  };

  it('of a nested model freezes its layers, and normalises by the moving averages', async () => {
    const frozen = await step(transfer(inner({ trainable: false })));
    expect(frozen.gradient('base/fc/kernel').every((g) => g === 0)).toBe(true);
    expect(frozen.gradient('head/kernel').some((g) => g !== 0)).toBe(true);
    // State is handed on times the examples: unchanged.
    expect(frozen.gradient('base/norm/moving_variance')).toEqual(frozen.before('base/norm/moving_variance').map((v) => v * 4));
    const named = await step(transfer(inner()), { freeze: ['base'] });
    expect(named.out).toEqual(frozen.out);
    const trained = await step(transfer(inner()));
    expect(trained.gradient('base/fc/kernel').some((g) => g !== 0)).toBe(true);
    expect(trained.gradient('base/norm/moving_variance')).not.toEqual(frozen.gradient('base/norm/moving_variance'));
  });

  it('of one layer, a wrapped layer and a cell freezes that layer', () => {
    const model = sequential(
      ['InputLayer', { batch_input_shape: [null, 28, 28] }],
      ['TimeDistributed', { name: 't', layer: { class_name: 'Dense', config: { units: 3, trainable: false } } }],
      ['RNN', { name: 'r', cell: { class_name: 'LSTMCell', config: { units: 3, trainable: false } } }],
      ['Dense', { name: 'd', units: 10, trainable: false }],
      ['Dense', { name: 'e', units: 10 }],
    ) as { topology: ModelTopology };
    expect(freezeOf(planTopology(model.topology, 'm'), ['e/bias'])).toEqual(['e/bias', 't', 'r', 'd']);
  });

  it('of one cell of a stack is refused', () => {
    const cells = [true, false].map((trainable) => ({ class_name: 'GRUCell', config: { units: 2, trainable } }));
    const { topology } = sequential(['RNN', { cell: { class_name: 'StackedRNNCells', config: { cells } } }]) as { topology: ModelTopology };
    expect(() => planTopology(topology, 'm')).toThrow(
      expect.objectContaining({ path: 'm.config.layers.0.config.cell.config.cells.1.config.trainable' }) as unknown as Error,
    );
  });
});

describe('refused', () => {
  const L = 'model.topology.config.layers';
  const seq = (...config: readonly (readonly [string, Record<string, unknown>?])[]) =>
    (sequential(...config) as { topology: ModelTopology }).topology as unknown as { class_name: string; config: Record<string, unknown> };
  const nested = (topology: { class_name: string; config: Record<string, unknown> }, name: string) =>
    [topology.class_name, { ...topology.config, name }] as const;
  /** Calls the model inside so often in a row. */
  const often = (topology: { class_name: string; config: Record<string, unknown> }, count: number) => {
    const call = (from: string, node: number) => [[from, node, 0, {}]];
    const own = { class_name: topology.class_name, config: { ...topology.config, name: 'm' } };
    const calls = Array.from({ length: count }, (_, i) => (i === 0 ? call('in', 0) : call('m', i - 1)));
    return {
      class_name: 'Model',
      config: {
        layers: [
          { class_name: 'InputLayer', config: { name: 'in', batch_input_shape: [null, 784] }, inbound_nodes: [] },
          { ...own, inbound_nodes: calls },
        ],
        input_layers: [['in', 0, 0]],
        output_layers: [['m', count - 1, 0]],
      },
    };
  };
  const identity = {
    class_name: 'Model',
    config: {
      layers: [{ class_name: 'InputLayer', config: { name: 'x', batch_input_shape: [null, 784] }, inbound_nodes: [] }],
      input_layers: [['x', 0, 0]],
      output_layers: [['x', 0, 0]],
    },
  };

  it.each<[what: string, model: RunSpecInput['model'], path: string, message: string]>([
    [
      'another shape than the nested model says',
      sequential(
        ['InputLayer', { batch_input_shape: [null, 784] }],
        ['Dense', { units: 5 }],
        nested(seq(['InputLayer', { batch_input_shape: [null, 6] }], ['Dense', { units: 10 }]), 'n'),
      ),
      `${L}.2.config.layers.1`,
      'batch_input_shape [null,6], but gets [null,5]',
    ],
    [
      'another shape than a graph says',
      transfer(
        inner({
          layers: [keras('InputLayer', 'base_in', { batch_shape: [null, 9] }), keras('Dense', 'norm', { units: 7 }, ['base_in', 0, 0])],
        }),
      ),
      `${L}.1.config.layers.0`,
      'takes [null,9], but is called on [null,784]',
    ],
    ['an input that is not there', transfer(inner({ input_layers: [['nobody', 0, 0]] })), `${L}.1.config.input_layers`, 'no InputLayer'],
    ['an output that is not there', transfer(inner({ output_layers: [['norm', 3, 0]] })), `${L}.1.config.output_layers`, 'does not exist'],
    [
      'more inputs than tensors',
      transfer(
        inner({
          input_layers: [
            ['base_in', 0, 0],
            ['base_in', 0, 0],
          ],
        }),
      ),
      `${L}.1`,
      '2 inputs',
    ],
    [
      'calls without end',
      { topology: often(often(often(often(identity, 300), 300), 300), 300) as ModelTopology },
      '',
      'more than 4096 calls',
    ],
    [
      'a frozen model',
      {
        topology: {
          ...(transfer(inner()) as { topology: ModelTopology }).topology,
          config: { ...(transfer(inner()) as { topology: ModelTopology }).topology.config, trainable: false },
        },
      },
      'model.topology.config.trainable',
      'nothing is left',
    ],
    ['an unknown setting', transfer(inner({ units: 3 })), `${L}.1.config.units`, 'a nested model has no setting'],
    ['a layer that is not allowed', transfer(inner({ layers: [keras('Lambda', 'l', {})] })), `${L}.1.config.layers.0.class_name`, 'Lambda'],
  ])('%s', async (_, model, path, message) => {
    const refused = async () => describeModel(specOf({ model }), IMAGES);
    if (message === 'Lambda') return expect(refused()).rejects.toThrow(message);
    await expect(refused()).rejects.toMatchObject({
      path: path === '' ? expect.any(String) : path,
      message: expect.stringContaining(message),
    });
  });
});
