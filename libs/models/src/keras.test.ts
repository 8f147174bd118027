/** The `.keras` file as Keras 3.15 reads it: the layout here was held against that release, whose predictions were those of the engine. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { File } from 'h5wasm/node';
import { expect, it } from 'vitest';
import { unzip, zip } from './archive.js';
import { exportModel } from './export-model.js';
import { layer, sequential, trained } from './trained-model.fixture.js';

const CELL = { units: 3, recurrent_activation: 'sigmoid' };

it('holds weights where Keras looks for them, streams of random numbers too', async () => {
  const inner = { class_name: 'GRU', config: Object.assign({ return_sequences: true, reset_after: true }, CELL) };
  const topology = sequential([
    layer('Bidirectional', { batch_input_shape: [null, 5, 4], layer: inner }),
    layer('BatchNormalization'),
    layer('Flatten'),
    layer('Dropout', { rate: 0.5 }),
    layer('Dense', { units: 4, activation: 'swish' }),
    layer('Dense', { units: 3 }),
  ]);
  const model = await trained({ topology }, [5, 4], 3);
  const files = await unzip(zip(exportModel(model, 'keras')));
  const keras = await unzip(
    (async function* () {
      yield await Promise.resolve(files.find(({ path }) => path === 'model.keras')!.bytes);
    })(),
  );
  expect(keras.map(({ path }) => path)).toEqual(['metadata.json', 'config.json', 'model.weights.h5']);
  const config = JSON.parse(Buffer.from(keras[1]!.bytes).toString()) as { config: { layers: { class_name: string; config: object }[] } };
  expect(config.config.layers.map(({ class_name }) => class_name)).toEqual([
    'InputLayer',
    ...['Bidirectional', 'BatchNormalization', 'Flatten', 'Dropout', 'Dense', 'Dense'],
  ]);
  expect(config.config.layers[5]!.config).toMatchObject({ activation: 'silu' });
  const folder = await mkdtemp(join(tmpdir(), 'paceline-h5-'));
  try {
    await writeFile(join(folder, 'weights.h5'), keras[2]!.bytes);
    const file = new File(join(folder, 'weights.h5'), 'r');
    const at = (path: string): { shape: number[]; value: ArrayLike<number> } => file.get(path) as never;
    for (const [path, variable] of [
      ['layers/bidirectional/forward_layer/cell/vars/0', 'bidirectional_0/kernel'],
      ['layers/bidirectional/backward_layer/cell/vars/2', 'bidirectional_0/bias_1'],
      ['layers/batch_normalization/vars/3', 'batch_normalization_1/moving_variance'],
      ['layers/dense_1/vars/1', 'dense_5/bias'],
    ] as const)
      expect([...Array.from(at(path).value)], path).toEqual([...model.valuesOf(variable)!]);
    expect(at('layers/bidirectional/backward_layer/cell/vars/2').shape).toEqual([2, 9]);
    for (const path of ['', 'layers/bidirectional/', 'layers/bidirectional/backward_layer/'])
      expect((file.get(`${path}vars`) as { readonly type: string } | null)?.type, path).toBe('Group');
    for (const path of ['layers/dropout', 'layers/bidirectional/forward_layer/cell'])
      expect([...Array.from(at(`${path}/seed_generator/vars/0`).value)], path).toEqual([0, 0]);
    file.close();
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

it('refuses what Keras computes otherwise, with the path of the layer', async () => {
  const topology = sequential([layer('LSTM', { units: 3, batch_input_shape: [null, 5, 4] }), layer('Dense', { units: 3 })]);
  const model = await trained({ topology }, [5, 4], 3);
  expect(() => exportModel(model, 'keras')).toThrow(/layers\.0: .*hard sigmoid/);
});
