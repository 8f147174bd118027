/** Keras counts layers in an order of its own; what is expected here is what Keras 3.15 made of the same models. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { planModel } from '@paceline/engine';
import type { ModelTopology } from '@paceline/spec';
import h5wasm from 'h5wasm/node';
import { expect, it } from 'vitest';
import { kerasConfig, kerasGroups } from './formats/keras-topology.js';
import { kerasOrder } from './formats/keras-graph.js';
import { valuesOf, writeHdf5 } from './import/import.fixture.js';
import { importModel } from './import/read-model.js';

type Edges = readonly (readonly [string, number, number])[];
const on = (className: string, name: string, sources: readonly string[], config: object = {}) => {
  const calls: Edges[] = sources.length === 0 ? [] : [sources.map((source) => [source, 0, 0] as const)];
  return { className, name, config: Object.assign({ name }, config), calls };
};
const topologyOf = (layers: readonly ReturnType<typeof on>[], inputs: readonly string[], output: string): ModelTopology => ({
  class_name: 'Functional',
  config: {
    name: 'model',
    layers: layers.map(({ className, name, config, calls }) => ({ class_name: className, name, config, inbound_nodes: calls })),
    input_layers: inputs.map((input) => [input, 0, 0]),
    output_layers: [[output, 0, 0]],
  },
});

const X = ['a', 'b'].map((name) => on('InputLayer', name, [], { batch_input_shape: [null, 2] }));
/** Branch behind branch, as nested models are written out. */
const BRANCHES = [
  ...X,
  ...['a', 'b'].flatMap((x) => [
    on('Dense', `${x}1`, [x], { units: 2, use_bias: false }),
    on('Dense', `${x}2`, [`${x}1`], { units: 2, use_bias: false }),
  ]),
  on('Concatenate', 'both', ['a2', 'b2']),
];
const TOPOLOGY = topologyOf(BRANCHES, ['a', 'b'], 'both');

it('an export lists and counts layers by their depth', () => {
  const { plan } = planModel({ model: { topology: TOPOLOGY } }, undefined);
  const places = kerasGroups(plan, new Map(plan.layers.map(({ name, className }) => [name, className === 'Dense' ? 1 : 0])));
  const weights = places.flatMap(({ layer, groups }) => groups.map(({ path }) => [layer, path]));
  expect(weights).toEqual([
    ['a1', 'layers/dense'],
    ['b1', 'layers/dense_1'],
    ['a2', 'layers/dense_2'],
    ['b2', 'layers/dense_3'],
  ]);
  const { layers } = kerasConfig(plan, 'model')['config'] as { layers: { name: string }[] };
  expect(layers.map(({ name }) => name)).toEqual(['a', 'b', 'a1', 'b1', 'a2', 'b2', 'both']);
});

it('weights go to the layers that Keras counted, in whatever order a given topology lists them', async () => {
  await h5wasm.ready;
  const folder = await mkdtemp(join(tmpdir(), 'paceline-order-'));
  try {
    const file = join(folder, 'my.weights.h5');
    writeHdf5(
      file,
      Object.fromEntries(
        ['', '_1', '_2', '_3'].map((n, i) => [
          `layers/dense${n}/vars/0`,
          [
            [2, 2],
            [i, i, i, i],
          ],
        ]),
      ),
    );
    const values = valuesOf(await importModel(file, { topology: TOPOLOGY }));
    expect([...values].map(([path, [first]]) => [path, first]).sort()).toEqual([
      ['a1/kernel', 0],
      ['a2/kernel', 2],
      ['b1/kernel', 1],
      ['b2/kernel', 3],
    ]);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

it('the operations that make a mask of Masking put what they are made of one deeper', () => {
  const layers = [
    on('InputLayer', 'x', []),
    on('Dense', 'plain1', ['x']),
    on('Dense', 'plain2', ['plain1']),
    on('Dense', 'plain3', ['plain2']),
    on('Dense', 'masked', ['x']),
    on('Masking', 'masking', ['masked']),
    on('LSTM', 'lstm', ['masking'], { returnSequences: true }),
    on('Concatenate', 'all', ['plain3', 'lstm']),
    on('Flatten', 'flat', ['all']),
  ];
  const order = kerasOrder(layers, [['flat', 0, 0]]);
  expect(order).toEqual(['x', 'masked', 'plain1', 'plain2', 'masking', 'plain3', 'lstm', 'all', 'flat']);
  const [, , , , , , lstm] = layers;
  // Without a layer that takes the mask there are none.
  Object.assign(lstm!, { className: 'Dense' });
  expect(kerasOrder(layers, [['flat', 0, 0]]).slice(1, 3)).toEqual(['plain1', 'masked']);
});
