/** What Normalization layers of Keras have learned of their data lies among the weights of a file, and comes into the config. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { zipSync } from 'fflate';
import h5wasm from 'h5wasm/node';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { config, valuesOf, writeHdf5, type Attributes, type Numbers } from './import.fixture.js';
import { importModel } from './read-model.js';

const root = mkdtempSync(join(tmpdir(), 'paceline-statistics-'));
beforeAll(() => h5wasm.ready);
afterAll(() => rmSync(root, { recursive: true, force: true }));
let files = 0;
function hdf5(name: string, numbers: Numbers, attributes?: Attributes): string {
  const file = join(root, `${files++}-${name}`);
  writeHdf5(file, numbers, attributes);
  return file;
}
function archive(topology: object, numbers: Numbers): string {
  const weights = readFileSync(hdf5('model.weights.h5', numbers));
  const file = join(root, `${files++}.keras`);
  writeFileSync(file, zipSync({ 'config.json': Buffer.from(JSON.stringify(topology)), 'model.weights.h5': weights }));
  return file;
}

it('what a Normalization layer has learned, which counts its examples in a whole number', async () => {
  const layers = [
    config('InputLayer', 'in', { batch_shape: [null, 2] }),
    {
      class_name: 'Sequential',
      config: { name: 'head', layers: [config('Normalization', 'norm', { axis: [-1], mean: null, variance: null })] },
    },
    config('Dense', 'out', { units: 1, use_bias: false }),
  ];
  const topology = { class_name: 'Sequential', config: { name: 'm', layers } };
  const kernel: Numbers[string] = [[2, 1], [1, 2]]; // oxfmt-ignore
  const [mean, variance]: Numbers[string][] = [[[2], [3, 4]], [[2], [5, 6]]]; // oxfmt-ignore
  const objects = 'layers/sequential/layers/normalization/vars';
  // prettier-ignore
  const weights: Numbers = { [`${objects}/0`]: mean!, [`${objects}/1`]: variance!, [`${objects}/2`]: [[], [9]], 'layers/dense/vars/0': kernel };
  const own = 'model_weights/head/m/head/norm';
  const names = {
    model_weights: { layer_names: ['head', 'out'] },
    'model_weights/head': { weight_names: ['mean', 'variance', 'count'].map((word) => `m/head/norm/${word}`) },
    'model_weights/out': { weight_names: ['out/kernel'] },
  };
  // prettier-ignore
  const numbers: Numbers = { [`${own}/mean`]: mean!, [`${own}/variance`]: variance!, [`${own}/count`]: [[], [9]], 'model_weights/out/out/kernel': kernel };
  const whole = hdf5('model.h5', numbers, { '/': { model_config: JSON.stringify(topology), keras_version: '3.15.1' }, ...names });
  for (const file of [archive(topology, weights), whole]) {
    const imported = await importModel(file);
    expect([...valuesOf(imported)]).toEqual([['out/kernel', [1, 2]]]);
    expect(JSON.stringify(imported.model)).toContain('"mean":[3,4],"variance":[5,6]');
  }
});

it('what a Normalization layer of one mean has learned', async () => {
  const layers = [
    config('InputLayer', 'in', { batch_shape: [null, 2] }),
    config('Normalization', 'norm', { axis: null, mean: null, variance: null }),
    config('Dense', 'out', { units: 1, use_bias: false }),
  ];
  const kernel: Numbers[string] = [[2, 1], [1, 2]]; // oxfmt-ignore
  const at = 'layers/normalization/vars';
  const numbers: Numbers = { [`${at}/0`]: [[], [3], true], [`${at}/1`]: [[], [5], true], 'layers/dense/vars/0': kernel };
  const imported = await importModel(archive({ class_name: 'Sequential', config: { name: 'm', layers } }, numbers));
  expect(JSON.stringify(imported.model)).toContain('"mean":3,"variance":5');
});

it('what Normalization layers of Keras 2 have learned, which says no layer in the name of a weight', async () => {
  const norm = (name: string) => config('Normalization', name, { axis: [-1], mean: null, variance: null });
  const topologyOf = (...inner: readonly object[]) => {
    const head = { class_name: 'Sequential', config: { name: 'head', layers: inner } };
    const layers = [
      config('InputLayer', 'in', { batch_input_shape: [null, 2] }),
      norm('outer'),
      head,
      config('Dense', 'out', { units: 1 }),
    ];
    return JSON.stringify({ class_name: 'Sequential', config: { name: 'm', layers } });
  };
  const names = Object.fromEntries(
    ['outer', 'head'].map((name) => [`model_weights/${name}`, { weight_names: ['mean:0', 'variance:0', 'count:0'] }]),
  );
  const attributes = {
    model_weights: { layer_names: ['in', 'outer', 'head', 'out'] },
    'model_weights/in': { weight_names: [] },
    'model_weights/out': { weight_names: ['out/kernel:0', 'out/bias:0'] },
  };
  const numbers: Numbers = {
    ...Object.fromEntries(
      ['outer', 'head'].flatMap((name, i): [string, Numbers[string]][] => [
        [`model_weights/${name}/mean:0`, [[2], [1 + 10 * i, 2]]],
        [`model_weights/${name}/variance:0`, [[2], [3 + 10 * i, 4]]],
        [`model_weights/${name}/count:0`, [[], [9]]],
      ]),
    ),
    'model_weights/out/out/kernel:0': [[2, 1], [1, 2]], // oxfmt-ignore
    'model_weights/out/out/bias:0': [[1], [0]],
  };
  const file = (topology: string) =>
    hdf5('model.h5', numbers, { '/': { model_config: topology, keras_version: '2.15.0' }, ...attributes, ...names });
  const text = JSON.stringify((await importModel(file(topologyOf(norm('inner'))))).model);
  expect(text).toContain('"name":"outer","trainable":true,"dtype":"float32","axis":[-1],"mean":[1,2],"variance":[3,4]');
  expect(text).toContain('"name":"inner","trainable":true,"dtype":"float32","axis":[-1],"mean":[11,2],"variance":[13,4]');
  // Of two, nothing says whose they are.
  await expect(importModel(file(topologyOf(norm('inner'), norm('other'))))).rejects.toMatchObject({
    path: 'model.topology.config.layers.2.config.layers.0.config.mean',
  });
});
