/** A trained model on its way out: exported by the command line, loaded by stock tf.js in another process. */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { RunPredictions } from '@paceline/client';
import { openDataset } from '@paceline/data';
import { openModelFolder } from '@paceline/models';
import { EXIT } from '@paceline/runtime';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createHome, until, type Home } from './command-line.js';

/** `npm run soak` has these too. */
const IS_SOAK = process.env['PACELINE_SOAK'] === '1';

const STOCK = join(import.meta.dirname, '../../libs/models/src/stock-tfjs.fixture.mjs');

/** Rows of the evaluation split that are predicted; `evaluate` below measures all of it. */
const ROWS = 500;

let home: Home;
let run: { id: string; result: { accuracy: number; loss: number; weightsSha256: string } };

beforeAll(async () => {
  home = createHome();
  const up = home.start(['up', '--json', '--port', '0', '--workers', '1']);
  await until('up to be ready', () => up.stdout() || (up.child.exitCode === null ? undefined : up.stderr()), 90_000);
  run = await home.json('train', '--rounds', '30', '--global-batch', '200', '--name', 'digits', '--checkpoint-every-rounds', '10');
});
afterAll(() => home.dispose());

const card = (folder: string) =>
  JSON.parse(readFileSync(join(home.folder, folder, 'model-card.json'), 'utf8')) as Record<string, unknown> & {
    evaluation: { accuracy: number } | null;
  };

/** Stock tf.js, which knows nothing of Paceline. */
async function predict(folder: string, rows: Float32Array, shape: number[]): Promise<number[]> {
  const file = join(home.folder, 'rows.f32');
  writeFileSync(file, rows);
  const child = spawn(process.execPath, [STOCK], { stdio: ['pipe', 'pipe', 'inherit'] });
  child.stdin.end(`${JSON.stringify({ folder: join(home.folder, folder), inputs: [{ shape, file }] })}\n`);
  let text = '';
  for await (const piece of child.stdout) text += String(piece);
  const { outputs, error } = JSON.parse(text) as { outputs?: { values: number[] }[]; error?: string };
  expect(error).toBeUndefined();
  return outputs![0]!.values;
}

describe('export', () => {
  it('writes a model that stock tf.js loads and that computes the same', async () => {
    const { exit, stdout, stderr } = await home.run(['export', 'digits', '--format', 'tfjs', '--out', 'out']);
    expect(exit, stderr).toBe(0);
    expect(stdout).toMatch(/^out {2}[\d.]+ KiB in 6 files/);
    expect(stderr).toContain("tf.loadLayersModel('out/model.json')");
    expect(card('out')).toMatchObject({
      run: { id: run.id },
      round: 30,
      weightsSha256: run.result.weightsSha256,
      dataset: { name: 'mnist' },
    });
    const { evaluation } = await openDataset('mnist');
    const [x, y] = [new Float32Array(ROWS * 784), new Float32Array(ROWS)];
    const rows = Int32Array.from({ length: ROWS }, (_, i) => i);
    evaluation.gather(rows, 0, ROWS, { inputs: [x], targets: [y], weights: undefined });
    const { predictor } = await openModelFolder(join(home.folder, 'out'));
    const expected = predictor.predict([x], ROWS)[0]!;
    const scale = Math.max(...expected.map(Math.abs));
    const outputs = await predict('out', x, [ROWS, 784]);
    expect(outputs).toHaveLength(ROWS * 10);
    outputs.forEach((value, i) => expect(Math.abs(value - expected[i]!)).toBeLessThan(1e-6 * scale));
    expect(card('out').evaluation!.accuracy).toBe(run.result.accuracy);
  });

  it('comes back: a run begins with the files of the folder, and what does not fit is said before it is made', async () => {
    const still = ['--optimizer', 'sgd', '--learning-rate', '0.0000001', '--rounds', '1', '--global-batch', '200'];
    const again = await home.json('train', '--from', 'out', ...still, '--name', 'again');
    expect((again as typeof run).result.accuracy).toBeCloseTo(run.result.accuracy, 3);
    const shown = await home.json('model', 'show', 'out');
    expect(shown).toMatchObject({ summary: { parameters: 235_146, frozen: 0 } });
    const other = await home.run(['train', '--from', 'out', '--model', 'cnn', ...still]);
    expect([other.exit, other.stderr]).toEqual([EXIT.badSpec, expect.stringContaining('is not in the upload')]);
    writeFileSync(join(home.folder, 'broken.h5'), Buffer.from('\x89HDF\r\n\x1a\n', 'latin1'));
    const broken = await home.run(['train', '--from', 'broken.h5']);
    expect([broken.exit, broken.stderr]).toEqual([EXIT.usage, expect.stringContaining('broken.h5')]);
  });

  it('replaces no folder that is there', async () => {
    const { exit, stderr } = await home.run(['export', 'digits', '--out', 'out']);
    expect([exit, stderr]).toEqual([EXIT.usage, expect.stringContaining('is there already')]);
    expect(existsSync(join(home.folder, 'out/model.json'))).toBe(true);
    expect((await home.run(['export', 'digits', '--out', 'out', '--force'])).exit).toBe(0);
  });

  it.runIf(IS_SOAK)('takes the weights of a checkpoint by its round', async () => {
    // On a slow disk a cut is left out while the one before is written.
    const { checkpoints } = await home.json<{ checkpoints: { round: number; state: string }[] }>('checkpoints', 'digits');
    const { round } = checkpoints.find((one) => one.state === 'USABLE' && one.round < 30)!;
    const { exit, stderr } = await home.run(['export', `digits@${round}`, '--out', 'earlier']);
    expect(exit, stderr).toBe(0);
    expect(card('earlier')).toMatchObject({ round, evaluation: null });
    expect(card('earlier')['weightsSha256']).not.toBe(run.result.weightsSha256);
    const none = await home.run(['export', 'digits@7']);
    expect([none.exit, none.stderr]).toEqual([EXIT.notFound, expect.stringContaining('checkpoint of round 7')]);
  });
});

describe('evaluate and predict', () => {
  it('measure what the run has measured, of the run and of its export', async () => {
    for (const model of ['digits', 'out']) {
      const found = await home.json<{ accuracy: number; loss: number; examples: number; confusion: number[][] }>(
        'evaluate',
        model,
        '--data',
        'mnist',
      );
      expect(found.examples).toBe(10_000);
      expect(found.accuracy).toBeCloseTo(run.result.accuracy, 6);
      expect(found.loss).toBeCloseTo(run.result.loss, 5);
      expect(found.confusion.flat().reduce((a, b) => a + b, 0)).toBe(10_000);
    }
  });

  it('say of pixels what label they show, with the probability of each', async () => {
    const pixels = Array.from({ length: 784 }, (_, i) => (i % 28 > 12 && i % 28 < 16 ? 255 : 0));
    writeFileSync(join(home.folder, 'rows.json'), JSON.stringify([pixels, pixels]));
    writeFileSync(join(home.folder, 'rows.csv'), `${pixels.join(',')}\n`);
    const { predictions } = await home.json<{ predictions: { label: string; probabilities: Record<string, number> }[] }>(
      'predict',
      'out',
      '-i',
      'rows.json',
    );
    expect(predictions).toHaveLength(2);
    const { label, probabilities } = predictions[0]!;
    expect(Object.values(probabilities).reduce((a, b) => a + b, 0)).toBeCloseTo(1, 6);
    expect(probabilities[label]).toBe(Math.max(...Object.values(probabilities)));
    const { exit, stdout } = await home.run(['predict', 'digits', '-i', 'rows.csv']);
    expect([exit, stdout.split('\n')[0]]).toEqual([0, 'label,0,1,2,3,4,5,6,7,8,9']);
    expect(stdout.split('\n')[1]).toMatch(new RegExp(`^${label},`));
    writeFileSync(join(home.folder, 'short.json'), '[[1, 2]]');
    const short = await home.run(['predict', 'out', '-i', 'short.json']);
    expect([short.exit, short.stderr]).toEqual([EXIT.usage, expect.stringContaining('row 1 has 2 numbers')]);
  });
});

const SPECIES = ['setosa', 'versicolor', 'virginica'];
/** Separable, with a missing number and a category. */
const flowers = (rows: number): string =>
  [
    'length,width,garden,kind,height',
    ...Array.from({ length: rows }, (_, i) => {
      const kind = (i * 7) % 3;
      return `${kind * 2 + (i % 5) / 10},${i % 11 === 0 ? 'n/a' : 3 - kind},${['north', 'south'][i % 2]},${SPECIES[kind]},${kind * 10 + 5 + (i % 5)}`;
    }),
  ].join('\n');
const dense = (units: number, inputs: number, activation = 'linear') => ({
  class_name: 'Sequential',
  config: { layers: [{ class_name: 'Dense', config: { units, activation, batch_input_shape: [null, inputs] } }] },
});
const spec = (name: string, rest: object): string => {
  const file = join(home.folder, `${name}.json`);
  writeFileSync(
    file,
    JSON.stringify(Object.assign({ name, globalBatch: 20, optimizer: { name: 'adam', learningRate: 0.05 }, length: { rounds: 40 } }, rest)),
  );
  return file;
};
interface Labelled {
  readonly label: string;
  readonly probabilities: Readonly<Record<string, number>>;
}
const close = ({ label, probabilities }: Labelled): unknown => ({
  label,
  probabilities: Object.fromEntries(Object.entries(probabilities).map(([name, share]) => [name, expect.closeTo(share, 5)])),
});

/** By the script of the export, with tf.js beside it and nothing of Paceline. */
async function predictedInPlainNode(folder: string, rows: string): Promise<Labelled[]> {
  const modules = join(home.folder, folder, 'node_modules');
  mkdirSync(modules);
  symlinkSync(join(import.meta.dirname, '../../node_modules/@tensorflow'), join(modules, '@tensorflow'));
  const child = spawn(process.execPath, [join(folder, 'predict.mjs'), rows], { cwd: home.folder, stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  for await (const piece of child.stdout) text += String(piece);
  return text
    .trim()
    .split('\n')
    .map((line) => Object.values(JSON.parse(line) as Record<string, Labelled>)[0]!);
}
interface Measured {
  readonly result: { readonly loss: number; readonly accuracy: number | null };
}
interface Evaluated {
  readonly examples: number;
  readonly loss: number;
  readonly accuracy: number;
  readonly meanAbsoluteError: number;
  readonly meanSquaredError: number;
  readonly confusion: number[][];
  readonly labels: string[];
}

describe('models of tables', () => {
  it.runIf(IS_SOAK)('of a built-in one are measured and answer with the names of the classes', async () => {
    const { result } = await home.json<Measured>('train', spec('irises', { dataset: 'iris', modelTopology: dense(3, 4, 'softmax') }));
    const found = await home.json<Evaluated>('evaluate', 'irises', '--data', 'iris');
    expect(Math.abs(found.loss - result.loss)).toBeLessThan(1e-6);
    expect(found).toMatchObject({ examples: 30, accuracy: result.accuracy, labels: SPECIES });
    writeFileSync(join(home.folder, 'iris.csv'), 'petal_width,petal_length,sepal_width,sepal_length\n0.2,1.4,3.5,5.1\n2.1,5.8,3.0,7.1\n');
    const { stdout } = await home.run(['predict', 'irises', '-i', 'iris.csv']);
    expect(stdout.split('\n').map((line) => line.split(',')[0])).toEqual(['label', 'setosa', 'virginica', '']);
  });

  it.runIf(IS_SOAK)("of a team's CSV are measured on the dataset and on the file, and predict rows with missing values", async () => {
    writeFileSync(join(home.folder, 'flowers.csv'), flowers(120));
    await home.json('data', 'import', 'flowers.csv', '--label', 'kind', '--split', '0.8/0.2', '--missing', 'fill');
    const features = {
      inputs: {
        x: [
          { kind: 'number', columns: ['length', 'width'] },
          { kind: 'category', column: 'garden' },
        ],
      },
    };
    const { result } = await home.json<Measured>('train', spec('kinds', { dataset: 'flowers', features, modelTopology: dense(3, 4) }));
    const found = await home.json<Evaluated>('evaluate', 'kinds', '--data', 'flowers');
    expect(Math.abs(found.loss - result.loss)).toBeLessThan(1e-6);
    expect(found.accuracy).toBe(result.accuracy);
    const all = await home.json<Evaluated>('evaluate', 'kinds', '--data', 'flowers.csv');
    expect([all.examples, all.confusion.flat().reduce((a, b) => a + b, 0)]).toEqual([120, 120]);
    expect((await home.run(['export', 'kinds', '--out', 'kinds'])).exit).toBe(0);
    writeFileSync(
      join(home.folder, 'new.json'),
      JSON.stringify([
        { length: 0.1, width: null, garden: 'south' },
        { length: '4.2', width: 1, garden: 'east' },
      ]),
    );
    const { predictions } = await home.json<{ predictions: Labelled[] }>('predict', 'kinds', '-i', 'new.json');
    expect(predictions.map(({ label }) => label)).toEqual(['setosa', 'virginica']);
    expect(await predictedInPlainNode('kinds', 'new.json')).toEqual(
      predictions.map(({ label, probabilities }) => close({ label, probabilities })),
    );
    expect((await home.run(['alias', 'set', 'flowers:best', 'kinds'])).exit).toBe(0);
    const named = await home.json<Evaluated>('evaluate', 'flowers:best', '--data', 'flowers');
    expect(named.loss).toBe(found.loss);
    expect((await home.run(['alias', 'list'])).stdout).toMatch(/flowers:best +[0-9a-f]{8} +result/);
    writeFileSync(join(home.folder, 'bad.csv'), 'length,width,garden\n1,2,north\n1,wide,north\n');
    const bad = await home.run(['predict', 'kinds', '-i', 'bad.csv']);
    expect([bad.exit, bad.stderr]).not.toEqual([0, '']);
    expect(bad.stderr).toMatch(/bad\.csv, row 2, column "width": "wide" is no number/);
  });

  it.runIf(IS_SOAK)('answer for numbers in the units of the data', async () => {
    const features = {
      inputs: { x: [{ kind: 'number', columns: ['length', 'width'] }] },
      targets: { height: { kind: 'number', columns: ['height'], scale: 'standard' } },
    };
    const regression = { dataset: 'flowers', features, modelTopology: dense(1, 2), loss: 'meanSquaredError' };
    const { result } = await home.json<Measured>('train', spec('heights', regression));
    const csv = (await home.run(['metrics', 'heights'])).stdout.trim().split('\n');
    expect([csv[0], csv.at(-1)!.split(',')[0]]).toEqual(['round,rounds,loss,meanAbsoluteError,examplesPerSecond', String(csv.length - 1)]);
    const found = await home.json<Evaluated>('evaluate', 'heights', '--data', 'flowers');
    expect(Math.abs(found.loss - result.loss)).toBeLessThan(1e-6);
    // The loss is of standardised heights, their squared errors are in squares of their own unit; and the api says the same of the run.
    expect(found.meanSquaredError / found.loss).toBeGreaterThan(5);
    const { predictions: asked } = await home.json<{ predictions: RunPredictions }>('run', 'heights', '--predictions');
    const { meanAbsoluteError } = found;
    expect(asked.outputs).toMatchObject([{ kind: 'values', name: 'height', meanAbsoluteError: expect.closeTo(meanAbsoluteError, 9) }]);
    expect((await home.run(['run', 'heights', '--predictions'])).stdout).toMatch(
      /^height {2}MAE \d+\.\d{4} {3}RMSE \d+\.\d{4} {3}R² -?\d/m,
    );
    writeFileSync(join(home.folder, 'two.csv'), 'length,width\n0.2,3\n4.2,1\n');
    const { predictions } = await home.json<{ predictions: { values: { height: number[] } }[] }>('predict', 'heights', '-i', 'two.csv');
    expect(predictions[0]!.values.height[0]).toBeGreaterThan(0);
    expect(predictions[1]!.values.height[0]! - predictions[0]!.values.height[0]!).toBeGreaterThan(10);
  });
});

describe('fine-tuning', () => {
  it('begins with the weights of a run, and frozen variables keep their bits', async () => {
    const flags = ['--optimizer', 'adam', '--rounds', '4', '--global-batch', '64'];
    const tuned = await home.json<{ status: string; id: string }>(
      'train',
      '--from',
      'digits',
      '--freeze',
      'dense_1,dense_2/kernel',
      '--name',
      'tuned',
      ...flags,
    );
    expect(tuned.status).toBe('SUCCEEDED');
    expect((await home.run(['export', 'tuned', '--out', 'tuned'])).exit).toBe(0);
    const [was, is] = ['out', 'tuned'].map((folder) => readFileSync(join(home.folder, folder, 'group1-shard1of1.bin'))) as [Buffer, Buffer];
    // In the order of the layout: kernel and bias of dense_1, kernel of dense_2.
    const frozenBytes = (784 * 256 + 256 + 256 * 128) * 4;
    expect(is.length).toBe(was.length);
    expect(is.subarray(0, frozenBytes).equals(was.subarray(0, frozenBytes))).toBe(true);
    expect(is.subarray(frozenBytes).equals(was.subarray(frozenBytes))).toBe(false);
  });

  it('refuses variables that do not fit, by name', async () => {
    const other = await home.run(['train', '--from', 'digits', '--model', 'cnn']);
    expect([other.exit, other.stderr]).toEqual([
      EXIT.badSpec,
      expect.stringMatching(/conv2d_1\/kernel \[3, 3, 1, 32\] is not in that run/),
    ]);
    const nothing = await home.run(['train', '--from', 'digits', '--freeze', 'conv*']);
    expect([nothing.exit, nothing.stderr]).toEqual([EXIT.badSpec, expect.stringContaining('"conv*" names no variable')]);
  });
});

describe('verify', () => {
  const golden = (name: string): string => join(import.meta.dirname, '../../libs/testkit/golden', name);

  it('replays a training of TensorFlow through the whole system, from its weights and in its order', async () => {
    const { ok, files } = await home.json<{ ok: boolean; files: { steps: number; loss: Difference; weights: Difference }[] }>(
      'verify',
      '--on-api',
      golden('mirrored-mlp-sgd.json'),
    );
    expect([ok, files[0]!.steps]).toEqual([true, 60]);
    expect(files[0]!.loss.relative).toBeLessThan(1e-5);
    expect(files[0]!.weights.relative).toBeLessThan(1e-5);
  });

  it.runIf(IS_SOAK)('replays it in processes of the library too, and says which strategy cannot follow it', async () => {
    const strategies = 'multi-worker-mirrored:ring,parameter-server:async';
    const { exit, stdout, stderr } = await home.run(['verify', '--strategy', strategies, golden('mirrored-mlp-sgd.json')]);
    expect(exit, stderr).toBe(EXIT.unsuccessful);
    expect(stdout).toMatch(/ok +multi-worker-mirrored:ring +library +4 +\S+e-[67] +\S+e-[67]/);
    expect(stdout).toMatch(/– +parameter-server:async +service .* not served: the gradients of the 2 replicas are applied one by one/);
    expect(stdout).toContain('1 of 1 strategies within 0.0002, 1 not served');
  });

  it('says every row of a recording of optimizers, and exits with 1 above the tolerance', async () => {
    const { exit, stdout } = await home.run(['verify', golden('optimizers.json'), '--tolerance', '1e-9']);
    expect(exit).toBe(EXIT.unsuccessful);
    expect(stdout).toMatch(/ok +sgd +SGD +0 +0/);
    expect(stdout).toMatch(/FAILED +nadam +Nadam/);
    expect(stdout).toMatch(/of 19 rows within 1e-9 over 25 steps/);
    const missing = await home.run(['verify', 'none.json']);
    expect([missing.exit, missing.stderr]).toEqual([EXIT.badSpec, expect.stringContaining('none.json: cannot be read (ENOENT)')]);
  });
});

interface Difference {
  readonly relative: number;
}
