/** An evaluator beside a training: it evaluates the weights that the training has written, and ends by itself. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as tf from '@tensorflow/tfjs-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { BackupAndRestore } from './backup.js';
import { ArgumentError } from './errors.js';
import * as tfl from '@tensorflow/tfjs-layers';
import { CLASSES, compiled, FEATURES, kindAndSize, mlp, numbers, oneHot, rows } from './models.fixture.js';
import { freeCluster, Programs } from './programs.fixture.js';
import { SidecarEvaluator, type Evaluation, type SidecarOptions } from './sidecar-evaluator.js';

let programs: Programs;
let folder: string;
beforeAll(async () => {
  await tf.setBackend('cpu');
  programs = new Programs();
  folder = mkdtempSync(join(tmpdir(), 'evaluator-test-'));
});
afterAll(() => {
  programs.dispose();
  rmSync(folder, { recursive: true, force: true });
});

const build = () => compiled(mlp(), () => tf.train.adam(0.02), { metrics: ['accuracy'] });
const optionsOf = (more: Partial<SidecarOptions> = {}): SidecarOptions =>
  Object.assign({ model: build(), folder: join(folder, 'one'), data: { xs: rows(), ys: oneHot() }, intervalMs: 5 }, more);

it('evaluates what each epoch has left, as the model that was trained does, and ends with the last one', async () => {
  const model = build();
  const backup = new BackupAndRestore(join(folder, 'one'), { keep: true });
  await backup.restore(model);
  await backup.onTrainBegin();
  const measured: number[][] = [];
  let evaluate: (evaluation: Evaluation) => void;
  const evaluator = new SidecarEvaluator(optionsOf({ epochs: 3, onEvaluation: (evaluation) => evaluate(evaluation) }));
  const ended = evaluator.start();
  for (let epoch = 0; epoch < 3; epoch++) {
    const next = new Promise<Evaluation>((resolve) => (evaluate = resolve));
    await model.fit(rows(), oneHot(), { epochs: 1, verbose: 0, shuffle: false });
    measured.push((model.evaluate(rows(), oneHot()) as tf.Scalar[]).map((value) => value.dataSync()[0]!));
    await backup.onEpochEnd(epoch);
    await next;
  }
  const result = await ended;
  expect(result.ended).toBe('epochs');
  expect(result.evaluations.map(({ epoch, values }) => [epoch, values['loss'], values['acc']])).toEqual(
    measured.map(([loss, accuracy], epoch) => [epoch + 1, loss, accuracy]),
  );
  const again = await new SidecarEvaluator(optionsOf({ maxEvaluations: 1 })).start();
  expect(again).toEqual({ ended: 'maxEvaluations', evaluations: result.evaluations.slice(-1) });
});

it('gives each value of a model with several outputs under its name', async () => {
  const [a, b] = [tfl.input({ shape: [FEATURES] }), tfl.input({ shape: [FEATURES] })];
  const build = () =>
    kindAndSize(a, b, tfl.layers.concatenate().apply([a, b]) as tfl.SymbolicTensor, (seed) => tfl.initializers.glorotUniform({ seed }));
  const place = { folder: join(folder, 'outputs') };
  const model = build();
  const backup = new BackupAndRestore(place.folder, { keep: true });
  await backup.restore(model);
  await backup.onTrainBegin();
  await backup.onEpochEnd(0);
  const data = { xs: [rows(), rows()], ys: [oneHot(), numbers()] };
  const { evaluations } = await new SidecarEvaluator(optionsOf({ ...place, model, data: data as never, maxEvaluations: 1 })).start();
  const { values } = evaluations[0]!;
  expect(Object.keys(values)).toEqual(model.metricsNames);
  const [kind, size] = model.predict(data.xs) as [tf.Tensor, tf.Tensor];
  const mean = (tensor: tf.Tensor): number => tf.mean(tensor).dataSync<'float32'>()[0]!;
  const crossentropy = -CLASSES * mean(tf.mul(oneHot(), tf.log(kind)));
  const squares = mean(tf.squaredDifference(size, numbers()));
  expect(values['kind_loss']).toBeCloseTo(crossentropy, 3);
  expect(values['size_loss']).toBeCloseTo(squares, 4);
  expect(values['size_mae']).toBeCloseTo(mean(tf.abs(tf.sub(size, numbers()))), 4);
  expect(values['loss']).toBeCloseTo(crossentropy + squares, 3);
});

it('gives the weights of a training that freezes a layer to the layers that they are of', async () => {
  const square = (): tfl.Sequential => {
    const dense = (units: number) => tfl.layers.dense({ units, inputShape: [FEATURES] });
    return tfl.sequential({ layers: [dense(FEATURES), tfl.layers.batchNormalization(), dense(FEATURES), dense(CLASSES)] });
  };
  const place = { folder: join(folder, 'frozen') };
  const model = square();
  model.layers[0]!.trainable = false;
  compiled(model, () => tf.train.adam(0.02), { loss: 'meanSquaredError' });
  const backup = new BackupAndRestore(place.folder, { keep: true });
  await backup.restore(model);
  await backup.onTrainBegin();
  await model.fit(rows(), oneHot(), { epochs: 1, verbose: 0, shuffle: false });
  await backup.onEpochEnd(0);
  const [loss] = (model.evaluate(rows(), oneHot()) as tf.Scalar[]).map((value) => value.dataSync()[0]!);
  const other = compiled(square(), () => 'sgd', { loss: 'meanSquaredError' });
  const { evaluations } = await new SidecarEvaluator(optionsOf({ ...place, model: other, maxEvaluations: 1 })).start();
  expect(evaluations[0]!.values['loss']).toBe(loss);
  // Its optimizer's state is of the layers that were trained.
  await expect(new BackupAndRestore(place.folder).restore(other)).rejects.toThrow('freeze the same layers as then');
  const same = square();
  same.layers[0]!.trainable = false;
  expect(await new BackupAndRestore(place.folder).restore(compiled(same, () => tf.train.adam(0.02)))).toBe(1);
});

it('ends when nothing comes, and when it is stopped', async () => {
  const nothing = { folder: join(folder, 'none') };
  expect(await new SidecarEvaluator(optionsOf({ ...nothing, deadlineMs: 20 })).start()).toEqual({ evaluations: [], ended: 'deadline' });
  const evaluator = new SidecarEvaluator(optionsOf({ ...nothing, intervalMs: 100_000 }));
  const ended = evaluator.start();
  evaluator.stop();
  expect(await ended).toEqual({ evaluations: [], ended: 'stopped' });
});

it('refuses a model that is not compiled, options without a meaning, another model and a damaged file', async () => {
  expect(() => new SidecarEvaluator(optionsOf({ model: mlp() }))).toThrow('model must be compiled');
  expect(() => new SidecarEvaluator(optionsOf({ folder: '' }))).toThrow(ArgumentError);
  expect(() => new SidecarEvaluator(optionsOf({ epochs: 0 }))).toThrow('epochs must be a whole number from 1 to');
  expect(() => new SidecarEvaluator(optionsOf({ intervalMs: 2 ** 31 }))).toThrow(
    'intervalMs must be a whole number from 1 to 86400000, not 2147483648',
  );
  expect(() => new SidecarEvaluator(optionsOf({ intervalMS: 5 } as object))).toThrow('has no option intervalMS; there are model, folder');
  expect(() => new SidecarEvaluator(optionsOf({ data: undefined! }))).toThrow('data must have xs and ys');
  expect(() => new SidecarEvaluator(optionsOf({ onEvaluation: 'print' as never }))).toThrow('onEvaluation must be a function');
  const other = compiled(mlp('softmax', 4), () => 'sgd');
  await expect(new SidecarEvaluator(optionsOf({ model: other })).start()).rejects.toThrow('is of another model');
  writeFileSync(join(folder, 'one', 'backup.paceline'), 'torn');
  await expect(new SidecarEvaluator(optionsOf()).start()).rejects.toThrow('is damaged');
});

it('the example of the page, with a worker and an evaluator', async () => {
  const page = readFileSync(join(import.meta.dirname, '../../../docs/library.md'), 'utf8');
  const [, example] = /```js\n([\s\S]*?)```/.exec(page.split('## Evaluation beside the training')[1]!)!;
  expect(example!.split('\n').length).toBeLessThanOrEqual(31);
  const cluster = await freeCluster({ worker: 1, evaluator: 1 });
  const [worker, evaluator] = (['worker', 'evaluator'] as const).map((type) => {
    const env = { PACELINE_CLUSTER_SECRET: 'a secret of these tests', TF_CONFIG: JSON.stringify({ cluster, task: { type, index: 0 } }) };
    return programs.start(example!.replaceAll("'./backup'", JSON.stringify(join(folder, 'page'))), env).ended;
  });
  const [trained, evaluated] = await Promise.all([worker!, evaluator!]);
  for (const { status, errors } of [trained, evaluated]) expect(status, errors).toBe(0);
  expect(evaluated.output).toMatch(/epoch 4 loss \d+\.\d+\n$/);
});
