import { createMetricPlan } from '@paceline/learning';
import { MEASURED_NAMES, type MeasuredName, type RowFormat, type RunSpecInput, type TargetField } from '@paceline/spec';
import { describe, expect, it } from 'vitest';
import { describeModel } from '../describe/describe.js';
import { loadedEngine, sequential, specOf } from '../run.fixture.js';

const COUNT = 6;
const rows = (target: TargetField, isWeighted = false): RowFormat => ({
  inputs: [{ name: 'x', shape: [3] }],
  targets: [target],
  isWeighted,
});
const LABEL: TargetField = { name: 'label', kind: 'classes', shape: [], classes: 3 };
const YES: TargetField = { name: 'yes', kind: 'classes', shape: [], classes: 2 };
const VALUES: TargetField = { name: 'y', kind: 'values', shape: [3] };
/** The output of the model is its input: a Dense layer of ones on the diagonal. */
const model = (units: number, activation = 'linear') =>
  sequential(['Dense', { name: 'out', units, activation, use_bias: false, batch_input_shape: [null, 3] }]);

async function measured(spec: RunSpecInput, format: RowFormat, inputs: number[], targets: number[], weights?: number[]) {
  const loaded = await loadedEngine(spec, undefined, format);
  const units = loaded.flat.length / 3;
  loaded.flat.forEach((_, i) => (loaded.flat[i] = Number(Math.floor(i / units) === i % units)));
  loaded.engine.load(loaded.flat);
  const plan = createMetricPlan(specOf(spec), format, [{ name: 'out', shape: [units] }]);
  const batch = {
    inputs: [Float32Array.from(inputs)],
    targets: [Float32Array.from(targets)],
    weights: weights && Float32Array.from(weights),
    count: targets.length / (format.targets[0]!.kind === 'values' ? 3 : 1),
  };
  const { metricSums } = loaded.engine.evaluate(batch);
  const out = new Float32Array(loaded.layout.totalLength);
  const trained = loaded.engine.step({ round: 0, replica: 0, batches: [batch], out }).metricSums;
  loaded.engine.dispose();
  expect(loaded.engine.metricNames).toEqual(plan.sumNames);
  expect(plan.finish(trained, COUNT)).toEqual(Object.fromEntries(Object.entries(plan.finish(metricSums, COUNT)).map(([name, value]) => [name, expect.closeTo(value!, 5) as number]))); // oxfmt-ignore
  return plan.finish(metricSums, COUNT);
}

/** Log-odds of 0.7, 0.2, 0.1 and so on: taken for 0, 1, 2, 1, 0, 0. */
const SHARES = [0.7, 0.2, 0.1, 0.1, 0.6, 0.3, 0.2, 0.3, 0.5, 0.2, 0.5, 0.3, 0.4, 0.35, 0.25, 0.9, 0.06, 0.04];
const LABELS = [0, 1, 1, 1, 2, 0];
const OF_CLASSES: MeasuredName[] = [
  'accuracy',
  'precision',
  'recall',
  'f1Score',
  'topKCategoricalAccuracy',
  'perplexity',
  'auc',
  'confusionMatrix',
];

describe('what an engine measures', () => {
  it.each([
    ['logits', 'linear', SHARES.map(Math.log)],
    ['probabilities', 'softmax', SHARES.map(Math.log)],
  ])('of classes from %s', async (_, activation, inputs) => {
    const spec = { model: model(3, activation), metrics: OF_CLASSES, metricOptions: { topK: 2 } };
    expect(await measured(spec, rows(LABEL), inputs, LABELS)).toMatchObject({
      accuracy: expect.closeTo(4 / 6, 6) as number,
      precision: expect.closeTo((2 / 3 + 1) / 3, 6) as number,
      recall: expect.closeTo((1 + 2 / 3) / 3, 6) as number,
      f1Score: expect.closeTo(1.6 / 3, 6) as number,
      topKCategoricalAccuracy: expect.closeTo(5 / 6, 6) as number,
      perplexity: expect.closeTo((0.7 * 0.6 * 0.3 * 0.5 * 0.25 * 0.9) ** (-1 / 6), 5) as number,
      confusionMatrix: expect.closeTo(4 / 6, 6) as number,
    });
  });

  it.each([
    ['a logit', 'linear', 'binaryCrossentropy'],
    ['a probability', 'sigmoid', 'binaryCrossentropy'],
    ['a hinge', 'linear', 'hinge'],
  ] as const)('of yes or no from %s', async (_, activation, loss) => {
    const odds = [0.01, 0.5 - 1e-3, 0.3, 0.9, 0.8, 0.35].map((p) => Math.log(p / (1 - p)));
    const inputs = odds.flatMap((z) => [z, 0, 0]);
    const spec = { model: model(1, activation), loss, metrics: ['acc', 'precision', 'recall', 'AUC'] as never };
    expect(await measured(spec, rows(YES), inputs, [0, 0, 1, 1, 1, 0])).toMatchObject({
      accuracy: expect.closeTo(5 / 6, 6) as number,
      precision: 1,
      recall: expect.closeTo(2 / 3, 6) as number,
      auc: expect.closeTo(7 / 9, 6) as number,
    });
  });

  it('of values, by the weights of the examples where that is asked for', async () => {
    const metrics: MeasuredName[] = ['meanAbsoluteError', 'meanSquaredError', 'rootMeanSquaredError', 'r2Score', 'cosineSimilarity'];
    const [inputs, targets] = [Array.from({ length: 18 }, (_, i) => i % 7), Array.from({ length: 18 }, (_, i) => (i % 5) + 1)];
    const weights = [1, 0, 2, 3, 0, 1];
    const error = (of: (d: number) => number, weigh = (_: number) => 1): number => {
      const factors = inputs.map((_, i) => weigh(Math.floor(i / 3)));
      return inputs.reduce((sum, x, i) => sum + factors[i]! * of(x - targets[i]!), 0) / factors.reduce((a, b) => a + b, 0);
    };
    const plain = await measured({ model: model(3), metrics }, rows(VALUES, true), inputs, targets, weights);
    expect(plain['meanAbsoluteError']).toBeCloseTo(error(Math.abs), 6);
    expect(plain['rootMeanSquaredError']).toBeCloseTo(Math.sqrt(error((d) => d * d)), 6);
    expect(plain['r2Score']).toBeLessThan(1);
    const weighted = await measured(
      { model: model(3), metrics, metricOptions: { weighted: true } },
      rows(VALUES, true),
      inputs,
      targets,
      weights,
    );
    expect(weighted['meanSquaredError']).toBeCloseTo(error((d) => d * d, (i) => weights[i]!), 6); // oxfmt-ignore
  });

  it.each<[MeasuredName, TargetField, string]>([
    ['auc', VALUES, 'needs a target of classes'],
    ['confusionMatrix', VALUES, 'needs a target of classes'],
    ['r2Score', LABEL, 'needs a target of values'],
    ['confusionMatrix', { ...LABEL, classes: 100 }, 'would keep 10000 sums of the output out; at most 4096'],
  ])('is refused where it says nothing: %s', async (metric, target, message) => {
    const units = target.kind === 'classes' ? target.classes : 3;
    const described = describeModel(specOf({ model: model(units), metrics: [metric] }), rows(target));
    await expect(described).rejects.toMatchObject({ path: 'metrics', message: expect.stringContaining(message) as string });
  });

  it('has a plan for every metric that a spec can name', () => {
    for (const metric of MEASURED_NAMES) {
      const target = metric === 'r2Score' || metric === 'meanAbsolutePercentageError' ? VALUES : LABEL;
      const { planned, sumNames } = createMetricPlan({ metrics: [metric] }, rows(target), [{ name: 'out', shape: [3] }]);
      expect([planned.length, sumNames.length]).toEqual([1, 1 + planned[0]!.length]);
    }
  });
});

it('several outputs are measured each, and together', () => {
  const format: RowFormat = { inputs: [], targets: [LABEL, VALUES, YES], isWeighted: false };
  const ends = [
    { name: 'yes', shape: [1] },
    { name: 'price', shape: [3] },
    { name: 'kind', shape: [3] },
  ];
  const plan = createMetricPlan({ metrics: ['accuracy', 'meanAbsoluteError'] }, format, ends);
  // yes takes the target of its name, the others follow the order.
  expect(plan.planned.map(({ name, output, at }) => [name, output, at])).toEqual([
    ['yes_accuracy', 0, 1],
    ['price_accuracy', 1, 3],
    ['meanAbsoluteError', 2, 5],
  ]);
  expect(plan.losses.map(({ name, output, at }) => [name, output, at])).toEqual([
    ['yes_loss', 0, 7],
    ['price_loss', 1, 8],
    ['kind_loss', 2, 9],
  ]);
  expect(plan.finish([8, 1, 4, 2, 4, 3, 4, 4, 2, Number.NaN], 4)).toEqual({
    loss: 2,
    yes_loss: 1,
    price_loss: 0.5,
    kind_loss: null,
    yes_accuracy: 0.25,
    price_accuracy: 0.5,
    meanAbsoluteError: 0.75,
    accuracy: 0.375,
  });
  expect(plan.finish([Number.NaN, 0, 0, 2, 4, 3, 4], 4)).toMatchObject({
    loss: null,
    yes_accuracy: null,
    price_accuracy: 0.5,
    accuracy: null,
  });
});
