import type { BackendWasm } from '@tensorflow/tfjs-backend-wasm';
import * as tf from '@tensorflow/tfjs-core';
import { afterEach, describe, expect, it } from 'vitest';
import { EngineMemoryError } from './errors/engine-memory-error.js';
import { ModelError } from './errors/model-error.js';
import { batchOf, bitsOf, IMAGES, type Loaded, loadedEngine, rowsOf, sequential } from './run.fixture.js';

const open: Loaded[] = [];
async function load(input: Parameters<typeof loadedEngine>[0]): Promise<Loaded> {
  const loaded = await loadedEngine(input);
  open.push(loaded);
  return loaded;
}
afterEach(() => {
  for (const { engine } of open.splice(0)) engine.dispose();
});

const newOut = ({ layout }: Loaded): Float32Array => new Float32Array(new SharedArrayBuffer(layout.totalLength * 4)).fill(Number.NaN);
function stepBits(loaded: Loaded, round: number, replica: number, ...batches: readonly ReturnType<typeof batchOf>[]): Buffer {
  const out = newOut(loaded);
  loaded.engine.step({ round, replica, batches, out });
  return bitsOf(out);
}

const lstm = sequential(
  ['InputLayer', { batch_input_shape: [null, 4, 196] }],
  ['LSTM', { units: 6, dropout: 0.3, recurrent_dropout: 0.2 }],
  ['Dense', { units: 10 }],
);
const noisy = sequential(
  ['InputLayer', { batch_input_shape: [null, 784] }],
  ['GaussianNoise', { stddev: 0.3 }],
  ['Dense', { units: 16, activation: 'selu' }],
  ['AlphaDropout', { rate: 0.4 }],
  ['LayerNormalization'],
  ['GaussianDropout', { rate: 0.4 }],
  ['Dropout', { rate: 0.5, seed: 7 }],
  ['Dense', { units: 10 }],
);
const cellDropout = { dropout: 0.3, recurrent_dropout: 0.2 };
const cells = sequential(
  ['InputLayer', { batch_input_shape: [null, 4, 14, 14, 1] }],
  ['ConvLSTM2D', { filters: 2, kernel_size: 3, strides: 3, return_sequences: true, ...cellDropout }],
  ['Reshape', { target_shape: [4, 32] }],
  [
    'RNN',
    {
      cell: {
        class_name: 'StackedRNNCells',
        config: {
          cells: [
            { class_name: 'LSTMCell', config: { units: 6, ...cellDropout } },
            { class_name: 'GRUCell', config: { units: 5, reset_after: true, ...cellDropout } },
          ],
        },
      },
    },
  ],
  ['Dense', { units: 10 }],
);
const RANDOM_MODELS = [
  ['mlp-dropout', 'mlp-dropout'],
  ['an LSTM with dropout', lstm],
  ['ConvLSTM2D and an RNN of cells with dropout', cells],
  ['noise layers', noisy],
] as const;

describe.each(RANDOM_MODELS)('the replica step of %s', (_, model) => {
  it('gives the same bits whatever was computed before, and other bits for another round, replica or seed', async () => {
    const loaded = await load({ model, replicas: 4, globalBatch: 32 });
    const batch = batchOf(8);
    const first = stepBits(loaded, 3, 1, batch);
    const other = stepBits(loaded, 3, 2, batch);
    loaded.engine.evaluate(batchOf(5, 9));
    stepBits(loaded, 4, 1, batchOf(3, 5));
    expect(stepBits(loaded, 3, 1, batch).equals(first)).toBe(true);
    expect(other.equals(first)).toBe(false);
    expect(stepBits(loaded, 4, 1, batch).equals(first)).toBe(false);

    const again = await load({ model, replicas: 4, globalBatch: 32 });
    expect(stepBits(again, 3, 1, batch).equals(first)).toBe(true);
    const seeded = await load({ model, replicas: 4, globalBatch: 32, seed: 43 });
    seeded.engine.load(loaded.flat);
    expect(stepBits(seeded, 3, 1, batch).equals(first)).toBe(false);
  });

  it('keeps the number of tensors over 24 steps with changing parameters', async () => {
    const loaded = await load({ model, replicas: 1, globalBatch: 2 });
    const batch = batchOf(2);
    const out = newOut(loaded);
    loaded.engine.step({ round: 0, replica: 0, batches: [batch], out });
    loaded.engine.evaluate(batch);
    const before = loaded.engine.memory();
    for (let round = 1; round <= 24; round++) {
      loaded.engine.load(loaded.flat);
      loaded.engine.step({ round, replica: 0, batches: [batch, batch], out });
      if (round % 8 === 0) loaded.engine.evaluate(batch);
    }
    expect(loaded.engine.memory()).toEqual(before);
  });
});

describe('the replica step', () => {
  it('follows every load: nothing of the old parameters is left in packed copies', async () => {
    const changing = await load({ model: 'mlp' });
    const batch = batchOf(8);
    const other = changing.flat.map((value) => value * 1.5 + 0.01);
    stepBits(changing, 0, 0, batch);
    changing.engine.load(other);
    const fresh = await load({ model: 'mlp' });
    fresh.engine.load(other);
    expect(stepBits(changing, 0, 0, batch).equals(stepBits(fresh, 0, 0, batch))).toBe(true);
    expect(changing.engine.evaluate(batch)).toEqual(fresh.engine.evaluate(batch));
  });

  it('adds micro-batches up in order, and weights what it reports by the examples', async () => {
    const loaded = await load({ model: 'mlp' });
    const batch = batchOf(24);
    const whole = newOut(loaded);
    const sums = loaded.engine.step({ round: 0, replica: 0, batches: [batch], out: whole });
    const parts = newOut(loaded);
    const partSums = loaded.engine.step({
      round: 0,
      replica: 0,
      batches: [rowsOf(batch, 0, 16), rowsOf(batch, 16, 16), rowsOf(batch, 16, 24)],
      out: parts,
    });
    expect(partSums.count).toBe(24);
    expect(partSums.metricSums[0]).toBeCloseTo(sums.metricSums[0]!, 5);
    expect(partSums.metricSums[1]).toBe(sums.metricSums[1]);
    for (let i = 0; i < whole.length; i++)
      if (Math.abs(whole[i]! - parts[i]!) > 1e-5) expect.fail(`element ${i}: ${whole[i]} and ${parts[i]}`);
  });

  it('delivers state × count, starting from the loaded state for every replica', async () => {
    const loaded = await load({ model: 'mlp-dropout' });
    const { layout, engine, flat } = loaded;
    flat.fill(0.25, layout.trainableLength);
    engine.load(flat);
    const batch = batchOf(12);
    const out = newOut(loaded);
    for (const replica of [0, 1]) {
      engine.step({ round: 0, replica, batches: [batch], out });
      const mean = layout.variables.find(({ path }) => path.endsWith('moving_mean'))!;
      // Momentum 0.99: new = 0.99 · 0.25 + 0.01 · mean of the unit's outputs, here checked through the kernel and the inputs.
      const kernel = flat.subarray(0, 784 * 256);
      let unit = 0;
      for (let row = 0; row < 12; row++)
        for (let i = 0; i < 784; i++) unit += (batch.inputs[0]![row * 784 + i]! * kernel[i * 256 + 5]!) / 12;
      expect(out[mean.offset + 5]! / 12).toBeCloseTo(0.2475 + 0.01 * unit, 5);
    }
    expect(engine.evaluate(batch)).toEqual(engine.evaluate(batch));
  });

  it('hands out the outputs that training computed', async () => {
    const loaded = await load({ model: 'mlp' });
    const [batch, outputs] = [batchOf(4), new Float32Array(40).fill(Number.NaN)];
    loaded.engine.step({ round: 0, replica: 0, batches: [Object.assign({}, batch, { outputs: [outputs] })], out: newOut(loaded) });
    const rightOnes = Array.from({ length: 4 }, (_, row) => {
      const own = outputs.subarray(row * 10, row * 10 + 10);
      return own.indexOf(Math.max(...own)) === batch.targets[0]![row] ? 1 : 0;
    });
    // Without dropout an evaluation has the same outputs.
    expect(loaded.engine.evaluate(batch).metricSums[1]).toBe(rightOnes.reduce((sum: number, one) => sum + one, 0));
    expect(outputs.every(Number.isFinite)).toBe(true);
  });

  it('writes zeros for a replica without examples', async () => {
    const loaded = await load({ model: 'mlp-dropout' });
    const out = newOut(loaded);
    expect(loaded.engine.step({ round: 0, replica: 0, batches: [rowsOf(batchOf(1), 0, 0)], out })).toEqual({
      count: 0,
      metricSums: [0, 0, 0],
    });
    expect(bitsOf(out).every((byte) => byte === 0)).toBe(true);
  });

  it('puts Math.random back, also when a step fails', async () => {
    const { random } = Math;
    const loaded = await load({ model: 'mlp-dropout' });
    const wrong = { ...batchOf(2), targets: [Float32Array.of(3, 10)] };
    expect(() => loaded.engine.step({ round: 0, replica: 0, batches: [wrong], out: newOut(loaded) })).toThrow('label 10 of example 1');
    expect(Math.random).toBe(random);
    const before = loaded.engine.memory();
    expect(() => stepBits(loaded, 0, 0, wrong)).toThrow(RangeError);
    expect(loaded.engine.memory()).toEqual(before);
    expect(stepBits(loaded, 0, 0, batchOf(2)).length).toBe(loaded.layout.totalLength * 4);
  });

  it('refuses batches and outputs that do not fit', async () => {
    const loaded = await load({ model: 'mlp' });
    const short = { ...batchOf(4), count: 5 };
    expect(() => stepBits(loaded, 0, 0, short)).toThrow('needs 3920 floats of image, not 3136');
    expect(() => loaded.engine.step({ round: 0, replica: 0, batches: [batchOf(1)], out: new Float32Array(10) })).toThrow('10 elements');
    expect(() => loaded.engine.load(new Float32Array(3))).toThrow(RangeError);
  });

  it.each([
    ['a recurrent layer', ['LSTM', { units: 3 }]],
    ['a cell of a stack', ['RNN', {}]],
    ['a layer in Bidirectional', ['Bidirectional', {}]],
  ] as const)('counts the penalties of %s', async (_, [className, config]) => {
    const lossWith = async (l2: number): Promise<{ loss: number; loaded: Loaded }> => {
      const inner = { units: 3, recurrent_regularizer: { class_name: 'L2', config: { l2 } } };
      const cell = { class_name: 'StackedRNNCells', config: { cells: [{ class_name: 'LSTMCell', config: inner }] } };
      const all = {
        ...config,
        ...{ LSTM: inner, RNN: { cell }, Bidirectional: { layer: { class_name: 'LSTM', config: inner } } }[className],
      };
      const model = sequential(['InputLayer', { batch_input_shape: [null, 4, 196] }], [className, all], ['Dense', { units: 10 }]);
      const loaded = await load({ model });
      const { metricSums } = loaded.engine.step({ round: 0, replica: 0, batches: [batchOf(5)], out: newOut(loaded) });
      return { loss: metricSums[0]!, loaded };
    };
    const [without, with_] = [await lossWith(0), await lossWith(0.5)];
    const { variables } = with_.loaded.layout;
    const kernels = variables.filter(({ path }) => path.includes('recurrent_kernel'));
    const squares = kernels.reduce(
      (sum, { offset, length }) => sum + with_.loaded.flat.subarray(offset, offset + length).reduce((s, w) => s + w * w, 0),
      0,
    );
    expect(with_.loss - without.loss).toBeCloseTo(5 * 0.5 * squares, 3);
  });

  it('counts regularisation once per example, in loss and gradient', async () => {
    const plain = (l2: number) =>
      sequential([
        'Dense',
        {
          name: 'd',
          units: 10,
          batch_input_shape: [null, 784],
          ...(l2 > 0 ? { kernel_regularizer: { class_name: 'L2', config: { l2 } } } : {}),
        },
      ]);
    const [without, with_] = [await load({ model: plain(0) }), await load({ model: plain(0.01) })];
    const batch = batchOf(6);
    const [a, b] = [newOut(without), newOut(with_)];
    const sumsA = without.engine.step({ round: 0, replica: 0, batches: [batch], out: a });
    const sumsB = with_.engine.step({ round: 0, replica: 0, batches: [batch], out: b });
    let penalty = 0;
    for (let i = 0; i < 7840; i++) {
      penalty += 0.01 * without.flat[i]! ** 2;
      expect(b[i]! - a[i]!).toBeCloseTo(6 * 2 * 0.01 * without.flat[i]!, 4);
    }
    expect(sumsB.metricSums[0]! - sumsA.metricSums[0]!).toBeCloseTo(6 * penalty, 3);
    expect(with_.engine.evaluate(batch).metricSums[0]).toBeCloseTo(sumsB.metricSums[0]!, 3);
    // As in Keras 3, what is frozen is not penalised.
    const frozen = await load({ model: plain(0.01), freeze: ['d/kernel'] });
    expect(frozen.engine.step({ round: 0, replica: 0, batches: [batch], out: b }).metricSums[0]).toBe(sumsA.metricSums[0]);
  });
});

it('says what it is, and refuses a description of another model', async () => {
  const loaded = await load({ model: 'mlp' });
  expect(loaded.engine.fingerprint).toMatch(/^tfjs-wasm 4\.22\.0; kernels \d+; simd yes; threads 1; v8 /);
  expect((await load({ model: 'mlp', engine: 'cpu' })).engine.fingerprint).toMatch(/^tfjs-cpu 4\.22\.0; /);
  const { createEngine } = await import('./create-engine.js');
  await expect(
    createEngine({
      spec: { ...loaded.spec, model: 'mlp-dropout' },
      description: loaded.description,
      format: IMAGES,
      layout: loaded.layout,
    }),
  ).rejects.toThrow('same release');
  expect(new ModelError('model', 'x').code).toBe('INVALID_MODEL');
});

it('never computes with fused multiply-add in a thread that has begun without', async () => {
  await load({ model: 'mlp' });
  await expect(load({ model: 'mlp', engine: 'wasm-relaxed' })).rejects.toThrow(/plain kernels already|no fused multiply-add/);
});

const withState = sequential(['Dense', { units: 6, batch_input_shape: [null, 784] }], ['BatchNormalization'], ['Dense', { units: 10 }]);

it('takes a flat vector in pieces, wherever it is cut, also inside of a variable: the same bits as in one', async () => {
  for (const engine of ['wasm', 'cpu'] as const) {
    const loaded = await load({ model: withState, engine });
    const rows = batchOf(8);
    const whole = newOut(loaded);
    const { totalLength } = loaded.layout;
    loaded.engine.step({ round: 3, replica: 1, batches: [rows, rows], out: whole });
    for (const cuts of [[1], [4000, 4001], [totalLength - 3], [1000, 2000, totalLength - 13]]) {
      const borders = [0, ...cuts, totalLength];
      const pieces = borders.slice(1).map((end, i) => new Float32Array(end - borders[i]!).fill(Number.NaN));
      loaded.engine.step({ round: 3, replica: 1, batches: [rows, rows], out: pieces });
      expect(Buffer.compare(Buffer.concat(pieces.map((piece) => Buffer.from(piece.buffer))), Buffer.from(whole.slice().buffer))).toBe(0);
    }
    expect(() => loaded.engine.step({ round: 0, replica: 0, batches: [rows], out: [whole, new Float32Array(1)] })).toThrow(RangeError);
  }
});

it('fails loudly when the heap is full, instead of writing over itself', async () => {
  const loaded = await load({ model: 'mlp' });
  loaded.engine.evaluate(batchOf(1));
  const backend = tf.backend() as BackendWasm;
  for (const elements of [2 ** 29, 2 ** 30 - 1, 2 ** 30, 2 ** 32 + 1]) {
    expect(() => backend.makeOutput([elements], 'float32')).toThrow(EngineMemoryError);
  }
  expect(stepBits(loaded, 0, 0, batchOf(1)).length).toBeGreaterThan(0);
});

describe('batch normalisation whose variables are all frozen', () => {
  const model = sequential(
    ['Dense', { units: 6, batch_input_shape: [null, 784] }],
    ['BatchNormalization', { name: 'norm' }],
    ['Dense', { units: 10, name: 'last' }],
  );
  it.each(['wasm', 'cpu'] as const)('normalises by its moving averages in training, on %s', async (engine) => {
    const lossOf = (loaded: Loaded): number =>
      loaded.engine.step({ round: 0, replica: 0, batches: [batchOf(8)], out: newOut(loaded) }).metricSums[0]!;
    const frozen = await load({ model, engine, freeze: ['norm'] });
    expect(lossOf(frozen)).toBeCloseTo(frozen.engine.evaluate(batchOf(8)).metricSums[0]!, 3);
    const out = newOut(frozen);
    frozen.engine.step({ round: 0, replica: 0, batches: [batchOf(8)], out });
    expect([...out].every(Number.isFinite)).toBe(true);
    expect(Math.max(...out.subarray(0, 784 * 6).map(Math.abs)), 'a gradient in front of it').toBeGreaterThan(0);
    const partly = await load({ model, engine, freeze: ['norm/gamma'] });
    expect(Math.abs(lossOf(partly) - partly.engine.evaluate(batchOf(8)).metricSums[0]!)).toBeGreaterThan(0.01);
  });
});
