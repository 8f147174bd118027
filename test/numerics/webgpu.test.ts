/**
 * The webgpu engine on a real Vulkan driver, which computes on the processor here (SwiftShader): every kind of layer against the wasm
 * engine, equal bits, and what happens when something is missing. Skipped on machines that the driver is not made for.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Batch, Sums } from '@paceline/engine';
import { ALLOWED_LAYERS, layersOf, type ModelTopology, type RunSpecInput } from '@paceline/spec';
import { input, of, out10, type Model } from '../../libs/engine/src/gradients/build.fixture.js';
import { MODELS, WRONG_ON_CPU } from '../../libs/engine/src/gradients/models.fixture.js';
import { batchOf, largestDifference, loadedEngine, rowsOf, sequential } from '../../libs/engine/src/run.fixture.js';
import { NO_DRIVER, swiftShaderEnvironment } from '../web/swiftshader.js';

interface Stepped {
  readonly sums: Sums;
  readonly out: Float32Array;
}
interface Compared extends Stepped {
  readonly isRepeated: boolean;
  readonly leaves: number;
  readonly error?: string;
}
interface Started {
  readonly name: string;
  readonly fingerprint: string;
  readonly devices: readonly { name: string; type: string }[];
  readonly metricNames: readonly string[];
}

/** A process with the driver's environment; see webgpu-host.mjs. */
class Host {
  private readonly child: ChildProcess;
  private asked = 0;
  private readonly waiting = new Map<number, { resolve: (value: unknown) => void; reject: (error: Error) => void }>();

  constructor(env: NodeJS.ProcessEnv) {
    this.child = fork(join(import.meta.dirname, 'webgpu-host.mjs'), { env, serialization: 'advanced', execArgv: [] });
    this.child.on('message', ({ id, value, error }: { id: number; value: unknown; error?: object }) => {
      const { resolve, reject } = this.waiting.get(id)!;
      this.waiting.delete(id);
      if (error) reject(Object.assign(new Error(), error));
      else resolve(value);
    });
    this.child.once('exit', (code, signal) => {
      for (const { reject } of this.waiting.values()) reject(new Error(`the process with the GPU ended with ${signal ?? code}`));
    });
  }

  ask<R>(action: string, args: object = {}): Promise<R> {
    const id = this.asked++;
    return new Promise<R>((resolve, reject) => {
      this.waiting.set(id, { resolve: resolve as (value: unknown) => void, reject });
      this.child.send({ id, action, args });
    });
  }

  /** A fresh engine with the initial values of the run. */
  start(run: RunSpecInput): Promise<Started> {
    return this.ask('start', { input: run });
  }

  step(batches: readonly Batch[], rest: { round?: number; replica?: number; isShared?: boolean; length?: number } = {}): Promise<Stepped> {
    return this.ask('step', { round: 0, replica: 0, batches, ...rest });
  }

  end(): void {
    this.child.kill('SIGKILL');
  }
}

/** PACELINE_WEBGPU_DRIVER=machine takes the machine's own driver, and so its GPU. */
const isOwnDriver = process.env['PACELINE_WEBGPU_DRIVER'] === 'machine';
const driver = isOwnDriver ? {} : swiftShaderEnvironment();
const PLANTED = `--import=${new URL('ends-gpu-thread.mjs', import.meta.url).href}`;
const hosts: Host[] = [];
const host = (env: Record<string, string>): Host => {
  hosts.push(new Host({ ...process.env, ...env }));
  return hosts.at(-1)!;
};
afterAll(() => hosts.forEach((each) => each.end()));

const classesOf = (model: Model): string[] =>
  typeof model === 'string' || !model ? [] : layersOf(model.topology as ModelTopology).map(({ layer }) => layer.class_name);

/** Those that bring a kind of layer that none before them has, and what the GPU computes in ways of its own: shaders and small steps are slow here. */
const ALSO =
  /^(batch normalisation along|Conv2D with channels first|LSTM behind a mask|activations of Keras|.*upsampling|padded average|max pooling of volumes with oblong|bidirectional ConvLSTM2D)/;
const seen = new Set<string>(['LSTM']); // the one behind a mask, and in Bidirectional
const ALL = [...MODELS, ...WRONG_ON_CPU].filter(([name, model]) => {
  if (classesOf(model).includes('CategoryEncoding')) return false; // refused: it reads while it computes
  const isNew = classesOf(model).some((layer) => !seen.has(layer));
  for (const layer of classesOf(model)) seen.add(layer);
  return isNew || ALSO.test(name);
});

/** On this engine, or on any. */
const UNTRAINED: ReadonlySet<string> = new Set(['CategoryEncoding']);

/** 20 to 30 s on two cores of their own. */
const ALL_LAYERS_DEADLINE_MS = 240_000;
/** Hundreds of small operations in turn, none that the others do not have: computed once. */
const RECURRENT = /RNN|LSTM|GRU|Bidirectional|TimeDistributed/;
const isSoak = process.env['PACELINE_SOAK'] === '1';
/** The software driver takes seconds for the shaders of each: `npm run soak` has all of them, the suite those that the GPU computes in ways of its own. */
const COMPARED = ALL.filter(
  ([name]) => isSoak || /^(batch normalisation along|layer normalisation|Conv2D with channels first|padded average)/.test(name),
);

async function expected(run: RunSpecInput, ...batches: readonly Batch[]): Promise<Stepped> {
  const { engine, layout } = await loadedEngine({ ...run, engine: 'wasm' });
  const out = new Float32Array(layout.totalLength);
  const sums = engine.step({ round: 0, replica: 0, batches, out });
  engine.dispose();
  return { sums, out };
}

const bits = ({ out }: Stepped): Buffer => Buffer.from(out.buffer, out.byteOffset, out.byteLength);

describe.skipIf(!driver)(`the webgpu engine (${NO_DRIVER})`, () => {
  let gpu: Host;
  let elsewhere: Host;
  beforeAll(() => {
    gpu = host(driver!);
    elsewhere = host(driver!);
  });

  it(
    'trains each kind of layer, with the gradients of wasm, the same bits again, and nothing left behind',
    async () => {
      expect(ALLOWED_LAYERS.filter((layer) => !seen.has(layer) && !UNTRAINED.has(layer))).toEqual([]);
      const batch = batchOf(3);
      const models = COMPARED.map(([, model]) => ({ model, isSlow: classesOf(model).some((layer) => RECURRENT.test(layer)) }));
      const results = await gpu.ask<Compared[]>('stepsOf', { models, batch });
      for (const [i, { error, out, sums, isRepeated, leaves }] of results.entries()) {
        const [name, model] = COMPARED[i]!;
        expect(error, name).toBeUndefined();
        const wasm = await expected({ model }, batch);
        expect(largestDifference(out, wasm.out, 0.5), name).toBeLessThan(2e-4);
        expect(sums.metricSums[0], name).toBeCloseTo(wasm.sums.metricSums[0]!, 3);
        expect(sums.metricSums[1], name).toBe(wasm.sums.metricSums[1]);
        expect({ isRepeated, leaves }, name).toEqual({ isRepeated: true, leaves: 0 });
      }
    },
    ALL_LAYERS_DEADLINE_MS,
  );

  it.runIf(isSoak)(
    'draws the random numbers of the other engines, adds up micro-batches, counts penalties per example, scores',
    async () => {
      const run: RunSpecInput = {
        model: of(
          ['Dense', { units: 12, kernel_regularizer: { class_name: 'L1L2', config: { l1: 0.01, l2: 0.02 } } }],
          ['BatchNormalization'],
          ['Dropout', { rate: 0.5 }],
          ['GaussianNoise', { stddev: 0.3 }],
        ),
        loss: 'meanSquaredError',
      };
      const batch = batchOf(12);
      const parts = [rowsOf(batch, 0, 5), rowsOf(batch, 5, 12)];
      const started = await gpu.start(run);
      expect(started).toMatchObject({
        name: 'webgpu',
        metricNames: ['loss', 'accuracy', 'accuracy'],
        devices: [{ type: isOwnDriver ? 'GPU' : 'CPU' }],
      });
      expect(started.fingerprint).toMatch(/^tfjs-webgpu 4\.22\.0; kernels \d+; Dawn 0\.6\.2; .+; v8 /);
      if (!isOwnDriver) expect(started.fingerprint).toContain('SwiftShader');
      expect(started.fingerprint.length).toBeLessThanOrEqual(300);
      const [whole, again, other] = [
        await gpu.step(parts),
        await gpu.step(parts, { isShared: false }),
        await gpu.step(parts, { replica: 1 }),
      ];
      const wasm = await expected(run, ...parts);
      expect(largestDifference(whole.out, wasm.out, 0.5)).toBeLessThan(2e-4);
      expect(whole.sums.count).toBe(12);
      expect(whole.sums.metricSums[0]).toBeCloseTo(wasm.sums.metricSums[0]!, 3);
      expect(bits(again).equals(bits(whole)), 'a step changes nothing, and the caller’s memory does not matter').toBe(true);
      expect(bits(other).equals(bits(whole)), 'another replica draws other numbers').toBe(false);

      const { engine } = await loadedEngine({ ...run, engine: 'wasm' });
      const scored = engine.evaluate(batch);
      engine.dispose();
      const onGpu = await gpu.ask<Sums>('evaluate', { batch });
      expect(onGpu.metricSums[0]).toBeCloseTo(scored.metricSums[0]!, 3);
      expect(onGpu.metricSums[1]).toBe(scored.metricSums[1]);
      await gpu.ask('dispose');
    },
  );

  it.runIf(isSoak)(
    'gives the same bits in another process, also for sums that a GPU may add in any order; 20 steps leave nothing behind',
    async () => {
      // Embedding: 6,272 rows of two words, so that very many gradients meet in each row of the table. Then 2,352 inputs of a product with few
      // outputs, which the backend would split.
      const run: RunSpecInput = {
        model: sequential(input, ['Embedding', { input_dim: 2, output_dim: 3 }], ['Flatten'], out10),
      };
      const batch = batchOf(16);
      await gpu.start(run);
      await elsewhere.start(run);
      const [here, there] = [await gpu.step([batch]), await elsewhere.step([batch])];
      expect(bits(there).equals(bits(here))).toBe(true);
      expect(largestDifference(here.out, (await expected(run, batch)).out, 0.5)).toBeLessThan(2e-4);
      const before = await elsewhere.ask<{ tensors: number }>('memory');
      expect(await elsewhere.ask('steps', { count: 20, replica: 0, batches: [rowsOf(batch, 0, 1)] })).toEqual(before);
      expect(await elsewhere.ask('trace', { round: 0, replica: 0, batches: [batch] })).toMatchObject({ kept: [], result: here.sums });
      await gpu.ask('dispose');
      await elsewhere.ask('dispose');
      await expect(elsewhere.ask('memory')).rejects.toThrow('the engine has been disposed of: memory is not answered');
    },
  );

  it.runIf(isSoak)('a step that fails says why with the error’s own name, and the next one works', async () => {
    await gpu.start({ model: of(), seed: 3 });
    const batch = batchOf(2);
    const { out } = await gpu.step([batch]);
    await expect(gpu.step([{ ...batch, count: 3 }])).rejects.toMatchObject({
      name: 'RangeError',
      message: 'a batch of 3 examples needs 2352 floats of image, not 1568',
    });
    for (const isShared of [true, false])
      await expect(gpu.step([batch], { length: 7, isShared })).rejects.toMatchObject({ name: 'RangeError', message: /has 7 elements/ });
    expect((await gpu.step([batch])).out).toEqual(out);
    await gpu.ask('dispose');
  });

  it.runIf(isSoak)('a loss that is not finite is seen in the gradient, also where that looks finite', async () => {
    const batch = batchOf(2);
    const layer = { units: 10, batch_input_shape: [null, 784], kernel_regularizer: { class_name: 'L2', config: { l2: 0.01 } } };
    const run: RunSpecInput = { model: sequential(['Dense', layer]), loss: 'meanSquaredError' };
    await gpu.start(run);
    const before = await gpu.step([batch]);
    expect(before.out.every(Number.isFinite)).toBe(true);
    // The squares of the penalty are too large for float32; nothing else is.
    await gpu.ask('load', { flat: new Float32Array(before.out.length).fill(1e20) });
    const { out, sums } = await gpu.step([rowsOf(batch, 0, 1), rowsOf(batch, 1, 2)]);
    expect(sums.metricSums[0]).toBe(Number.POSITIVE_INFINITY);
    expect(out[0]).toBeNaN();
    expect(out.subarray(1).every(Number.isFinite), 'the driver alone shows nothing').toBe(true);
    const { engine, flat } = await loadedEngine({ ...run, engine: 'wasm' });
    engine.dispose();
    await gpu.ask('load', { flat });
    expect(bits(await gpu.step([batch])).equals(bits(before)), 'parameters that replace others').toBe(true);
    await gpu.ask('dispose');
  });

  it.runIf(isSoak)('has the gradients of wasm for the losses that have operations of their own', async () => {
    const batch = batchOf(3);
    // Each brings operations that the others have not; the rest is held to the loops on the processor (row-losses.test.ts).
    const losses = ['meanSquaredLogarithmicError', 'categoricalHinge', 'cosineSimilarity'];
    const model = sequential(['Dense', { units: 10, activation: 'softmax', batch_input_shape: [null, 784] }]);
    for (const loss of losses) {
      const run = { model, loss } as RunSpecInput;
      const wasm = await expected(run, batch);
      await gpu.start(run);
      const { sums, out } = await gpu.step([batch]);
      expect(sums.metricSums[0], loss).toBeCloseTo(wasm.sums.metricSums[0]!, 3);
      out.forEach((value, i) => expect(Math.abs(value - wasm.out[i]!), `${loss} ${i}`).toBeLessThan(1e-4));
      await gpu.ask('dispose');
    }
  });

  it('a model that is refused when the device is there says so, and the process goes on', async () => {
    for (let i = 0; i < 3; i++)
      await expect(elsewhere.ask('start', { input: { model: of() }, describedAs: { model: 'mlp' } })).rejects.toThrow(
        /^the model built here differs/,
      );
    await elsewhere.start({ model: of() });
    await elsewhere.ask('dispose');
  });

  it('a thread that does not answer in time, or has ended, fails every call and blocks none', async () => {
    const batch = batchOf(2);
    // Wide products on a processor: a step takes seconds. What comes before it takes milliseconds, or is late itself on a busy machine.
    const slow = sequential(input, ['Dense', { units: 4096 }], ['Dense', { units: 4096 }], out10);
    const failure = await elsewhere
      .ask('start', { input: { model: slow }, answerDeadlineMs: 500 })
      .then(() => elsewhere.step([batchOf(256)]))
      .then(() => 'it has answered', String);
    const [late] = /the GPU thread has not answered (?:load|step) within 500 ms/.exec(failure) ?? [];
    expect(late, failure).toBeDefined();
    await expect(elsewhere.ask('memory')).rejects.toThrow(`${late}: memory is not answered`);

    const planted = host({ ...driver!, NODE_OPTIONS: PLANTED });
    await planted.start({ model: of() });
    await expect(planted.ask('evaluate', { batch })).rejects.toThrow('planted: the thread ends here');
    await expect(planted.ask('memory')).rejects.toThrow(/the GPU thread has .*: memory is not answered/);
  });

  it('is not available without an adapter, without the package, without its binary, and where its thread does not start', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'paceline-webgpu-'));
    try {
      writeFileSync(join(folder, 'none.json'), '');
      const without = host({ ...driver!, VK_ICD_FILENAMES: join(folder, 'none.json'), VK_DRIVER_FILES: join(folder, 'none.json') });
      const unavailable = (message: RegExp): object => ({ name: 'EngineUnavailableError', code: 'ENGINE_UNAVAILABLE', message });
      const start = (webgpuFolder?: string | null): Promise<Started> => without.ask('start', { input: { model: 'mlp' }, webgpuFolder });
      await expect(start()).rejects.toMatchObject(unavailable(/found no GPU adapter: it needs a driver for Vulkan.* Take `engine: wasm`/));
      await expect(start(null)).rejects.toMatchObject(unavailable(/not installed here: run `npm install webgpu`/));
      await expect(start(folder)).rejects.toMatchObject(unavailable(/has no binary for linux-x64/));
      const planted = host({ ...driver!, NODE_OPTIONS: PLANTED, PLANTED_AT: 'start' });
      await expect(planted.start({ model: 'mlp' })).rejects.toMatchObject(unavailable(/failed before it was ready \(planted: the thread/));
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
