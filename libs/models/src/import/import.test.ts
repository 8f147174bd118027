/** Models of other programs, and our own exports, come in with their weights under the paths of our variables; what is wrong with a file is said. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { zipSync } from 'fflate';
import h5wasm from 'h5wasm/node';
import { safetensorsHeader } from '@paceline/storage';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { zip } from '../archive.js';
import { jsonOf } from '../byte-stream.js';
import { EXPORT_FORMATS, exportModel } from '../export-model.js';
import { openModelFolder } from '../model-folder.js';
import { layer, sequential, trained } from '../trained-model.fixture.js';
import { unpack } from '../unpack.js';
import { config, KERAS_2, LEGACY, valuesOf, writeHdf5, type Attributes, type Numbers } from './import.fixture.js';
import { importModel } from './read-model.js';
import { halfOf } from './read-tfjs.js';

const root = mkdtempSync(join(tmpdir(), 'paceline-import-'));
beforeAll(() => h5wasm.ready);
afterAll(() => rmSync(root, { recursive: true, force: true }));
let folders = 0;
const folder = (): string => {
  const made = join(root, String(folders++));
  mkdirSync(made);
  return made;
};
const written = (name: string, bytes: string | Uint8Array): string => {
  const file = join(folder(), name);
  writeFileSync(file, bytes);
  return file;
};

const CELL = { units: 3, recurrent_activation: 'sigmoid' };
const WIDE = sequential([
  layer('Bidirectional', { batch_input_shape: [null, 5, 4], layer: { class_name: 'LSTM', config: { return_sequences: true, ...CELL } } }),
  layer('RNN', {
    cell: {
      class_name: 'StackedRNNCells',
      config: {
        cells: [
          { class_name: 'LSTMCell', config: CELL },
          { class_name: 'SimpleRNNCell', config: { units: 2 } },
        ],
      },
    },
    return_sequences: true,
  }),
  layer('BatchNormalization'),
  layer('Flatten'),
  layer('Dropout', { rate: 0.5 }),
  layer('Dense', { units: 4 }),
  layer('PReLU'),
  layer('Dense', { units: 3 }),
]);

it('an archive replaces an export or an empty folder, and nothing else', async () => {
  const target = folder();
  const archive = async function* () {
    yield { path: 'model-card.json', body: jsonOf({}) };
  };
  const unpacked = () => unpack(zip(archive()), target, true).then(() => readdirSync(target));
  expect(await unpacked()).toEqual(['model-card.json']);
  expect(await unpacked()).toEqual(['model-card.json']);
  rmSync(join(target, 'model-card.json'));
  writeFileSync(join(target, 'thesis.md'), 'years of work');
  await expect(unpacked()).rejects.toMatchObject({ code: 'FOLDER_TAKEN' });
  expect(readdirSync(target)).toEqual(['thesis.md']);
});

describe('our exports', () => {
  it.each(EXPORT_FORMATS)('come back from %s with every bit', async (format) => {
    const model = await trained({ topology: WIDE }, [5, 4], 3);
    const target = join(folder(), 'export');
    await unpack(zip(exportModel(model, format)), target, false);
    const imported = await importModel(target);
    expect(imported.missing).toEqual([]);
    expect(imported.model).toBeDefined();
    const values = valuesOf(imported);
    // Layers that had no name are named by the export.
    const expected = model.description.variables.map(({ path }) => [...model.valuesOf(path)!]);
    expect([...values.values()]).toEqual(expected);
  });
});

/** What `model.save` of tf.js 4.22 has written for a Sequential model with another one in it; its weights here are 0, 1, 2, …. */
it('takes what tf.js saves: nested models, and layers in both directions', async () => {
  const text = readFileSync(join(import.meta.dirname, 'saved-by-tfjs.fixture.json'), 'utf8');
  const { weightsManifest } = JSON.parse(text) as { weightsManifest: { weights: { name: string; shape: number[] }[] }[] };
  const theirs = new Map<string, number[]>();
  let count = 0;
  for (const { name, shape } of weightsManifest[0]!.weights)
    theirs.set(
      name,
      Array.from({ length: shape.reduce((x, y) => x * y, 1) }, () => count++),
    );
  const file = written('model.json', text);
  writeFileSync(join(file, '..', 'weights.bin'), Buffer.from(Float32Array.from({ length: count }, (_, i) => i).buffer));
  const imported = await importModel(file);
  expect(imported.missing).toEqual([]);
  const values = valuesOf(imported);
  expect(values.get('base/inner/kernel')).toEqual(theirs.get('inner/kernel'));
  expect(values.get('base/norm/moving_variance')).toEqual(theirs.get('norm/moving_variance'));
  expect(values.get('both/kernel')).toEqual(theirs.get('both/forward_cells/kernel'));
  expect(values.get('both/recurrent_kernel_1')).toEqual(theirs.get('both/backward_cells/recurrent_kernel'));
  expect(values.get('both/bias_1')).toEqual(theirs.get('both/backward_cells/bias'));
});

/** An HDF5 file in a folder of its own. */
function hdf5(name: string, numbers: Numbers, attributes?: Attributes): string {
  const file = join(folder(), name);
  writeHdf5(file, numbers, attributes);
  return file;
}

const NAMES = {
  model_weights: { layer_names: ['dense_input', 'dense', 'head'] },
  'model_weights/dense_input': { weight_names: [] },
  'model_weights/dense': { weight_names: ['dense/kernel:0', 'dense/bias:0'] },
  'model_weights/head': { weight_names: ['logits/kernel:0', 'logits/bias:0'] },
};
const EXPECTED = [
  ['dense/kernel', [1, 2]],
  ['dense/bias', [3]],
  ['head/logits/kernel', [4, 5]],
  ['head/logits/bias', [6, 7]],
];
const whole = (numbers: Numbers = LEGACY, topology: object = KERAS_2) =>
  hdf5('model.h5', numbers, { '/': { model_config: JSON.stringify(topology), keras_version: '2.11.0' }, ...NAMES });

describe('files of Keras', () => {
  it('a whole model of Keras 2, with a model in it', async () => {
    const imported = await importModel(whole());
    expect([...valuesOf(imported)]).toEqual(EXPECTED);
    expect(imported.missing).toEqual([]);
  });

  it('weights of Keras 2 alone, for a model that is given', async () => {
    const alone = Object.fromEntries(Object.entries(LEGACY).map(([path, value]) => [path.replace('model_weights/', ''), value]));
    const names = Object.fromEntries(Object.entries(NAMES).map(([path, value]) => [path.replace(/model_weights\/?/, '') || '/', value]));
    const file = hdf5('my.weights.h5', alone, names);
    const imported = await importModel(file, { topology: KERAS_2 });
    expect(imported.model).toBeUndefined();
    expect([...valuesOf(imported)]).toEqual(EXPECTED);
    await expect(importModel(file)).rejects.toMatchObject({
      code: 'MODEL_UNREADABLE',
      message: expect.stringContaining('whose weights they are'),
    });
  });

  it('a whole model of Keras 3, whose names begin with the models around', async () => {
    const [kernel, bias, inner, innerBias] = Object.values(LEGACY) as [Numbers[string], Numbers[string], Numbers[string], Numbers[string]];
    const numbers = {
      'model_weights/dense/sequential/dense/kernel': kernel,
      'model_weights/dense/sequential/dense/bias': bias,
      'model_weights/head/sequential/head/logits/kernel': inner,
      'model_weights/head/sequential/head/logits/bias': innerBias,
    };
    const names = Object.assign({}, NAMES, {
      'model_weights/dense': { weight_names: ['sequential/dense/kernel', 'sequential/dense/bias'] },
      'model_weights/head': { weight_names: ['sequential/head/logits/kernel', 'sequential/head/logits/bias'] },
    });
    const file = hdf5('new.h5', numbers, { '/': { model_config: JSON.stringify(KERAS_2), keras_version: '3.15.1' }, ...names });
    expect([...valuesOf(await importModel(file))]).toEqual(EXPECTED);
  });

  it('a .keras archive with a model in it', async () => {
    const weights = hdf5('model.weights.h5', {
      'layers/dense/vars/0': LEGACY['model_weights/dense/dense/kernel:0']!,
      'layers/dense/vars/1': LEGACY['model_weights/dense/dense/bias:0']!,
      'layers/functional/layers/dense/vars/0': LEGACY['model_weights/head/logits/kernel:0']!,
      'layers/functional/layers/dense/vars/1': LEGACY['model_weights/head/logits/bias:0']!,
      'optimizer/vars/0': [[1], [9]],
    });
    const bytes = zipSync({
      'config.json': Buffer.from(JSON.stringify(KERAS_2)),
      'metadata.json': Buffer.from('{"keras_version":"3.5.0"}'),
      'model.weights.h5': readFileSync(weights),
      'assets/vocabulary.txt': Buffer.from('x'),
    });
    expect([...valuesOf(await importModel(written('my.keras', bytes)))]).toEqual(EXPECTED);
    expect([...valuesOf(await importModel(weights, { topology: KERAS_2 }))]).toEqual(EXPECTED);
  });
});

it('weights that the converter of tf.js has made smaller', async () => {
  expect([0x3c00, 0xc000, 0x0001, 0x7c00].map(halfOf)).toEqual([1, -2, 2 ** -24, Infinity]);
  const weights = [
    { name: 'dense/kernel', shape: [2, 1], dtype: 'float32', quantization: { dtype: 'uint8', scale: 0.5, min: -1 } },
    { name: 'dense/bias', shape: [1], dtype: 'float32', quantization: { dtype: 'float16' } },
  ];
  const model = {
    modelTopology: {
      model_config: sequential([layer('Dense', { name: 'dense', units: 1, batch_input_shape: [null, 2] })]),
      keras_version: '2.8.0',
    },
  };
  const file = written('model.json', JSON.stringify({ ...model, weightsManifest: [{ paths: ['group1-shard1of1.bin'], weights }] }));
  writeFileSync(join(file, '..', 'group1-shard1of1.bin'), Buffer.from([4, 255, 0x00, 0x3c]));
  expect([...valuesOf(await importModel(file))]).toEqual([
    ['dense/kernel', [1, 126.5]],
    ['dense/bias', [1]],
  ]);
});

/** A browser writes the names of files so; the state of an optimizer and what is counted lie between the weights. */
it('what a browser saves, with an optimizer, and a whole number among the weights', async () => {
  const spec = (name: string, shape: number[], dtype = 'float32', rest: object = {}) => ({ name, shape, dtype, ...rest });
  const optimizer = { group: 'optimizer' };
  const weights = [
    spec('count', [], 'int32'),
    spec('isAdapted', [3], 'bool'),
    spec('dense/kernel', [2, 1]),
    spec('iter', [], 'int32', optimizer),
    spec('dense/kernel/m', [2, 1], 'float32', optimizer),
    spec('dense/bias', [1], 'float32', { group: 'model' }),
  ];
  const modelTopology = sequential([layer('Dense', { name: 'dense', units: 1, batch_input_shape: [null, 2] })]);
  const file = written('model.json', JSON.stringify({ modelTopology, weightsManifest: [{ paths: ['./my.weights.bin'], weights }] }));
  const floats = (...values: number[]) => Buffer.from(Float32Array.from(values).buffer);
  const bytes = [Buffer.alloc(4, 7), Buffer.alloc(3, 1), floats(1, 2), Buffer.alloc(4, 1), floats(8, 9), floats(3)];
  writeFileSync(join(file, '..', 'my.weights.bin'), Buffer.concat(bytes));
  expect([...valuesOf(await importModel(file))]).toEqual([
    ['dense/kernel', [1, 2]],
    ['dense/bias', [3]],
  ]);
  const { predictor } = await openModelFolder(join(file, '..'));
  expect([...predictor.predict([Float32Array.of(10, 20)], 1)[0]!]).toEqual([53]);
  predictor.dispose();
});

describe('a file that is wrong is refused in words:', () => {
  const manifest = (paths: string[], weights: object[]) =>
    JSON.stringify({ modelTopology: KERAS_2, weightsManifest: [{ paths, weights }] });
  const damaged = (bytes: Uint8Array, length: number) => bytes.subarray(0, length);
  /** The sizes in the directory of an archive say what the file has not. */
  const lying = (bytes: Uint8Array): Uint8Array => {
    const at = Buffer.from(bytes).lastIndexOf(Buffer.from('PK\x01\x02', 'latin1'));
    new DataView(bytes.buffer, bytes.byteOffset).setUint32(at + 24, 0xfffffff0, true);
    return bytes;
  };
  const tensor = (name: string) => ({ name, shape: [1] });
  const archived = (topology: string) => () => {
    const weights = readFileSync(hdf5('model.weights.h5', { 'layers/dense/vars/0': [[1], [1]] }));
    return written('my.keras', zipSync({ 'config.json': Buffer.from(topology), 'model.weights.h5': weights }));
  };
  it.each<[what: string, make: () => string, code: string, message: string]>([
    ['nothing is there', () => join(root, 'nowhere'), 'MODEL_UNREADABLE', 'is not there'],
    ['an empty folder', folder, 'MODEL_UNREADABLE', 'holds none of model.json'],
    ['a text', () => written('a.txt', 'hello'), 'MODEL_UNREADABLE', 'none of the forms'],
    ['half of an HDF5 file', () => written('x.h5', damaged(readFileSync(whole()), 900)), 'MODEL_UNREADABLE', 'cannot be read as HDF5'],
    [
      'an HDF5 file that ends early',
      () => written('x.h5', damaged(readFileSync(whole()), readFileSync(whole()).length - 64)),
      'MODEL_UNREADABLE',
      'HDF5',
    ],
    [
      'half of an archive',
      () => written('x.keras', damaged(zipSync({ 'config.json': Buffer.alloc(5000, 'x') }), 60)),
      'MODEL_UNREADABLE',
      'archive cannot be read',
    ],
    [
      'an archive that says it has gigabytes',
      () => written('x.keras', lying(zipSync({ 'config.json': Buffer.alloc(50, 'x') }))),
      'MODEL_UNREADABLE',
      'at most',
    ],
    ['a class of its own', archived('{"class_name":"MyModel","config":{}}'), 'MODEL_UNREADABLE', 'class_name must be one of'],
    ['no topology in an archive', archived('null'), 'MODEL_UNREADABLE', 'topology'],
    ['a model without config', archived('{"class_name":"Sequential"}'), 'MODEL_UNREADABLE', 'must be a non-empty list of layers'],
    ['no layer', archived('{"class_name":"Sequential","config":{"layers":[null]}}'), 'MODEL_UNREADABLE', 'needs class_name and config'],
    [
      'lists in lists',
      archived(`{"class_name":"Sequential","config":{"layers":${'['.repeat(20_000)}${']'.repeat(20_000)}}}`),
      'MODEL_UNREADABLE',
      'nested deeper',
    ],
    ['another archive', () => written('x.keras', zipSync({ 'readme.md': Buffer.from('x') })), 'MODEL_UNREADABLE', 'no model of Keras 3'],
    ['a path out of the folder', () => written('model.json', manifest(['../secret.bin'], [])), 'MODEL_UNREADABLE', 'without folders'],
    ['a file of weights that is missing', () => written('model.json', manifest(['a.bin'], [])), 'MODEL_UNREADABLE', 'which is not there'],
    [
      'two weights of one name',
      () => {
        const weight = { name: 'dense/bias', shape: [1], dtype: 'float32' };
        const file = written('model.json', manifest(['a.bin'], [weight, weight]));
        writeFileSync(join(file, '..', 'a.bin'), Buffer.alloc(8));
        return file;
      },
      'MODEL_UNREADABLE',
      'two weights that are called dense/bias',
    ],
    [
      'a weight that two layers would take',
      () => {
        const inner = { class_name: 'Sequential', config: { name: 'inner', layers: [config('Dense', 'logits', { units: 2 })] } };
        const layers = [config('Dense', 'dense', { units: 2, batch_input_shape: [null, 2] }), inner];
        const model = {
          class_name: 'Sequential',
          config: { layers: [...layers, { ...inner, config: { ...inner.config, name: 'other' } }] },
        };
        const weights = ['dense', 'logits'].map((name) => ({ name: `${name}/kernel`, shape: [2, 2], dtype: 'float32' }));
        const file = written('model.json', JSON.stringify({ modelTopology: model, weightsManifest: [{ paths: ['a.bin'], weights }] }));
        writeFileSync(join(file, '..', 'a.bin'), Buffer.alloc(32));
        return file;
      },
      'WEIGHTS_DO_NOT_FIT',
      'logits/kernel in the file would be both inner/logits/kernel and other/logits/kernel',
    ],
    [
      'a graph model',
      () => written('model.json', JSON.stringify({ format: 'graph-model', modelTopology: { node: [] } })),
      'MODEL_UNREADABLE',
      'tfjs_layers_model',
    ],
    [
      'a shape of terabytes',
      () => {
        const file = written('model.json', manifest(['a.bin'], [{ name: 'dense/kernel', shape: [1e6, 1e6], dtype: 'float32' }]));
        writeFileSync(join(file, '..', 'a.bin'), 'xxxx');
        return file;
      },
      'MODEL_UNREADABLE',
      'more than',
    ],
    [
      'weights that end early',
      () => {
        const file = written('model.json', manifest(['a.bin'], [{ name: 'dense/kernel', shape: [2], dtype: 'float32' }]));
        writeFileSync(join(file, '..', 'a.bin'), 'xxxx');
        return file;
      },
      'MODEL_UNREADABLE',
      'end within dense/kernel',
    ],
    [
      'a lying header',
      () => written('a.safetensors', damaged(Buffer.concat([safetensorsHeader([tensor('a')]), Buffer.alloc(4)]), 70)),
      'MODEL_UNREADABLE',
      'header',
    ],
    [
      'an array of texts',
      () =>
        written(
          'a.npz',
          zipSync({ 'a.npy': Buffer.from("\x93NUMPY\x01\x00\x30\x00{'descr': '<U3', 'fortran_order': False, 'shape': (1,)}", 'latin1') }),
        ),
      'MODEL_UNREADABLE',
      'float32',
    ],
    [
      'another shape',
      () =>
        whole({
          ...LEGACY,
          'model_weights/dense/dense/kernel:0': [
            [1, 2],
            [1, 2],
          ],
        }),
      'WEIGHTS_DO_NOT_FIT',
      'dense/kernel is [2, 1] in the model',
    ],
    [
      'NaN',
      () => whole({ ...LEGACY, 'model_weights/head/logits/bias:0': [[2], [1, Number.NaN]] }),
      'WEIGHTS_NOT_FINITE',
      'element 1 of head/logits/bias is NaN',
    ],
    [
      'a layer of their own',
      () => whole(LEGACY, { class_name: 'Sequential', config: { layers: [config('MyLayer', 'mine')] } }),
      'MODEL_UNREADABLE',
      'MyLayer',
    ],
  ])('%s', async (_, make, code, message) => {
    await expect(importModel(make())).rejects.toMatchObject({ code, message: expect.stringContaining(message) });
  });
});
