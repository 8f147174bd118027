/** A replayed step has the bits of a computed one, for every kind of layer; what cannot be replayed is computed. */
import type { BackendWasm } from '@tensorflow/tfjs-backend-wasm';
import * as tf from '@tensorflow/tfjs-core';
import type { RunSpecInput } from '@paceline/spec';
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest';
import { RecordedStep, StepRecorder } from '../backends/wasm/recorded-step.js';
import { startBackend } from '../backends/start-backend.js';
import { MODELS } from '../gradients/models.fixture.js';
import { batchOf, bitsOf, loadedEngine, rowsOf, sequential, type Loaded } from '../run.fixture.js';
import type { Batch } from '../engine.js';

let replays = 0;
const { replay } = RecordedStep.prototype;
/** Replays call no kernel. */
let isIdle = false;
RecordedStep.prototype.replay = function (fill, loss) {
  replays++;
  if (!isIdle) return replay.call(this, fill, loss);
  const idle = Object.assign(Object.create(RecordedStep.prototype), this, {
    calls: (this as unknown as { calls: object[] }).calls.filter((call) => !('kernel' in call)),
  }) as RecordedStep;
  return replay.call(idle, fill, loss);
};
// The next file has the same process.
afterAll(() => {
  RecordedStep.prototype.replay = replay;
});
const open: Loaded[] = [];
beforeEach(() => {
  replays = 0;
});
afterEach(() => {
  for (const { engine } of open.splice(0)) engine.dispose();
});
async function load(spec: RunSpecInput): Promise<Loaded> {
  const loaded = await loadedEngine({ engine: 'wasm', ...spec });
  open.push(loaded);
  return loaded;
}

/** What a step gives: as it is computed with whatever is faster, and as it is computed while it is traced, which is never replayed. */
function bothWays({ engine, layout }: Loaded, round: number, batches: readonly Batch[]) {
  const [out, expected] = [0, 1].map(() => new Float32Array(layout.totalLength).fill(Number.NaN)) as [Float32Array, Float32Array];
  const { result } = engine.trace({ round, replica: 1, batches, out: expected });
  const sums = engine.step({ round, replica: 1, batches, out });
  return { got: { bits: bitsOf(out), sums }, expected: { bits: bitsOf(expected), sums: result } };
}

/** Another batch in each round. Parameters change after the proof: an operand that XNNPACK has packed before would then be an old one. */
function expectSameBits(
  loaded: Loaded,
  rounds: number,
  batchesOf: (round: number) => readonly Batch[] = (round) => [batchOf(6, round + 1)],
) {
  for (let round = 0; round < rounds; round++) {
    if (round > 4) loaded.engine.load(loaded.flat.map((value, i) => value + Math.sin(round * 7 + i) * 0.01));
    const { got, expected } = bothWays(loaded, round, batchesOf(round));
    expect(got.sums).toEqual(expected.sums);
    expect(got.bits.equals(expected.bits), `round ${round}`).toBe(true);
  }
}

/** They draw random numbers, keep state, have penalties, call kernels in kernels, or read values. */
const COMPUTED: readonly string[] = [
  'batch normalisation',
  'batch normalisation of images',
  'batch normalisation along another axis, without scale and centre',
  'batch normalisation of six channels, without centre',
  'Conv1DTranspose',
  'LSTM with dropout',
  'LSTM with dropout of its inputs',
  'GRU with dropout of its inputs',
  'GRU with dropout, reset after',
  'dropout and noise',
  'spatial dropout',
  'spatial dropout of images',
  'Conv3D',
  'strided, padded Conv3D',
  'Conv3D with channels first',
  'Conv3DTranspose',
  'Conv3DTranspose with channels first',
  'max pooling of volumes',
  'max pooling of volumes along their depth alone',
  'overlapping, padded max pooling of volumes',
  'average pooling of volumes',
  'overlapping average pooling of volumes',
  'ConvLSTM2D with dropout',
  'RNN of LSTMCell with dropout',
  'RNN of stacks in stacks with dropout',
  'regularizers of cells and wrapped layers',
  'attention without bias, with dropout',
  'causal attention of one to another',
  'CenterCrop in TimeDistributed',
  'CategoryEncoding',
  'CategoryEncoding that counts',
  'CategoryEncoding of one number',
];
const computed: string[] = [];

describe.each(MODELS)('%s', (name, model) => {
  it('has the bits of computed steps in all steps', async () => {
    const loaded = await load({ model, loss: 'sparseCategoricalCrossentropy' });
    expectSameBits(loaded, 8);
    if (replays === 0) computed.push(name);
    else expect(replays).toBe(5); // once for the proof, then all
  });
});

it('all other kinds of layers are replayed', () => expect(computed).toEqual(COMPUTED));

it('is never used when its bits differ, and leaves the outputs as they were computed', async () => {
  const loaded = await load({ model: 'mlp' });
  const outputs = [new Float32Array(60)];
  const step = (isTraced: boolean): Float32Array => {
    const request = { round: 0, replica: 0, batches: [{ ...batchOf(6), outputs }], out: new Float32Array(loaded.layout.totalLength) };
    outputs[0]!.fill(Number.NaN);
    if (isTraced) loaded.engine.trace(request);
    else loaded.engine.step(request);
    return outputs[0]!.slice();
  };
  const expected = step(true);
  isIdle = true; // with one batch and one set of parameters, memory would still have the right values
  for (let i = 0; i < 6; i++) expect(step(false)).toEqual(expected);
  isIdle = false;
  expect(replays).toBe(1);
});

it.each([
  ['the MLP', 'mlp', true],
  ['the CNN', 'cnn', true],
  ['an LSTM', sequential(['InputLayer', { batch_input_shape: [null, 4, 196] }], ['LSTM', { units: 6 }], ['Dense', { units: 10 }]), true],
  ['batch normalisation', 'mlp-dropout', false],
  ['dropout', sequential(['InputLayer', { batch_input_shape: [null, 784] }], ['Dropout', { rate: 0.5 }], ['Dense', { units: 10 }]), false],
  [
    'a regularizer',
    sequential(
      ['InputLayer', { batch_input_shape: [null, 784] }],
      ['Dense', { units: 10, kernel_regularizer: { class_name: 'L1L2', config: { l1: 0, l2: 0.1 } } }],
    ),
    false,
  ],
] as const)('%s: is replayed, or never', async (_, model, isReplayed) => {
  const loaded = await load({ model });
  expectSameBits(loaded, 6);
  expect(replays > 0).toBe(isReplayed);
});

it('sparse and dense batches in turn, of several sizes, added up from micro-batches, beside another engine of the thread', async () => {
  const [one, other] = [await load({ model: 'mlp' }), await load({ model: 'cnn' })];
  const dotted = ({ inputs, ...rest }: Batch): Batch => ({
    ...rest,
    inputs: inputs.map((values) => values.map((value, i) => (i % 7 === 0 ? value : 0))),
  });
  const batchesOf = (round: number): Batch[] => {
    const whole = batchOf(12, round + 3);
    const given = round % 2 === 0 ? dotted(whole) : whole;
    return [rowsOf(given, 0, 5), rowsOf(given, 5, 10), rowsOf(given, 10, 12), rowsOf(given, 5, 5 + (round % 4))];
  };
  for (let i = 0; i < 3; i++) {
    expectSameBits(one, 6, batchesOf);
    expectSameBits(other, 4, batchesOf);
    one.engine.evaluate(batchOf(5));
  }
  expect(replays).toBeGreaterThan(30);
});

it('the values of the outputs are copied to who asked for them', async () => {
  const loaded = await load({ model: 'mlp' });
  const outputs = [new Float32Array(60)];
  for (let round = 0; round < 6; round++) {
    const batch = { ...batchOf(6, round + 1), outputs };
    outputs[0]!.fill(Number.NaN);
    loaded.engine.trace({ round, replica: 0, batches: [batch], out: new Float32Array(loaded.layout.totalLength) });
    const expected = outputs[0]!.slice();
    outputs[0]!.fill(Number.NaN);
    loaded.engine.step({ round, replica: 0, batches: [batch], out: new Float32Array(loaded.layout.totalLength) });
    expect(outputs[0]).toEqual(expected);
  }
  expect(replays).toBe(3);
});

it('a loss that is no number marks the gradient', async () => {
  const loaded = await load({ model: 'mlp', loss: 'categoricalCrossentropy' });
  const out = new Float32Array(loaded.layout.totalLength);
  for (let round = 0; round < 6; round++) loaded.engine.step({ round, replica: 0, batches: [batchOf(6)], out });
  expect(Number.isFinite(out[0])).toBe(true);
  loaded.engine.load(loaded.flat.map(() => Number.NaN));
  expectSameBits(loaded, 0);
  const { metricSums } = loaded.engine.step({ round: 9, replica: 0, batches: [batchOf(6)], out });
  expect([metricSums[0], out[0]]).toEqual([Number.NaN, Number.NaN]);
});

it('keeps what it records until the engine is disposed of, and counts none of it as left behind', async () => {
  const loaded = await loadedEngine({ model: 'mlp', engine: 'wasm' });
  const backend = tf.backend() as BackendWasm;
  const out = new Float32Array(loaded.layout.totalLength);
  const step = (): unknown => loaded.engine.step({ round: 0, replica: 0, batches: [batchOf(6)], out });
  step();
  const [before, ids, buffers] = [loaded.engine.memory(), backend.numDataIds(), tf.memory().numDataBuffers];
  for (let i = 0; i < 8; i++) step();
  expect(loaded.engine.memory()).toEqual(before);
  const kept = backend.numDataIds() - ids;
  expect(kept).toBeGreaterThan(10);
  const variables = loaded.layout.variables.length;
  loaded.engine.dispose();
  expect(ids - backend.numDataIds()).toBe(variables);
  expect(buffers - tf.memory().numDataBuffers).toBe(variables);
});

describe('a recording', () => {
  const MOST = { mostBytes: 1 << 20 };
  let wide = false;
  const NAME = 'PacelineTestWavering';
  const x = (): tf.Tensor => tf.tensor1d([1, 2, 3]);
  function record(act: (recorder: StepRecorder) => tf.Tensor, most = MOST): RecordedStep | undefined {
    let recorded: RecordedStep | undefined;
    tf.tidy(() => {
      const { step } = StepRecorder.record(tf.backend() as BackendWasm, most, (recorder) => ({
        result: 0,
        gradients: { sum: act(recorder) },
      }));
      recorded = step;
    });
    return recorded;
  }
  beforeEach(async () => {
    await startBackend('wasm', {});
    wide = false;
    tf.registerKernel({
      kernelName: NAME,
      backendName: 'wasm',
      kernelFunc: ({ backend }) => {
        if (wide) (backend as BackendWasm).makeOutput([5], 'float32');
        return (backend as BackendWasm).makeOutput([4], 'float32');
      },
    });
  });
  afterEach(() => tf.unregisterKernel(NAME, 'wasm'));

  it('ends with an error where a kernel makes something else, and leaves the backend as it was', () => {
    const step = record(() => tf.engine().runKernel(NAME, {}));
    const nothing = (): void => undefined;
    expect(() => step!.replay(nothing, nothing)).not.toThrow();
    wide = true;
    expect(() => step!.replay(nothing, nothing)).toThrow('a kernel asks for float32 [5], where it asked for float32 [4]');
    expect(tf.tidy(() => [...tf.add(x(), 1).dataSync()])).toEqual([2, 3, 4]);
    step!.dispose();
  });

  it('is given up where a value is no number', () => {
    expect(record(() => (tf.tensor1d(['text'], 'string'), tf.add(x(), 1)))).toBeUndefined();
  });

  it('is given up where values are read between kernels, are moved, or are too many, and keeps nothing then', () => {
    const ids = (): number => (tf.backend() as BackendWasm).numDataIds();
    const before = ids();
    const cases: ((recorder: StepRecorder) => tf.Tensor)[] = [
      () => tf.add(x(), x().dataSync()[1]!),
      (recorder) => (recorder.giveUp('somebody says so'), tf.add(x(), 1)),
    ];
    for (const act of cases) expect(record(act)).toBeUndefined();
    expect(record(() => tf.add(x(), 1), { mostBytes: 20 })).toBeUndefined();
    expect(ids()).toBe(before);
    expect(() => record(() => tf.tidy(() => expect.fail('the step')))).toThrow('the step');
    expect(ids()).toBe(before);
  });
});
