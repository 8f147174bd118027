/** Recordings come from anywhere: what is wrong with one is said by its file and field. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { variablesInKerasOrder } from './keras-weights.js';
import { readRecording } from './recording.js';
import { safetensorsFile } from './tensor-file.js';

const GOLDEN = path.join(import.meta.dirname, '../../testkit/golden');
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'paceline-recording-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const written = (name: string, content: unknown): string => {
  const file = path.join(folder, name);
  writeFileSync(file, content instanceof Uint8Array ? content : typeof content === 'string' ? content : JSON.stringify(content));
  return file;
};
const tensor = (name: string, shape: number[]) => ({ name, shape, values: new Float32Array(shape.reduce((a, b) => a * b, 1)) });
const UPDATES = { initial: [1, 2], gradients: [[3, 4]], cases: { sgd: { class: 'SGD', config: {}, trajectory: [[5, 6]] } } };
const TRAINING = {
  replicas: 2,
  globalBatch: 4,
  steps: 1,
  optimizer: { class: 'SGD', config: {} },
  loss: 'MeanSquaredError',
  topology: {},
  weights: [{ index: 0, path: 'dense/kernel', shape: [2, 3] }],
  losses: [1],
};

it('reads what TensorFlow has recorded, and names fields that it does not know', async () => {
  const updates = await readRecording(path.join(GOLDEN, 'optimizers.json'));
  expect(updates).toMatchObject({ kind: 'updates', unknown: [], gradients: { length: 25 }, cases: { length: 19 } });
  const training = await readRecording(path.join(GOLDEN, 'mirrored-cnn-momentum.json'));
  expect(training).toMatchObject({ kind: 'training', steps: 40, unknown: [], tensors: { length: 6 } });
  expect(await readRecording(written('more.json', { ...UPDATES, sparkle: 1 }))).toMatchObject({ unknown: ['sparkle'] });
});

it.each([
  ['is missing', undefined, /cannot be read \(ENOENT\)/],
  ['is no JSON', 'weights', /is no JSON/],
  ['is a list', [], /is no JSON object/],
  ['is something else', { a: 1, b: 2 }, /neither initial, gradients and cases, .* but a, b/],
  ['has no row', { ...UPDATES, cases: {} }, /cases: has no row/],
  ['has a short gradient', { ...UPDATES, gradients: [[3]] }, /gradients\.0: has 1 numbers, initial has 2/],
  [
    'has a short trajectory',
    { ...UPDATES, cases: { sgd: { ...UPDATES.cases.sgd, trajectory: [] } } },
    /cases\.sgd\.trajectory: has 0 steps/,
  ],
  ['has a text for a number', { ...UPDATES, initial: ['a'] }, /initial\.0: /],
  ['lacks losses', { ...TRAINING, losses: undefined }, /losses: /],
  ['lies about its steps', { ...TRAINING, steps: 2 }, /losses: has 1 numbers, steps says 2/],
  ['has no weights beside it', TRAINING, /initial\.safetensors: cannot be read/],
])('a recording that %s is refused', async (name, content, message) => {
  const file = content === undefined ? path.join(folder, 'none.json') : written(`${name.replaceAll(' ', '-')}.json`, content);
  await expect(readRecording(file)).rejects.toThrow(message);
});

it.each([
  ['another shape', safetensorsFile([tensor('0', [3, 2])]), /: 0: is \[3, 2\], the recording says \[2, 3\]/],
  ['another name', safetensorsFile([tensor('kernel', [2, 3])]), /tensor "0" \(dense\/kernel\) is not there/],
  ['one too many', safetensorsFile([tensor('0', [2, 3]), tensor('1', [2])]), /holds 2 tensors, the recording lists 1/],
  ['an end too early', safetensorsFile([tensor('0', [2, 3])]).subarray(0, -4), /is no safetensors file: /],
])('weights with %s are refused', async (_, bytes, message) => {
  const file = written('lies.json', TRAINING);
  written('lies.initial.safetensors', bytes);
  written('lies.final.safetensors', safetensorsFile([tensor('0', [2, 3])]));
  await expect(readRecording(file)).rejects.toThrow(message);
});

it('finds the variables in the order of Keras: of each layer what is trained, then its moving averages', () => {
  const layer = (class_name: string, config: object) => ({ module: 'keras.layers', class_name, config, registered_name: null });
  const input = layer('InputLayer', { batch_shape: [null, 4], name: 'in' });
  const dense = (name: string) => layer('Dense', { name, units: 2, activation: 'linear' });
  const norm = layer('BatchNormalization', { name: 'norm' });
  const model = (layers: object[]) => ({ topology: { class_name: 'Sequential', config: { name: 'm', layers } } }) as never;
  expect(variablesInKerasOrder(model([input, dense('a'), norm, dense('b')])).map(({ path }) => path)).toEqual([
    'a/kernel',
    'a/bias',
    'norm/gamma',
    'norm/beta',
    'norm/moving_mean',
    'norm/moving_variance',
    'b/kernel',
    'b/bias',
  ]);
  const inner = layer('Sequential', { name: 'inner', layers: [dense('a'), norm] });
  expect(variablesInKerasOrder(model([input, inner, dense('b')])).map(({ path }) => path)).toEqual([
    'inner/a/kernel',
    'inner/a/bias',
    'inner/norm/gamma',
    'inner/norm/beta',
    'inner/norm/moving_mean',
    'inner/norm/moving_variance',
    'b/kernel',
    'b/bias',
  ]);
  const dropout = layer('Dropout', { name: 'out', rate: 0.5 });
  expect(() => variablesInKerasOrder(model([input, dense('a'), dropout]))).toThrow(/Dropout draws random numbers/);
  const recurrent = layer('Bidirectional', { name: 'both', layer: layer('LSTM', { units: 2, dropout: 0.5 }) });
  const steps = layer('InputLayer', { batch_shape: [null, 3, 4], name: 'in' });
  expect(() => variablesInKerasOrder(model([steps, recurrent]))).toThrow(/Bidirectional draws random numbers/);
  expect(variablesInKerasOrder(model([input, dense('a'), layer('GaussianNoise', { stddev: 0 })]))).toHaveLength(2);
});
