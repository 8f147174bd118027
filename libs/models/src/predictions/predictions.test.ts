/** What is counted of predictions, against numbers worked out by hand; and the document of a run, on real rows under a model that errs as told. */
import { builtInTable, decodeImage, openBuiltIn, openRunTable, resolveFeatures, runDataOf } from '@paceline/data';
import type { Scorer } from '@paceline/engine';
import { parseRunSpec } from '@paceline/spec';
import { expect, it } from 'vitest';
import { batchesOf, evaluateBatches } from '../evaluate.js';
import type { ModelFolder } from '../model-folder.js';
import { planPreprocessing } from '../preprocessing-of.js';
import { ClassCounts } from './class-counts.js';
import { ClassesOutput } from './output-reports.js';
import { observedRunOf } from './picture.js';
import type { ClassesReport, ValuesReport } from './report.js';
import { runPredictions } from './run-predictions.js';
import { EvenSample, Greatest, ValueErrors } from './value-errors.js';

it('the confusion matrix has true classes in rows, and precision and recall follow from it', () => {
  const counts = new ClassCounts(['cat', 'dog', 'owl']);
  const pairs = [
    [0, 0],
    [0, 0],
    [0, 1],
    [1, 1],
    [1, 0],
    [1, 0],
  ] as const;
  for (const [truth, prediction] of pairs) counts.add(truth, prediction);
  expect(counts.matrix()).toEqual([
    [2, 1, 0],
    [2, 1, 0],
    [0, 0, 0],
  ]);
  expect([counts.accuracy, counts.wrongCount]).toEqual([0.5, 3]);
  expect(counts.confusions()).toEqual([
    { truth: 'dog', prediction: 'cat', count: 2 },
    { truth: 'cat', prediction: 'dog', count: 1 },
  ]);
  expect(counts.scores()).toEqual([
    { label: 'cat', count: 3, predicted: 4, precision: 2 / 4, recall: 2 / 3, f1: 4 / 7 },
    { label: 'dog', count: 3, predicted: 2, precision: 1 / 2, recall: 1 / 3, f1: 2 / 5 },
    { label: 'owl', count: 0, predicted: 0, precision: null, recall: null, f1: null },
  ]);
});

it('many classes have no matrix, but their most frequent confusions and the scores of the largest', () => {
  const labels = Array.from({ length: 3000 }, (_, i) => `class ${i}`);
  const counts = new ClassCounts(labels);
  for (let i = 0; i < 3000; i++) counts.add(i, i);
  for (let i = 0; i < 5; i++) counts.add(2999, 7);
  expect(counts.matrix()).toBeUndefined();
  expect(counts.confusions()).toEqual([{ truth: 'class 2999', prediction: 'class 7', count: 5 }]);
  expect(counts.scores()).toHaveLength(200);
  expect(counts.scores()[0]).toMatchObject({ label: 'class 2999', count: 6, recall: 1 / 6 });
});

it('errors of values: mean absolute, root mean squared, and the share of the variance that is explained', () => {
  const errors = new ValueErrors();
  // By hand: errors 1, -1, 2, 0; mean of the truth 2.5, squared distances from it 5.
  for (const [truth, prediction] of [[1, 2], [2, 1], [3, 5], [4, 4]] as const) errors.add(truth, prediction); // oxfmt-ignore
  expect([errors.meanAbsoluteError, errors.meanSquaredError, errors.rootMeanSquaredError]).toEqual([1, 1.5, Math.sqrt(1.5)]);
  expect(errors.rSquared).toBeCloseTo(1 - 6 / 5, 12);
  const constant = new ValueErrors();
  for (const prediction of [1, 2]) constant.add(5, prediction);
  expect(constant.rSquared).toBeNull();
  constant.add(5, Number.NaN);
  expect([constant.meanAbsoluteError, constant.rootMeanSquaredError, constant.points().length]).toEqual([null, null, 2]);
});

it('a sample is spread over all items and bounded, and the greatest are kept in their order', () => {
  for (const length of [1, 7, 10, 19, 20, 21, 1000]) {
    const sample = new EvenSample<number>(10);
    for (let i = 0; i < length; i++) sample.add(i);
    const items = sample.items();
    expect(items.length).toBeLessThanOrEqual(10);
    expect(items.length).toBeGreaterThanOrEqual(Math.min(length, 5));
    const steps = new Set(items.slice(1).map((item, i) => item - items[i]!));
    expect([items[0], steps.size <= 1, items.at(-1)! >= length * 0.7 || length < 4], String(length)).toEqual([0, true, true]);
  }
  const greatest = new Greatest<string>(2);
  for (const [score, name] of [[1, 'a'], [3, 'b'], [3, 'c'], [2, 'd'], [Number.NaN, 'e']] as const) greatest.offer(score, () => name); // oxfmt-ignore
  expect(greatest.items()).toEqual(['b', 'c']);
});

it('one number for two classes is cut where the accuracy of the run cuts it, and numbers that are none take the first class', () => {
  const target = { name: 'y', kind: 'classes' as const, shape: [], classes: 2 };
  const wrong = (gives: 'logits' | 'probabilities', half: number, output: number, truth: number) => {
    const counted = new ClassesOutput('y', ['no', 'yes'], target, gives, half);
    counted.add({ output: Float32Array.of(output), targets: Float32Array.of(truth), count: 1, exampleOf: (row) => row });
    return counted.surest.items()[0];
  };
  expect(wrong('logits', 0, 0.3, 1)).toBeUndefined();
  expect(wrong('logits', 0, 2, 0)!.probability).toBeCloseTo(1 / (1 + Math.exp(-2)), 6);
  expect(wrong('probabilities', 0.5, 0.3, 1)).toMatchObject({ prediction: 0, step: null });
  expect(wrong('probabilities', 0.5, 0.25, 1)!.probability).toBe(0.75);
  expect(wrong('logits', 0.5, 0.3, 1)).toMatchObject({ prediction: 0 });
  expect(wrong('logits', 0, Number.NaN, 1)).toMatchObject({ prediction: 0, probability: null });
});

it('labels of steps are compared one by one', () => {
  const target = { name: 'tags', kind: 'classes' as const, shape: [2], classes: 2 };
  const counted = new ClassesOutput('tags', ['a', 'b'], target, 'probabilities', 0.5);
  const output = Float32Array.of(0.9, 0.1, 0.2, 0.8, 0.6, 0.4, 0.3, 0.7);
  counted.add({ output, targets: Float32Array.of(0, 1, 1, 1), count: 2, exampleOf: (row) => 10 + row });
  expect(counted.counts.matrix()).toEqual([
    [1, 0],
    [1, 2],
  ]);
  expect(counted.surest.items()).toMatchObject([{ example: 11, step: 0, truth: 1, prediction: 0 }]);
});

it('a picture is a PNG that others read; a large one is made smaller', async () => {
  const pixels = Float32Array.from({ length: 3 * 2 * 3 }, (_, i) => i * 10 + (i === 17 ? 1000 : 0));
  const bytesOf = (address: string) => Buffer.from(address.slice(address.indexOf(',') + 1), 'base64');
  const size = { height: 3, width: 2, channels: 3 as const };
  const read = await decodeImage(bytesOf(observedRunOf(pixels, size)), Object.assign({ fit: 'stretch' as const }, size));
  expect([...read]).toEqual([...pixels].map((value) => Math.min(255, value)));
  const large = bytesOf(observedRunOf(new Float32Array(200 * 100).fill(90), { height: 200, width: 100, channels: 1 }));
  expect([large.readUInt32BE(16), large.readUInt32BE(20)]).toEqual([34, 67]);
});

/** A model of a built-in table whose outputs are made of the targets. */
async function erring(dataset: string, width: number, answer: (truth: number, row: number) => number[]) {
  const parsed = parseRunSpec({ dataset, name: 'errs' });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  const { spec } = parsed;
  const { manifest } = builtInTable(dataset);
  const resolved = resolveFeatures(manifest);
  if (!resolved.ok) throw new Error('no plan');
  const { plan } = resolved;
  const ends = { inputs: plan.rowFormat.inputs.map(({ name, shape }) => ({ name, shape })), outputs: [{ name: 'out', shape: [width] }] };
  const scorer: Scorer = {
    metricNames: ['loss'],
    targets: [0],
    halves: [0],
    finish: (sums, examples) => ({ loss: sums[0]! / examples }),
    score: ({ targets, count }) => ({
      sums: Float64Array.of(count),
      outputs: [Float32Array.from(Array.from({ length: count }, (_, row) => answer(targets[0]![row]!, row)).flat())],
    }),
  };
  const predictor = { inputs: [], outputs: [], predict: () => [], scorer: () => scorer, dispose: () => undefined };
  const model: ModelFolder = { predictor, preprocessing: planPreprocessing(spec, plan.rowFormat, ends, plan), card: undefined };
  const rows = await openBuiltIn(spec);
  const table = await openRunTable(runDataOf(spec), spec, {});
  return { model, rows: { format: rows.format, evaluation: rows.evaluation, split: plan.evaluateOn, table }, plan };
}

it('the document of a classification shows the rows that were wrong, as they are in the dataset, the surest first', async () => {
  const { model, rows } = await erring('iris', 3, (truth, row) =>
    [0, 1, 2].map((c) => (c === (row % 10 === 9 ? 0 : truth) ? 3 + row / 10 : 0)),
  );
  const report = await runPredictions(model, rows);
  expect(report).toMatchObject({ examples: 30, measured: 30, split: 'test', outputs: [{ kind: 'classes', name: 'species', count: 30 }] });
  const [output] = report.outputs as [ClassesReport];
  expect(output.labels).toEqual(['setosa', 'versicolor', 'virginica']);
  expect(output.columns).toEqual(['sepal_length', 'sepal_width', 'petal_length', 'petal_width']);
  expect(output.wrong.map(({ example, prediction }) => [example, prediction])).toEqual([
    [29, 'setosa'],
    [19, 'setosa'],
  ]);
  // The last flower of the paper's table.
  expect(output.wrong[0]).toMatchObject({ truth: 'virginica', cells: [5.9, 3, 5.1, 1.8], image: null, step: null });
  expect(JSON.stringify(await runPredictions(model, rows))).toBe(JSON.stringify(report));
});

it('the document of a regression is in the units of the data, and so is an evaluation', async () => {
  // Everything is predicted two deviations too high.
  const { model, rows, plan } = await erring('made-up-regression', 1, (truth) => [truth + 2]);
  const [encoder] = plan.targets[0]!.encoders;
  const deviation = encoder?.kind === 'numbers' ? encoder.divide[0]! : 0;
  expect(deviation).toBeGreaterThan(1.2);
  const [output] = (await runPredictions(model, rows)).outputs as [ValuesReport];
  expect(output).toMatchObject({ kind: 'values', name: 'y', count: 500 });
  expect(output.meanAbsoluteError).toBeCloseTo(2 * deviation, 5);
  expect(output.points).toHaveLength(500);
  expect(output.worst[0]!.prediction - output.worst[0]!.truth).toBeCloseTo(2 * deviation, 4);
  expect(output.worst[0]!.cells).toHaveLength(8);
  const evaluated = await evaluateBatches(model, rows.format, batchesOf(rows.evaluation, rows.format));
  expect(evaluated.meanAbsoluteError).toBeCloseTo(2 * deviation, 5);
  expect(evaluated.meanSquaredError).toBeCloseTo(4 * deviation ** 2, 4);
  expect(evaluated.outputs).toMatchObject([{ kind: 'values', name: 'y' }]);
});
