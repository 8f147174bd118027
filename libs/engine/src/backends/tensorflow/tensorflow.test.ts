import { execFile } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, realpathSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import * as tf from '@tensorflow/tfjs-core';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { CONV_KERNEL } from '../../layers/convolution/conv-wasm.js';
import type { ConvPoolAttrs, ConvPoolInputs } from '../../layers/pooling/conv-pool-wasm.js';
import { convMaxPool, poolingOf } from '../../layers/pooling/conv-pool-tensorflow.js';
import { tensorflowFingerprint } from './fingerprint.js';
import { installedPackage } from './installed.fixture.js';
import { isMapped, keepLoaded, type TensorflowBinding } from './load-package.js';
import { batchOf, bitsOf, largestDifference, loadedEngine, rowsOf, sequential } from '../../run.fixture.js';

const packageDir = installedPackage();

const rows = [
  ['InputLayer', { batch_input_shape: [null, 784] }],
  ['Reshape', { target_shape: [28, 28] }],
] as const;
const MODELS = [
  ['the MLP', 'mlp'],
  ['the MLP with batch normalisation and dropout', 'mlp-dropout'],
  ['the CNN', 'cnn'],
  ['an LSTM', sequential(...rows, ['LSTM', { units: 16 }], ['Dense', { units: 10 }])],
] as const;

describe.skipIf(!packageDir)('the tensorflow engine (needs `paceline engine install tensorflow`)', () => {
  it.each(MODELS)('has the gradients of the wasm engine for %s', async (_, model) => {
    const native = await loadedEngine({ model, engine: 'tensorflow' }, packageDir);
    const wasm = await loadedEngine({ model, engine: 'wasm' });
    const batches = [batchOf(24), rowsOf(batchOf(24, 5), 0, 8)];
    const [a, b] = [native, wasm].map(({ engine, layout }) => {
      const out = new Float32Array(new SharedArrayBuffer(layout.totalLength * 4)).fill(Number.NaN);
      const sums = engine.step({ round: 1, replica: 0, batches, out });
      return { out, sums, evaluated: engine.evaluate(batches[0]!) };
    });
    const scale = b!.out.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0);
    expect(largestDifference(a!.out, b!.out, scale * 0.01)).toBeLessThan(1e-3);
    expect(a!.sums.metricSums[0]).toBeCloseTo(b!.sums.metricSums[0]!, 2);
    expect(a!.evaluated.metricSums[0]).toBeCloseTo(b!.evaluated.metricSums[0]!, 2);
    native.engine.dispose();
    wasm.engine.dispose();
  });

  it('gives the same bits whatever was computed before, follows every load, and keeps no tensors', async () => {
    const { engine, layout, flat } = await loadedEngine({ model: 'cnn', engine: 'tensorflow' }, packageDir);
    const batch = batchOf(16);
    const step = (): Buffer => {
      const out = new Float32Array(layout.totalLength).fill(Number.NaN);
      engine.step({ round: 3, replica: 1, batches: [batch], out });
      return bitsOf(out);
    };
    const first = step();
    const before = engine.memory();
    engine.load(flat.map((value) => value * 1.5));
    expect(step().equals(first)).toBe(false);
    engine.load(flat);
    expect(step().equals(first)).toBe(true);
    expect(engine.memory().tensors).toBe(before.tensors);
    engine.dispose();
  });

  it.each([
    ['valid', 2, 2],
    ['same', 3, 2],
    ['same', 3, 1],
  ] as const)('gives the gradient of max pooling to the first largest value of a window (%s, %i, %i)', async (pad, size, strides) => {
    await loadedEngine({ model: 'mlp', engine: 'tensorflow' }, packageDir);
    // Whole numbers: windows with the largest value twice.
    const values = Float32Array.from({ length: 2 * 7 * 9 * 3 }, (_, i) => Math.max(0, ((i * 7919) % 7) - 3));
    const gradients = ['tensorflow', 'cpu'].map((backend) => {
      void tf.setBackend(backend);
      return tf.tidy(() => {
        const x = tf.tensor4d(values, [2, 7, 9, 3]);
        const { shape, size: count } = tf.maxPool(x, size, strides, pad);
        const dy = tf.reshape(tf.range(0, count), shape);
        return tf
          .grad((input: tf.Tensor) => tf.maxPool(input as tf.Tensor4D, size, strides, pad))(x, dy)
          .dataSync();
      });
    });
    expect(gradients[0]).toEqual(gradients[1]);
  });

  it.each([
    ['relu', true, [2, 2], [2, 2], [3, 12, 11, 3], 'valid'],
    ['linear', true, [3, 2], [4, 3], [3, 12, 11, 3], 'same'],
    ['relu', false, [2, 2], [2, 2], [1, 9, 9, 1], 'valid'],
    ['relu', true, [1, 3], [1, 3], [2, 8, 13, 2], 'valid'],
    ['linear', false, [2, 2], [2, 3], [2, 9, 12, 2], 'same'],
    ['relu', true, [2, 2], [2, 2], [2, 8, 12, 20], 'valid'],
  ] as const)(
    'has for a convolution with the pooling behind it what it has for the two apart (%s, bias %s, windows of %j, %j apart, images %j, %s)',
    async (activation, hasBias, poolSize, poolStrides, shape, pad) => {
      const { engine } = await loadedEngine({ model: 'mlp', engine: 'tensorflow' }, packageDir);
      const wave = (of: readonly number[], seed: number): tf.Tensor =>
        tf.tidy(() => tf.reshape(tf.sin(tf.mul(tf.range(seed, seed + tf.util.sizeFromShape([...of])), 12.9898)), [...of]));
      const attrs: ConvPoolAttrs = { strides: [1, 1], pad, activation, poolSize, poolStrides };
      const inputs = [wave(shape, 1), wave([3, 2, shape[3], 5], 2), ...(hasBias ? [wave([5], 3)] : [])];
      const of = ([x, filter, bias]: readonly tf.Tensor[]): ConvPoolInputs => ({ x: x!, filter: filter!, ...(bias ? { bias } : {}) });
      const apart = (given: ConvPoolInputs): tf.Tensor =>
        tf.maxPool(
          tf.engine().runKernel(CONV_KERNEL, { ...given }, { strides: 1, pad, activation }),
          [...poolSize],
          [...poolStrides],
          'valid',
        );
      const [got, want] = [(given: ConvPoolInputs) => convMaxPool(given, attrs, true), apart].map((pooled) => {
        const loss = (...given: tf.Tensor[]): tf.Tensor => tf.sum(tf.square(tf.add(pooled(of(given)), 0.1)));
        return [pooled(of(inputs)), ...tf.grads(loss)(inputs)].map((tensor) => tensor.dataSync() as Float32Array);
      });
      expect(got![0]).toEqual(want![0]);
      expect(convMaxPool(of(inputs), attrs, false).dataSync()).toEqual(want![0]);
      for (let i = 1; i <= inputs.length; i++) {
        expect(Math.max(...want![i]!)).toBeGreaterThan(0.1);
        expect(got![i]).toHaveLength(want![i]!.length);
        expect(largestDifference(got![i]!, want![i]!, 1)).toBeLessThan(1e-5);
      }
      engine.dispose();
    },
  );

  /** One channel of 1 × 1 filters that change nothing: the window is what is pooled. */
  const gradientOfWindow = (window: readonly number[]): { pooled: number; gradient: number[] } => {
    const attrs: ConvPoolAttrs = { strides: [1, 1], pad: 'valid', activation: 'linear', poolSize: [2, 2], poolStrides: [2, 2] };
    const filter = tf.ones<tf.Rank.R4>([1, 1, 1, 1]);
    const pool = (x: tf.Tensor): tf.Tensor => convMaxPool({ x, filter }, attrs, true);
    const x = tf.tensor4d([...window], [1, 2, 2, 1]);
    expect(convMaxPool({ x, filter }, attrs, false).dataSync()).toEqual(pool(x).dataSync());
    return { pooled: pool(x).dataSync()[0]!, gradient: [...tf.grad(pool)(x).dataSync()] };
  };

  it.each([
    [[3, 1, 3, 3], 3, 0],
    [[1, 2, 2, 0], 2, 1],
    [[-1, -1, -1, -1], -1, 0],
    [[0, 1, 2, 3], 3, 3],
    [[0, -0, 0, -0], 0, 0],
    [[Number.NaN, 1, Number.NaN, 2], Number.NaN, 0],
    [[1, Number.NaN, 5, Number.NaN], Number.NaN, 1],
    [[9, 8, 7, Number.NaN], Number.NaN, 3],
    [[Infinity, 1, Infinity, 2], Infinity, 0],
    [[-Infinity, -Infinity, -Infinity, -Infinity], -Infinity, 0],
  ])('pools %j to %d, and gives the gradient to cell %i', async (window, largest, cell) => {
    const { engine } = await loadedEngine({ model: 'mlp', engine: 'tensorflow' }, packageDir);
    const { pooled, gradient } = gradientOfWindow(window);
    expect(pooled).toBe(largest);
    expect(gradient.map((value) => value || 0).indexOf(1)).toBe(cell);
    engine.dispose();
  });

  it('refuses windows and tensors that its pooling is not made for', async () => {
    const { engine } = await loadedEngine({ model: 'mlp', engine: 'tensorflow' }, packageDir);
    const { binding } = tf.backend() as unknown as { binding: Required<TensorflowBinding> };
    const made = (shape: number[], dtype = binding.TF_FLOAT): number =>
      binding.createTensor(shape, dtype, dtype === binding.TF_FLOAT ? new Float32Array(tf.util.sizeFromShape(shape)) : new Int32Array(1));
    const [image, flat, bias, whole] = [made([1, 4, 4, 2]), made([32]), made([3]), made([1, 1, 1, 1], binding.TF_INT32)];
    const pool =
      (x: number, window: readonly number[], b = -1) =>
      () =>
        binding.maxPool(x, b, true, window, false);
    expect(pool(image, [2, 2, 1, 1])).toThrow('do not overlap');
    expect(pool(image, [5, 2, 5, 2])).toThrow('inside of the image');
    expect(pool(made([1, 16, 16, 1]), [16, 16, 16, 16])).toThrow('at most 255 cells');
    expect(pool(image, [2, 2, 0, 2])).toThrow('positive numbers');
    expect(pool(image, [2, 2])).toThrow('positive numbers');
    expect(pool(flat, [2, 2, 2, 2])).toThrow('another type or rank');
    expect(pool(whole, [1, 1, 1, 1])).toThrow('another type or rank');
    expect(pool(1 << 30, [2, 2, 2, 2])).toThrow('there is no tensor');
    expect(pool(image, [2, 2, 2, 2], bias)).toThrow('another number of channels');
    const [pooled, places] = binding.maxPool(image, -1, true, [2, 2, 2, 2], false);
    expect(pooled).toMatchObject({ shape: [1, 2, 2, 2], dtype: binding.TF_FLOAT });
    expect(() => binding.maxUnpool(pooled!.id, places!.id, [9, 9], [2, 2, 2, 2])).toThrow('not one of these windows');
    expect(() => binding.maxUnpool(pooled!.id, pooled!.id, [4, 4], [2, 2, 2, 2])).toThrow('another type or rank');
    for (const other of [
      [1, 4, 4, 1],
      [2, 4, 4, 2],
      [1, 4, 4, 4],
    ])
      expect(() =>
        binding.maxUnpool(pooled!.id, binding.maxPool(made(other), -1, true, [2, 2, 2, 2], false)[1]!.id, [4, 4], [2, 2, 2, 2]),
      ).toThrow('not one of these windows and places');
    expect(pool(image, [2 ** 32, 2 ** 32, 2 ** 32, 2 ** 32])).toThrow('inside of the image');
    const single = binding.maxPool(made([1, 1, 1, 1]), -1, true, [1, 1, 1, 1], false);
    for (const far of [2 ** 31, 2 ** 24])
      expect(() => binding.maxUnpool(single[0]!.id, single[1]!.id, [far, far], [1, 1, far, far])).toThrow('there is no room');
    expect(binding.maxUnpool(pooled!.id, places!.id, [4, 4], [2, 2, 2, 2])).toMatchObject({ shape: [1, 4, 4, 2] });
    engine.dispose();
  });

  it('takes the convolutions of the CNN with the pooling behind them, and gives back all that TensorFlow holds for it', async () => {
    const { engine, layout } = await loadedEngine({ model: 'cnn', engine: 'tensorflow' }, packageDir);
    const batch = batchOf(4);
    const both = (): void => {
      engine.step({ round: 0, replica: 0, batches: [batch], out: new Float32Array(layout.totalLength) });
      engine.evaluate(batch);
    };
    both();
    const backend = tf.backend() as unknown as { binding: TensorflowBinding };
    const { binding } = backend;
    const held = new Set<number>();
    const operations: string[] = [];
    const made = (name: string, outputs: ReturnType<TensorflowBinding['executeOp']>): typeof outputs => {
      operations.push(name);
      for (const { id } of outputs) held.add(id);
      return outputs;
    };
    const watched: Pick<TensorflowBinding, 'executeOp' | 'createTensor' | 'deleteTensor' | 'maxPool' | 'maxUnpool'> = {
      executeOp: (name, ...rest) => made(name, binding.executeOp(name, ...rest)),
      maxPool: (...args) => made('maxPool', binding.maxPool!(...args)),
      maxUnpool: (...args) => made('maxUnpool', [binding.maxUnpool!(...args)])[0]!,
      createTensor: (...args) => {
        const id = binding.createTensor(...args);
        held.add(id);
        return id;
      },
      deleteTensor: (id) => {
        held.delete(id);
        binding.deleteTensor(id);
      },
    };
    backend.binding = Object.setPrototypeOf(watched, binding) as TensorflowBinding;
    try {
      both();
    } finally {
      backend.binding = binding;
    }
    expect(held.size).toBe(0);
    const count = (name: string): number => operations.filter((operation) => operation === name).length;
    expect(['Conv2D', 'maxPool', 'maxUnpool', 'MaxPool', 'MaxPoolWithArgmax'].map(count)).toEqual([4, 4, 2, 0, 0]);
    engine.dispose();
  });

  it.each([
    ['an addon that has no pooling of ours', { poolingRevision: undefined }, '1'],
    ['a GPU', { isUsingGpuDevice: () => true }, '1'],
    ['more threads than one', {}, '4'],
  ])('%s leaves convolutions and pooling to TensorFlow, and says so in the fingerprint', async (_, change, threads) => {
    const { engine } = await loadedEngine({ model: 'mlp', engine: 'tensorflow' }, packageDir);
    const { binding } = tf.backend() as unknown as { binding: TensorflowBinding };
    const changed = Object.setPrototypeOf({ ...change }, binding) as TensorflowBinding;
    const env = { TF_NUM_INTRAOP_THREADS: threads };
    expect([poolingOf(binding, { TF_NUM_INTRAOP_THREADS: '1' }), poolingOf(changed, env)]).toEqual([1, undefined]);
    const fingerprint = tensorflowFingerprint({ version: '4.22.0', binding: changed }, env);
    expect(fingerprint).toMatch(/; kernels \d+; TensorFlow/);
    expect(engine.fingerprint).toMatch(/; kernels \d+, pooling 1; TensorFlow/);
    engine.dispose();
  });

  it('lets a process end in peace whose thread with the engine has ended', async () => {
    const thread = `
      const { parentPort, workerData } = require('node:worker_threads');
      import(workerData.engine)
        .then(({ startBackend }) => startBackend('tensorflow', { tensorflowPackage: workerData.packageDir }))
        .then(() => parentPort.postMessage('ready'));
      setInterval(() => undefined, 1000);`;
    const main = `
      const { Worker } = require('node:worker_threads');
      const worker = new Worker(${JSON.stringify(thread)}, { eval: true, workerData: ${JSON.stringify({ engine: new URL('../../../dist/backends/start-backend.js', import.meta.url).href, packageDir })} });
      worker.once('message', () => worker.terminate().then(() => console.log('ended')));`;
    const { stdout } = await promisify(execFile)(process.execPath, ['-e', main], { timeout: 60_000 });
    expect(stdout).toContain('ended');
  });

  it('says what its bits depend on', async () => {
    const { engine } = await loadedEngine({ model: 'mlp', engine: 'tensorflow' }, packageDir);
    expect(engine.fingerprint).toMatch(
      /^tfjs-tensorflow 4\.22\.0; kernels \d+, pooling \d+; TensorFlow 2\.21\.\d; device cpu; threads 1\/1; onednn (yes|no); deterministic yes; /,
    );
    expect(engine.fingerprint.length).toBeLessThanOrEqual(300);
    engine.dispose();
  });
});

it('without an installation there is one line of what to do', async () => {
  await expect(loadedEngine({ model: 'mlp', engine: 'tensorflow' })).rejects.toMatchObject({
    code: 'ENGINE_UNAVAILABLE',
    message: 'TensorFlow is not installed here: run `paceline engine install tensorflow`, or take `engine: wasm`.',
  });
});

describe.runIf(process.platform === 'linux')('a library', () => {
  let folder: string;
  beforeEach(() => void (folder = realpathSync(mkdtempSync(join(tmpdir(), 'paceline-mapped-')))));
  afterEach(() => rmSync(folder, { recursive: true }));

  it('is found in memory under any of its names, and one that is not there is not', () => {
    const link = join(folder, 'node');
    symlinkSync(process.execPath, link);
    expect([process.execPath, link].map(isMapped)).toEqual([true, true]);
    expect([import.meta.filename, join(folder, 'missing')].map(isMapped)).toEqual([false, false]);
  });

  it('that the addon has not loaded is not loaded to be kept', () => {
    const [loaded] = /\/\S*\/libm[.-]\S*$/m.exec(readFileSync('/proc/self/maps', 'utf8'))!;
    const copy = join(folder, 'libtensorflow.so');
    copyFileSync(loaded, copy);
    keepLoaded(copy);
    expect(isMapped(copy)).toBe(false);
    expect(() => keepLoaded(loaded)).not.toThrow();
  });
});
