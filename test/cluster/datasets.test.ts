/** Data of one's own, from the files to trained weights: the same bits whatever the number of workers, and a plain reason where workers see other data. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { FINAL_STATUSES, type Run } from '@paceline/client';
import { importDataset } from '@paceline/ingest';
import type { RunSpecInput } from '@paceline/spec';
import { Stack } from '@paceline/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { png } from './png.js';
import { eventsOf } from './whole-runs.js';

const ROWS = 600;
const IMAGES_PER_CLASS = 40;
const SIDE = 16;
const KINDS = ['low', 'middle', 'high'];

let stack: Stack;
beforeAll(async () => {
  stack = await Stack.start({ servers: 1, workers: 1 });
  const rows = Array.from({ length: ROWS }, (_, i) => {
    const [a, b] = [((i * 37) % 101) / 10, ((i * 53) % 97) / 10];
    return `${a},${b},${KINDS[a + b < 6 ? 0 : a + b < 12 ? 1 : 2]}`;
  });
  const points = path.join(stack.folder, 'points.csv');
  writeFileSync(points, ['a,b,kind', ...rows].join('\n'));
  await imported('points', { sources: [points], label: 'kind', split: { train: 0.8, test: 0.2 } });
  const waves = Array.from({ length: ROWS }, (_, t) => `${Math.sin(t / 9).toFixed(4)},${Math.cos(t / 5).toFixed(4)}`);
  const weather = path.join(stack.folder, 'weather.csv');
  writeFileSync(weather, ['temperature,wind', ...waves].join('\n'));
  await imported('weather', { sources: [weather], inOrder: true, split: { train: 0.8, test: 0.2 } });
  await imported('stripes', { sources: [stripedImages(path.join(stack.folder, 'stripes'))], split: { train: 0.8, test: 0.2 } });
});
afterAll(() => stack?.stop());

async function imported(name: string, options: Parameters<typeof importDataset>[0]): Promise<void> {
  const workFolder = mkdtempSync(path.join(stack.folder, 'import-'));
  await stack.client.datasets.import(name, (sink) => importDataset(options, sink, { workFolder }));
}

/** A folder of PNG images for each of three classes: lengthwise, across and both. */
function stripedImages(folder: string): string {
  const bright: Readonly<Record<string, (x: number, y: number) => boolean>> = {
    across: (_, y) => y % 4 < 2,
    lengthwise: (x) => x % 4 < 2,
    squares: (x, y) => x % 4 < 2 === y % 4 < 2,
  };
  for (const [name, isBright] of Object.entries(bright)) {
    mkdirSync(path.join(folder, name), { recursive: true });
    for (let i = 0; i < IMAGES_PER_CLASS; i++) {
      const [width, height] = [SIDE + (i % 3), SIDE];
      const image = png(width, height, (x, y) => (isBright(x + i, y + (i >> 2)) ? 250 - i : 20 + 2 * i));
      writeFileSync(path.join(folder, name, `${i}.png`), image);
    }
  }
  return folder;
}

const SPEC: RunSpecInput = {
  dataset: 'points',
  optimizer: { name: 'adam', learningRate: 0.01 },
  globalBatch: 48,
  replicas: 4,
  length: { epochs: 12 },
  seed: 5,
};

async function trained(spec: RunSpecInput): Promise<Run> {
  const { id } = await stack.client.createRun(spec);
  return ended(id);
}

async function ended(id: string): Promise<Run> {
  let run!: Run;
  await stack.until('the end of the run', 120_000, async () => {
    run = (await stack.client.run(id))!;
    return FINAL_STATUSES.has(run.status) || { seen: `${run.status} ${run.statusReason}` };
  });
  expect(run.status, run.statusReason ?? '').toBe('SUCCEEDED');
  return run;
}

const IRIS: RunSpecInput = {
  dataset: 'iris',
  optimizer: { name: 'adam', learningRate: 0.05 },
  globalBatch: 30,
  length: { epochs: 12 },
  validation: { everyEpochs: 6, rows: 20 },
};
const STRIPES: RunSpecInput = { dataset: 'stripes', model: 'cnn', globalBatch: 24, optimizer: { name: 'adam' }, length: { rounds: 6 } };
const layer = (class_name: string, config: object) => ({ class_name, config });
/** The GRU of the tf.js example on the weather in Jena: from 20 past steps of all columns to one of them, later. */
const WEATHER: RunSpecInput = {
  dataset: 'weather',
  model: {
    topology: {
      class_name: 'Sequential',
      config: {
        name: 'weather',
        layers: [
          layer('GRU', { name: 'gru_1', units: 8, batch_input_shape: [null, 20, 2] }),
          layer('Dense', { name: 'dense_1', units: 1 }),
        ],
      },
    },
  },
  features: {
    inputs: { past: [{ kind: 'window', columns: ['temperature', 'wind'], lookback: 60, step: 3 }] },
    targets: { next: { kind: 'window', columns: ['temperature'], delay: 12 } },
  },
  optimizer: { name: 'rmsprop', learningRate: 0.01 },
  globalBatch: 40,
  length: { rounds: 8 },
};

test('a table, images and windows over time are learned, with equal bits on 1 and on 2 workers', async () => {
  const specs = [IRIS, STRIPES, WEATHER];
  const onOne: Run[] = [];
  for (const spec of specs) onOne.push(await trained(spec));
  const [iris, stripes, weather] = onOne as [Run, Run, Run];
  expect(stripes.spec.dataset).toMatch(/^stripes@[0-9a-f]{64}$/);
  expect(iris.result!.accuracy).toBeGreaterThanOrEqual(0.9);
  // 120 rows to train on, less 20 that are held out; the result is that of the 30 test rows.
  expect(iris.result!.trainedExamples).toBe(12 * 100);
  const heldOut = iris.progress.validation!;
  expect([heldOut.round, heldOut.examples]).toEqual([47, 20]);
  expect(heldOut.values['loss']).not.toBe(iris.result!.loss);
  expect([iris.spec.model, iris.spec.loss, stripes.spec.loss]).toEqual(['mlp', ...Array<string>(2).fill('sparseCategoricalCrossentropy')]);
  expect(weather.spec.loss).toBe('meanSquaredError');
  expect(weather.result!.meanAbsoluteError).toBeGreaterThan(0);
  await stack.haveWorkers(2);
  // A window over time is cut as rows of a table are: `npm run soak` has it on two workers too.
  for (const [i, spec] of specs.entries()) {
    if (spec === WEATHER && process.env['PACELINE_SOAK'] !== '1') continue;
    const onTwo = await trained(spec);
    const { weightsSha256, loss } = onOne[i]!.result!;
    expect(onTwo.result).toMatchObject({ weightsSha256, loss });
    expect(onTwo.progress.validation?.values).toEqual(onOne[i]!.progress.validation?.values);
  }
});

const EARLY: RunSpecInput = {
  dataset: 'iris',
  optimizer: { name: 'adam', learningRate: 0.05 },
  globalBatch: 30,
  replicas: 4,
  length: { rounds: 400 },
  validation: { everyRounds: 5 },
  earlyStopping: { metric: 'val_loss', patience: 3, minDelta: 0.001, restoreBest: true },
  reduceLROnPlateau: { patience: 2, factor: 0.5 },
};

test('validation while training ends a run at the same round with the same weights, on 2 workers and on 1 that is killed in between', async () => {
  await stack.haveWorkers(2);
  const two = await trained(EARLY);
  expect(two.result!.rounds).toBeLessThan(400);
  expect(two.statusReason).toMatch(
    /^stopped early at round \d+: val_loss has not improved by 0\.001 in 3 validations \(best [\d.]+ at round \d+\)$/,
  );
  expect(two.result!.weightsRound).toBe(two.result!.rounds - 15);
  const history = async ({ id }: Run) =>
    (await stack.client.metrics(id, { names: ['val_loss', 'val_accuracy'], maxPoints: 2000 })).map(({ points }) =>
      points.map(({ round, value }) => [round, value]),
    );
  const [losses] = await history(two);
  expect(losses).toHaveLength(two.result!.rounds / 5);
  expect(losses!.find(([round]) => round === two.result!.weightsRound - 1)![1]).toBe(two.result!.loss);
  await stack.haveWorkers(1);
  const { id } = await stack.client.createRun(EARLY);
  await stack.until('a few validations', 120_000, async () => ((await stack.client.run(id))!.progress.validation?.round ?? 0) > 10);
  await stack.end(stack.workers[0]!, 'SIGKILL');
  await stack.haveWorkers(1);
  const killed = await ended(id);
  expect(killed.result).toMatchObject({
    rounds: two.result!.rounds,
    weightsRound: two.result!.weightsRound,
    weightsSha256: two.result!.weightsSha256,
    values: two.result!.values,
  });
  expect(await history(killed)).toEqual(await history(two));
});

/** The file of the first shard that the runs of SPEC train on. */
async function trainShard(): Promise<string> {
  const { manifest } = await stack.client.datasets.manifest('points');
  const { sha256 } = manifest.splits.train!.shards[0]!;
  const name = readdirSync(stack.dataStore, { recursive: true, encoding: 'utf8' }).find((file) => file.endsWith(`${sha256}.safetensors`));
  return path.join(stack.dataStore, name!);
}

test.runIf(process.env['PACELINE_SOAK'] === '1')(
  'a shard that is gone ends the run after some tries, with its name, that of the dataset and what to do',
  async () => {
    await stack.haveWorkers(1);
    const train = await trainShard();
    const intact = readFileSync(train);
    rmSync(train);
    const { id } = await stack.client.createRun(Object.assign({}, SPEC, { restarts: 0 }));
    let run!: Run;
    await stack.until('the end of the run', 60_000, async () => {
      run = (await stack.client.run(id))!;
      return FINAL_STATUSES.has(run.status) || { seen: `${run.status} ${run.statusReason}` };
    });
    writeFileSync(train, intact);
    const why = new RegExp(
      `shard ${path.basename(train).slice(0, 12)} of dataset points@[0-9a-f]{12}: it is not in .*: the dataset was removed, or this process has another data store`,
    );
    expect(run).toMatchObject({ status: 'FAILED', statusReason: expect.stringMatching(why) });
    const told = (await eventsOf(stack, id)).filter(({ type, message }) => type === 'seat.failed' && why.test(message));
    expect(told.length).toBeGreaterThan(1);
  },
);

test('a fleet that sees another data store is named before the run begins', async () => {
  await stack.haveWorkers(0);
  const elsewhere = path.join(stack.folder, 'elsewhere');
  mkdirSync(elsewhere);
  const worker = await stack.addWorker({ PACELINE_DATA_STORE: elsewhere });
  await stack.until(
    'the worker in the api',
    30_000,
    async () => (await stack.client.workers()).some(({ id }) => id === worker.ready.id) || { seen: [] },
  );
  await expect(stack.client.createRun(SPEC)).rejects.toMatchObject({
    code: 'INVALID_INPUT',
    message: expect.stringMatching(/no worker sees the data store of the api.*PACELINE_DATA_STORE/),
  });
});
