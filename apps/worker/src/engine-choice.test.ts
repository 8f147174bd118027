import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TrialRequest, TrialResult, TrialRows } from '@paceline/engine';
import type { TensorflowEngine } from '@paceline/tensorflow-addon';
import { runDataOf } from '@paceline/data';
import { parseRunSpec, type RunSpecInput } from '@paceline/spec';
import { expect, it, onTestFinished, vi } from 'vitest';
import { BatchPlan } from './batch-plan.js';
import { EngineChooser } from './engine-choice.js';
import { rowsInThread, rowsOfRun } from './trial-rows.js';

const MODEL = { variables: [], inputs: [], outputs: [], parameterCount: 0, stateCount: 0 };
const jobOf = (input: RunSpecInput, fingerprint?: string) => {
  const result = parseRunSpec(input);
  if (!result.ok) throw new Error('spec');
  return { spec: result.spec, model: MODEL, data: runDataOf(result.spec), ...(fingerprint ? { fingerprint } : {}) };
};

const ROWS: TrialRows = { inputs: [''], targets: [''], count: 0 };
const floatsIn = (text: string): Float32Array => new Float32Array(Uint8Array.from(Buffer.from(text, 'base64')).buffer);

function chooser(
  msPerStep: Readonly<Record<string, number | Error>>,
  hasTensorflow = true,
  folder?: string,
  gpu?: 'GPU' | 'CPU' | Error,
  { isCurrent = true, rows = ROWS as TrialRows | Error, now = undefined as (() => number) | undefined } = {},
) {
  const directory = folder ?? mkdtempSync(join(tmpdir(), 'paceline-choice-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const trials: string[] = [];
  const deadlines: number[] = [];
  const looks: string[] = [];
  const engine: TensorflowEngine = {
    source: 'installed',
    packageDir: import.meta.dirname,
    name: 'tensorflow-test',
    variant: 'cpu',
    isCurrent,
  };
  const warned: string[] = [];
  const log = { info: () => undefined, warn: (...said: unknown[]) => void warned.push(String(said.at(-1))) };
  const chooser = new EngineChooser({
    log,
    folder: directory,
    tensorflow: () => (hasTensorflow ? [engine] : []),
    fusesMultiplyAdd: () => 'wasm-relaxed' in msPerStep,
    webgpu: () => (gpu === undefined ? undefined : '/webgpu'),
    adapter: async () => {
      looks.push('adapter');
      if (gpu instanceof Error) throw gpu;
      return { name: 'a GPU', type: gpu!, memoryBytes: 0 };
    },
    rows: async () => (rows instanceof Error ? Promise.reject(rows) : rows),
    ...(now ? { now } : {}),
    trial: async ({ backend, ...request }: TrialRequest, deadlineMs: number): Promise<TrialResult> => {
      trials.push(backend);
      deadlines.push(deadlineMs);
      expect(request.check).toBe(backend === 'webgpu');
      expect(request.rows).toBe(rows instanceof Error ? undefined : rows);
      await new Promise((done) => setTimeout(done, 20));
      const ms = msPerStep[backend]!;
      if (ms instanceof Error) throw ms;
      return { backend, fingerprint: `tfjs-${backend} 1; test`, devices: [], examples: 64, msPerStep: 2 * ms, fastestMs: ms };
    },
  });
  return { chooser, trials, deadlines, looks, directory, warned };
}

it('where a worker computes in several threads auto leaves native engines out', async () => {
  const { chooser: first } = chooser({ wasm: 8, tensorflow: 2 });
  const backends = async (input: RunSpecInput) => (await first.choose(jobOf(input))).map(({ backend }) => backend);
  for (const engine of ['auto', 'mixed'] as const) {
    for (const kind of ['hybrid', 'mirrored'] as const) expect(await backends({ engine, strategy: { kind } })).toEqual(['wasm']);
    expect(await backends({ engine, strategy: { kind: 'mirrored', threads: 1 } })).toEqual(['tensorflow', 'wasm']);
  }
});

it('auto takes the fastest, measured once for a model, and says so in the record', async () => {
  const { chooser: first, trials, directory } = chooser({ wasm: 8, tensorflow: 2 });
  const choices = await first.choose(jobOf({ engine: 'auto' }));
  expect(choices.map(({ backend }) => backend)).toEqual(['tensorflow', 'wasm']);
  expect(choices[0]).toMatchObject({ tensorflowPackage: import.meta.dirname, examplesPerSecond: 32_000 });
  const again = chooser({ wasm: 1, tensorflow: 2 }, true, directory);
  expect((await again.chooser.choose(jobOf({ engine: 'auto' })))[0]!.backend).toBe('tensorflow');
  expect([...trials, ...again.trials]).toEqual(['wasm', 'tensorflow']);
  expect((await again.chooser.choose(jobOf({ engine: 'auto', model: 'cnn' })))[0]!.backend).toBe('wasm');
  expect(first.record('tfjs-tensorflow 1; test')).toEqual([
    { name: 'wasm', fingerprint: 'tfjs-wasm 1; test', examplesPerSecond: 8000, isChosen: false },
    { name: 'cpu', fingerprint: null, examplesPerSecond: null, isChosen: false },
    { name: 'tensorflow', fingerprint: 'tfjs-tensorflow 1; test', examplesPerSecond: 32_000, isChosen: true },
  ]);
});

it('workers that start together measure once', async () => {
  const { chooser: one, trials, directory } = chooser({ wasm: 8, tensorflow: 2 });
  const two = chooser({ wasm: 8, tensorflow: 2 }, true, directory);
  const both = await Promise.all([one, two.chooser].map((worker) => worker.choose(jobOf({ engine: 'mixed' }))));
  expect(both.map(([choice]) => choice!.backend)).toEqual(['tensorflow', 'tensorflow']);
  expect([...trials, ...two.trials].sort()).toEqual(['tensorflow', 'wasm']);
});

it('a pinned run takes the engine that it is pinned to, or says that this worker has another', async () => {
  const { chooser: worker } = chooser({ wasm: 8, tensorflow: 2 });
  const pinned = await worker.choose(jobOf({ engine: 'auto' }, 'tfjs-wasm 1; test'));
  expect(pinned.map(({ backend }) => backend)).toEqual(['wasm']);
  await expect(worker.choose(jobOf({ engine: 'auto' }, 'tfjs-wasm 2; test'))).rejects.toMatchObject({
    code: 'ENGINE_UNAVAILABLE',
    message: 'the run is pinned to tfjs-wasm 2; test; this worker has tfjs-tensorflow 1; test and tfjs-wasm 1; test',
  });
});

it('fused multiply-add is an engine of its own, where the processor has it', async () => {
  const { chooser: worker, trials } = chooser({ wasm: 8, 'wasm-relaxed': 6 }, false);
  const choices = await worker.choose(jobOf({ engine: 'mixed' }));
  expect(choices.map(({ backend }) => backend)).toEqual(['wasm-relaxed', 'wasm']);
  // Other workers may have no such processor: auto pins no run to it.
  expect((await worker.choose(jobOf({ engine: 'auto' }))).map(({ backend }) => backend)).toEqual(['wasm']);
  expect(trials).toEqual(['wasm', 'wasm-relaxed']);
  expect(worker.record('tfjs-wasm-relaxed 1; test').map(({ name, isChosen }) => [name, isChosen])).toEqual([
    ['wasm', false],
    ['cpu', false],
    ['wasm-relaxed', true],
  ]);
});

it('measures for itself where nothing can be kept', async () => {
  const { chooser: worker, trials, directory } = chooser({ wasm: 8, tensorflow: 2 });
  rmSync(directory, { recursive: true });
  writeFileSync(directory, 'a file is where the folder should be');
  for (let i = 0; i < 2; i++) expect((await worker.choose(jobOf({ engine: 'auto' })))[0]!.backend).toBe('tensorflow');
  expect(trials).toEqual(['wasm', 'tensorflow', 'wasm', 'tensorflow']);
});

it('an engine that does not work is left out, and tried again after a while', async () => {
  let clock = 0;
  const {
    chooser: worker,
    directory,
    trials,
  } = chooser({ wasm: 8, tensorflow: new Error('no such library') }, true, undefined, undefined, {
    now: () => clock,
  });
  const choose = async (): Promise<string[]> => (await worker.choose(jobOf({ engine: 'auto' }))).map(({ backend }) => backend);
  expect(await choose()).toEqual(['wasm']);
  expect(readdirSync(directory)).toEqual([]);
  for (let i = 0; i < 2; i++) expect(await choose()).toEqual(['wasm']); // and what the others have measured is kept
  expect([trials, readdirSync(directory).length]).toEqual([['wasm', 'tensorflow', 'wasm'], 1]);
  clock = 600_001;
  expect(await choose()).toEqual(['wasm']);
  expect(trials.slice(3)).toEqual(['wasm', 'tensorflow']);
});

it('an engine that the spec names is not measured', async () => {
  const { chooser: worker, trials } = chooser({}, false);
  expect(await worker.choose(jobOf({ engine: 'wasm' }))).toEqual([{ backend: 'wasm' }]);
  expect(await worker.choose(jobOf({ engine: 'tensorflow' }))).toEqual([{ backend: 'tensorflow', tensorflowPackage: undefined }]);
  expect(trials).toEqual([]);
});

it('webgpu is measured where there is a GPU, which is looked for once', async () => {
  const { chooser: worker, trials, looks } = chooser({ wasm: 8, webgpu: 2 }, false, undefined, 'GPU');
  const [first] = await worker.choose(jobOf({ engine: 'auto' }));
  expect(first).toMatchObject({ backend: 'webgpu', webgpuPackage: '/webgpu', fingerprint: 'tfjs-webgpu 1; test' });
  await worker.choose(jobOf({ engine: 'auto', model: 'cnn' }));
  expect(trials).toEqual(['wasm', 'webgpu', 'wasm', 'webgpu']);
  expect(looks).toEqual(['adapter']);
  expect(worker.record('tfjs-webgpu 1; test').map(({ name, isChosen }) => [name, isChosen])).toEqual([
    ['wasm', false],
    ['cpu', false],
    ['webgpu', true],
  ]);
});

it.each([['no adapter', new Error('none')] as const, ['a driver that computes on the processor', 'CPU'] as const])(
  'with %s webgpu is not measured, and what the others have measured is kept; a run may name it',
  async (_, gpu) => {
    const { chooser: worker, trials, looks, directory } = chooser({ wasm: 8, webgpu: 2 }, false, undefined, gpu);
    for (let i = 0; i < 2; i++) expect((await worker.choose(jobOf({ engine: 'mixed' }))).map(({ backend }) => backend)).toEqual(['wasm']);
    expect({ trials, looks, kept: readdirSync(directory).length }).toEqual({ trials: ['wasm'], looks: ['adapter'], kept: 1 });
    expect(worker.record(null).map(({ name }) => name)).toEqual(['wasm', 'cpu']);
    expect(await worker.choose(jobOf({ engine: 'webgpu' }))).toEqual([{ backend: 'webgpu', webgpuPackage: '/webgpu' }]);
    expect(worker.record('tfjs-webgpu 1; test').at(-1)).toMatchObject({ name: 'webgpu', isChosen: true });
  },
);

it('measures with the first rows of the run, as they are augmented, and with made-up ones where there is no dataset', async () => {
  const job = jobOf({ globalBatch: 300, replicas: 3, strategy: { kind: 'parameter-server', accumulate: 2 } });
  const { inputs, targets, count } = await rowsOfRun(job, {});
  expect([floatsIn(targets[0]!).length, count]).toEqual([50, 50]);
  const floats = floatsIn(inputs[0]!);
  expect(floats).toHaveLength(50 * 784);
  expect(floats.filter((value) => value === 0).length / floats.length).toBeGreaterThan(0.75);
  const augmented = { ...job.spec, augmentation: { shiftPixels: 2, rotateDegrees: 0, zoom: 0, mirror: false } };
  expect((await rowsOfRun({ ...job, spec: augmented }, {})).inputs).not.toEqual(inputs);
  const without = chooser({ wasm: 8, tensorflow: 2 }, true, undefined, undefined, { rows: new Error('no dataset') });
  expect((await without.chooser.choose(jobOf({ engine: 'auto' })))[0]!.backend).toBe('tensorflow');
  expect(without.warned).toEqual(['engines are measured with made-up rows']);
  expect(readdirSync(without.directory)).toEqual([]); // it is measured again when the dataset is there
});

it('reads the rows of a run in a thread, which ends with its answer or at a deadline', async () => {
  const job = jobOf({});
  const thread = (code: string) =>
    new URL(`data:text/javascript,${encodeURIComponent(`import { parentPort, workerData } from 'node:worker_threads'; ${code}`)}`);
  const rows = `{ inputs: [workerData.job.spec.dataset], targets: [workerData.settings.dataStore], count: 1 }`;
  const told = await rowsInThread(job, { dataStore: 's' }, 60_000, thread(`parentPort.postMessage({ kind: 'rows', rows: ${rows} })`));
  expect(told).toEqual({ inputs: ['mnist'], targets: ['s'], count: 1 });
  const refused = rowsInThread(job, {}, 60_000, thread(`parentPort.postMessage({ kind: 'refused', message: 'no shard' })`));
  await expect(refused).rejects.toThrow('no shard');
  await expect(rowsInThread(job, {}, 60_000, thread('process.exit(3)'))).rejects.toThrow('ended with code 3');
  await expect(rowsInThread(job, {}, 20, thread('setInterval(() => undefined, 1000)'))).rejects.toThrow('not read within 20 ms');
});

it('looks at no more rows than it measures with', async () => {
  const job = jobOf({ globalBatch: 65_536, replicas: 1, augmentation: { rotateDegrees: 10 } });
  const augment = vi.spyOn(BatchPlan.prototype, 'augment');
  onTestFinished(() => augment.mockRestore());
  expect((await rowsOfRun(job, {})).count).toBe(256);
  expect(augment.mock.calls.map(([, rows, { inputs }]) => [rows.length, inputs[0]!.length])).toEqual([[256, 256 * 784]]);
});

it('has chosen before the seat has to be taken: what there is no time for is left out, and measured another time', async () => {
  const late: ReturnType<typeof chooser> = chooser({ wasm: 8, tensorflow: 2 }, true, undefined, undefined, {
    now: () => 23_000 * late.trials.length,
  });
  expect((await late.chooser.choose(jobOf({ engine: 'auto' }))).map(({ backend }) => backend)).toEqual(['wasm']);
  expect([late.trials, late.deadlines]).toEqual([['wasm'], [7_000]]);
  expect(late.warned).toEqual([expect.stringContaining('no time left')]);
  expect(readdirSync(late.directory)).toEqual([]);
});

it('says once that an older release has built TensorFlow', async () => {
  const old = chooser({ wasm: 8, tensorflow: 2 }, true, undefined, undefined, { isCurrent: false });
  for (let i = 0; i < 2; i++) await old.chooser.choose(jobOf({ engine: 'tensorflow' }));
  expect(old.warned).toEqual([expect.stringContaining('paceline engine install tensorflow')]);
});
