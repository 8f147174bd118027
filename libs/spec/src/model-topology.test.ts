import { describe, expect, it } from 'vitest';
import { camelCase } from './config-keys.js';
import { LIMITS } from './limits.js';
import { givenTopologyFault, layersOf, LEFT_OUT, modelTopologySchema, type LayerTopology, type ModelTopology } from './model-topology.js';

const model = (...layers: readonly unknown[]): ModelTopology => ({ class_name: 'Sequential', config: { layers } });
const layer = (class_name: string, config: Record<string, unknown> = {}) => ({ class_name, config });
const rnn = (cell: unknown) => layer('RNN', { cell });
const stack = (...cells: readonly unknown[]) => layer('StackedRNNCells', { cells });

/** Path and message of each fault. */
function faultsOf(topology: unknown): [path: string, message: string][] {
  const { error, data } = modelTopologySchema.safeParse(topology);
  const fault = data && givenTopologyFault(data);
  return (error?.issues ?? (fault ? [fault] : [])).map(({ path, message }) => [path.join('.'), message]);
}

describe('the cells of a recurrent layer', () => {
  it('are found with their paths, in stacks and in wrapped layers too', () => {
    const inner = rnn(stack(layer('GRUCell'), stack(layer('LSTMCell'))));
    const topology = model(layer('Dense'), layer('Bidirectional', { layer: inner }));
    expect(faultsOf(topology)).toEqual([]);
    expect(layersOf(topology).map(({ layer: { class_name }, isCell, path }) => `${class_name} ${isCell} ${path.join('.')}`)).toEqual([
      'Dense false config.layers.0',
      'Bidirectional false config.layers.1',
      'RNN false config.layers.1.config.layer',
      'StackedRNNCells true config.layers.1.config.layer.config.cell',
      'GRUCell true config.layers.1.config.layer.config.cell.config.cells.0',
      'StackedRNNCells true config.layers.1.config.layer.config.cell.config.cells.1',
      'LSTMCell true config.layers.1.config.layer.config.cell.config.cells.1.config.cells.0',
    ]);
  });

  it.each([
    ['a layer as a cell', rnn(layer('Dense')), 'cell.class_name', 'cell "Dense" is not allowed; allowed are SimpleRNNCell'],
    ['a model as a cell', rnn(layer('Sequential', { layers: [] })), 'cell.class_name', '"Sequential" is not allowed'],
    ['a list as a cell', rnn([layer('LSTMCell')]), 'cell', 'a cell needs class_name and config'],
    ['a cell of images', rnn(layer('ConvLSTM2DCell')), 'cell.class_name', 'use the layer ConvLSTM2D'],
    ['a layer in a stack', rnn(stack(layer('LSTMCell'), layer('Lambda'))), 'cell.config.cells.1.class_name', '"Lambda" is not allowed'],
    ['no object in a stack', rnn(stack(null)), 'cell.config.cells.0', 'a cell needs class_name and config'],
    ['an empty stack', rnn(stack()), 'cell.config.cells', `1 to ${LIMITS.modelCells} cells`],
    ['a stack of no list', rnn(layer('StackedRNNCells', { cells: {} })), 'cell.config.cells', `1 to ${LIMITS.modelCells} cells`],
    ['a high stack', rnn(stack(...Array.from({ length: 65 }, () => layer('LSTMCell')))), 'cell.config.cells', '1 to 64 cells'],
  ])('are checked: %s', (_, bad, path, message) => {
    const [fault] = faultsOf(model(bad));
    expect(fault![0]).toBe(`config.layers.0.config.${path}`);
    expect(fault![1]).toContain(message);
  });

  it('are no layers', () => {
    expect(faultsOf(model(layer('LSTMCell')))[0]).toEqual([
      'config.layers.0.class_name',
      expect.stringContaining('layer "LSTMCell" is not allowed'),
    ]);
  });

  it('cannot be stacked deeper than a topology may be nested', () => {
    let cell: unknown = layer('LSTMCell');
    for (let i = 0; i < 10_000; i++) cell = stack(cell);
    expect(faultsOf(model(rnn(cell)))[0]![1]).toContain('nested deeper');
  });
});

it('takes the masks of Keras 3 among the layers of a model, and nothing else by their names', () => {
  const any = (module?: string) => Object.assign(layer('Any'), module && { module }) as LayerTopology;
  expect(faultsOf(model(any(), any('keras.src.ops.numpy')))).toEqual([]);
  expect(faultsOf(model(any('mine')))[0]![1]).toContain('layer "Any" is not allowed');
  expect(faultsOf(model(layer('TimeDistributed', { layer: any() })))[0]![1]).toContain('layer "Any" is not allowed');
});

it.each(['RandomFlip', 'RandomWidth'])('%s is refused with the reason', (name) => {
  expect(faultsOf(model(layer(name)))[0]![1]).toContain(LEFT_OUT[name]);
});

describe('a key of a config', () => {
  const many = Array.from({ length: 13_000 }, () => layer('LSTMCell'));
  it.each([
    ['ends in "_"', layer('RNN', { cell_: layer('ConvLSTM2DCell') }), 'cell_', 'must not end in "_"'],
    [
      'ends in "_" beside the plain one',
      layer('Bidirectional', { layer: layer('GRU'), layer_: layer('Lambda') }),
      'layer_',
      'must not end',
    ],
    [
      'ends in "_" deep inside',
      rnn(layer('StackedRNNCells', { cells: [layer('GRUCell')], cells_: many })),
      'cell.config.cells_',
      'must not end',
    ],
    ['holds "__"', layer('Dense', { kernel__constraint: 'nonNeg' }), 'kernel__constraint', 'or hold "__"'],
    [
      'is there in two spellings',
      layer('Dense', { batch_input_shape: [null, 1], batchInputShape: [null, 2] }),
      'batchInputShape',
      'the same key as',
    ],
  ])('is refused when it %s', (_, bad, path, message) => {
    expect(faultsOf(model(bad))).toEqual([[`config.layers.0.config.${path}`, expect.stringContaining(message)]]);
  });

  it('may be in snake case or in camel case', () => {
    expect(
      faultsOf(model(layer('Conv2D', { kernel_size: 3, dilationRate: 1, kernel_initializer: layer('HeNormal', { seed: 1 }) }))),
    ).toEqual([]);
    expect(camelCase('recurrent_kernel_initializer')).toBe('recurrentKernelInitializer');
  });
});

describe('the size of a topology', () => {
  const dense = model(layer('Dense'));
  it('has nothing beside what Keras and tf.js write', () => {
    expect(
      faultsOf(
        Object.assign({ keras_version: '3.0.0', module: 'keras', registered_name: null, build_config: {}, compile_config: {} }, dense),
      ),
    ).toEqual([]);
    expect(faultsOf(Object.assign({ keras_version: 'tfjs-layers 4.22.0', backend: 'tensor_flow.js' }, dense))).toEqual([]);
    const padded = Object.assign({ pad: [] }, dense);
    expect(faultsOf(padded)).toEqual([['pad', expect.stringMatching(/^is no part of a topology/)]]);
    expect(modelTopologySchema.safeParse(padded).success, 'one that is stored goes on').toBe(true);
  });

  it('is bounded by its values, and by its objects and lists, as each is an allocation of whoever reads it', () => {
    const withConfig = (pad: unknown) => model(layer('Dense', { pad }));
    expect(faultsOf(withConfig(Array.from({ length: 24_000 }, () => ({}))))).toEqual([]);
    for (const made of [() => ({}), () => []])
      expect(faultsOf(withConfig(Array.from({ length: 25_000 }, made)))).toEqual([
        ['', 'the topology holds more than 25000 objects and lists'],
      ]);
    expect(faultsOf(withConfig(Array(69_000).fill(0)))).toEqual([]);
    expect(faultsOf(withConfig(Array(70_000).fill(0)))).toEqual([['', 'the topology holds more than 70000 values']]);
  });
});
