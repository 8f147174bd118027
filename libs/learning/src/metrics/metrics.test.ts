import { measuredName, MEASURED_NAMES, type MeasuredName } from '@paceline/spec';
import { describe, expect, it } from 'vitest';
import { measureIssues } from './measure-issues.js';
import { createMetricPlan, metricsOfBoth, type MeasuredPart } from './metric-plan.js';
import { addMetricSums, type MetricBlock } from './metric-sums.js';
import { METRICS, metricTarget, type MetricOptions } from './metric-table.js';

const SIX: MetricBlock = {
  rows: 6,
  width: 3,
  classes: 3,
  // Taken for 0, 1, 2, 1, 0, 0.
  predictions: Float32Array.of(0.7, 0.2, 0.1, 0.1, 0.6, 0.3, 0.2, 0.3, 0.5, 0.2, 0.5, 0.3, 0.4, 0.35, 0.25, 0.9, 0.06, 0.04),
  targets: Float32Array.of(0, 1, 1, 1, 2, 0),
};
/** The example of keras.metrics.AUC, and more of them. */
const YES: MetricBlock = {
  rows: 6,
  width: 1,
  classes: 2,
  predictions: Float32Array.of(0, 0.5, 0.3, 0.9, 0.8, 0.35),
  targets: Float32Array.of(0, 0, 1, 1, 1, 0),
};
const NUMBERS: MetricBlock = {
  rows: 3,
  width: 2,
  classes: 0,
  predictions: Float32Array.of(1, 2, 4, 3, 6, 8),
  targets: Float32Array.of(1, 1, 5, 4, 6, 7),
};

const sumsOf = (name: MeasuredName, block: MetricBlock, options: MetricOptions = {}): Float64Array => {
  const { classes, width } = block;
  const sums = new Float64Array(METRICS[name].sums({ classes, width: classes || width }, options));
  addMetricSums(name, block, sums, 0, options);
  return sums;
};
const valueOf = (name: MeasuredName, block: MetricBlock, options: MetricOptions = {}): number | null =>
  METRICS[name].finish(sumsOf(name, block, options), options);

describe('the metric', () => {
  // Values of scikit-learn and Keras, worked out by hand: class 0 has tp 2 fp 1 fn 0, class 1 tp 2 fp 0 fn 1, class 2 tp 0 fp 1 fn 1.
  it.each<[MeasuredName, MetricOptions, number]>([
    ['accuracy', {}, 4 / 6],
    ['binaryAccuracy', {}, 5 / 6],
    ['binaryAccuracy', { threshold: 0.45 }, 5 / 6],
    ['topKCategoricalAccuracy', { k: 1 }, 4 / 6],
    ['topKCategoricalAccuracy', { k: 2 }, 5 / 6],
    ['topKCategoricalAccuracy', {}, 1],
    ['precision', {}, (2 / 3 + 1 + 0) / 3],
    ['recall', {}, (1 + 2 / 3 + 0) / 3],
    ['f1Score', {}, (4 / 5 + 4 / 5 + 0) / 3],
    ['f1Score', { average: 'weighted' }, (2 * 0.8 + 3 * 0.8 + 0) / 6],
    ['precision', { average: 'micro' }, 4 / 6],
    ['confusionMatrix', {}, 4 / 6],
    ['perplexity', {}, (0.7 * 0.6 * 0.3 * 0.5 * 0.25 * 0.9) ** (-1 / 6)],
  ])('%s %j of classes', (name, options, value) => {
    expect(valueOf(name, SIX, options)).toBeCloseTo(value, 6);
  });

  it.each<[MeasuredName, MetricOptions, number]>([
    ['accuracy', {}, 5 / 6],
    ['binaryAccuracy', {}, 5 / 6],
    ['binaryAccuracy', { threshold: 0.32 }, 3 / 6],
    ['precision', {}, 1],
    ['recall', {}, 2 / 3],
    ['f1Score', {}, 0.8],
    ['recall', { threshold: 0.32 }, 2 / 3],
    ['precision', { threshold: 0.32 }, 2 / 4],
    // 7 of the 9 pairs are in order.
    ['auc', {}, 7 / 9],
    ['auc', { thresholds: 1000 }, 7 / 9],
  ])('%s %j of yes or no', (name, options, value) => {
    expect(valueOf(name, YES, options)).toBeCloseTo(value, 6);
  });

  it.each<[MeasuredName, number]>([
    ['meanAbsoluteError', 4 / 6],
    ['meanSquaredError', 4 / 6],
    ['rootMeanSquaredError', Math.sqrt(4 / 6)],
    ['meanAbsolutePercentageError', (100 / 6) * (1 / 1 + 1 / 5 + 1 / 4 + 1 / 7)],
    // Column 0: 1 − 1 / 14, column 1: 1 − 3 / 18.
    ['r2Score', (1 - 1 / 14 + 1 - 3 / 18) / 2],
    ['cosineSimilarity', (3 / Math.sqrt(2 * 5) + 32 / (5 * Math.sqrt(41)) + 92 / (10 * Math.sqrt(85))) / 3],
  ])('%s of values', (name, value) => {
    expect(valueOf(name, NUMBERS)).toBeCloseTo(value, 6);
  });

  it('auc is that of Keras: its examples, and each class against the others', () => {
    const example = { rows: 4, width: 1, classes: 2, predictions: Float32Array.of(0, 0.5, 0.3, 0.9), targets: Float32Array.of(0, 0, 1, 1) };
    // keras.metrics.AUC(num_thresholds=3)
    expect(valueOf('auc', example, { thresholds: 3 })).toBeCloseTo(0.75, 6);
    // Between recall 1 and 1/2 four are said to be positive and then one, below it one and then none.
    expect(valueOf('auc', example, { thresholds: 3, curve: 'PR' })).toBeCloseTo((1 + (2 / 3) * Math.log(4)) / 3 / 2 + 1 / 2, 6);
    const oneHot = {
      ...SIX,
      classes: 0,
      targets: Float32Array.from({ length: 18 }, (_, i) => Number(SIX.targets[Math.floor(i / 3)] === i % 3)),
    };
    expect(valueOf('auc', SIX)).toBeCloseTo(valueOf('auc', oneHot)!, 12);
    const two = {
      ...YES,
      width: 2,
      predictions: Float32Array.from({ length: 12 }, (_, i) => (i % 2 === 1 ? YES.predictions[i >> 1]! : 1 - YES.predictions[i >> 1]!)),
    };
    expect(valueOf('auc', two)).toBe(valueOf('auc', YES));
  });

  it.each(MEASURED_NAMES)('%s is the same of logits as of the probabilities that they make', (name) => {
    if (name === 'r2Score' || name === 'meanAbsolutePercentageError') return;
    const logits = { ...SIX, predictions: SIX.predictions.map(Math.log), activation: 'softmax' as const };
    expect(valueOf(name, logits)).toBeCloseTo(valueOf(name, SIX)!, 5);
    const odds = { ...YES, predictions: YES.predictions.map((p) => Math.log(p / (1 - p))), activation: 'sigmoid' as const };
    expect(valueOf(name, odds)).toBeCloseTo(valueOf(name, YES)!, 5);
  });

  it.each(MEASURED_NAMES)('%s of blocks that are added is that of all rows, and what weighs 0 is not there', (name) => {
    const block = name === 'r2Score' ? NUMBERS : SIX;
    const part = (from: number, to: number): MetricBlock => ({
      ...block,
      rows: to - from,
      predictions: block.predictions.subarray(from * block.width),
      targets: block.targets.subarray(from * (block.classes > 0 ? 1 : block.width)),
    });
    const [whole, first, second] = [sumsOf(name, block), sumsOf(name, part(0, 2)), sumsOf(name, part(2, block.rows))];
    whole.forEach((sum, i) => expect(first[i]! + second[i]!).toBeCloseTo(sum, 12));
    const masked = { ...block, weights: Float32Array.from({ length: block.rows }, (_, row) => (row < 2 ? 3 : 0)) };
    masked.predictions = Float32Array.from(block.predictions, (value, i) => (i < 2 * block.width ? value : Number.NaN));
    expect([...sumsOf(name, masked)]).toEqual([...first]);
    expect([...sumsOf(name, masked, { weighted: true })]).toEqual([...first].map((sum) => expect.closeTo(3 * sum, 10) as number));
  });

  it.each(MEASURED_NAMES)('%s of nothing is null or 0, and no NaN comes out of any', (name) => {
    const block = name === 'r2Score' ? NUMBERS : SIX;
    expect(valueOf(name, { ...block, rows: 0 })).toBeNull();
    const broken = {
      ...block,
      predictions: block.predictions.map((value, i) => (i % 4 === 0 ? Number.NaN : i % 5 === 0 ? Infinity : value)),
    };
    expect(Number.isNaN(valueOf(name, broken))).toBe(false);
  });

  it('leaves classes out that do not occur, and takes what has no number for wrong', () => {
    const wide = { ...SIX, classes: 9 };
    expect(valueOf('f1Score', wide)).toBeCloseTo(1.6 / 3, 6);
    const none = { ...SIX, predictions: new Float32Array(18).fill(Number.NaN) };
    expect([
      valueOf('accuracy', none),
      valueOf('recall', none),
      valueOf('topKCategoricalAccuracy', none),
      valueOf('confusionMatrix', none),
    ]).toEqual([0, 0, 0, 0]);
    expect(valueOf('auc', { ...YES, targets: new Float32Array(6).fill(1) })).toBeNull();
    expect(valueOf('r2Score', { ...NUMBERS, targets: new Float32Array(6).fill(0.1) })).toBeNull();
  });
});

describe('names', () => {
  it.each([
    ['acc', 'accuracy'],
    ['sparse_categorical_accuracy', 'accuracy'],
    ['SparseTopKCategoricalAccuracy', 'topKCategoricalAccuracy'],
    ['F1Score', 'f1Score'],
    ['AUC', 'auc'],
    ['RootMeanSquaredError', 'rootMeanSquaredError'],
    ['r2', 'r2Score'],
    ['mse', 'meanSquaredError'],
    ['mape', 'meanAbsolutePercentageError'],
  ])('%s is %s', (spelt, name) => {
    expect(measuredName(spelt)).toBe(name);
  });

  it('are not guessed', () => {
    expect(measuredName('loss')).toBeUndefined();
    expect(measuredName('constructor')).toBeUndefined();
  });
});

it('several labels of a row: binaryAccuracy counts each, accuracy the largest, as BinaryAccuracy and CategoricalAccuracy of Keras do', () => {
  const block: MetricBlock = {
    rows: 4,
    width: 3,
    classes: 0,
    predictions: Float32Array.of(0.9, 0.1, 0.2, 0.8, 0.7, 0.1, 0.2, 0.3, 0.1, 0.1, 0.9, 0.8),
    targets: Float32Array.of(1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1),
  };
  expect([valueOf('binaryAccuracy', block), valueOf('accuracy', block)]).toEqual([1, 0.75]);
  block.predictions[0] = Number.NaN;
  expect(valueOf('binaryAccuracy', block)).toBeCloseTo(11 / 12, 12);
});

it('auc of many classes takes the exponentials of a row once', () => {
  const classes = 3000;
  const predictions = Float32Array.from({ length: classes }, (_, c) => Math.sin(c));
  const block: MetricBlock = { rows: 1, width: classes, classes, predictions, activation: 'softmax', targets: Float32Array.of(7) };
  const before = Math.exp;
  let calls = 0;
  Math.exp = (x) => (calls++, before(x));
  try {
    sumsOf('auc', block);
    sumsOf('precision', { ...block, classes: 0, targets: new Float32Array(classes) });
  } finally {
    Math.exp = before;
  }
  expect(calls).toBe(4 * classes);
});

it('errors of classes are those of their probabilities against the one-hot form', () => {
  const sure: MetricBlock = {
    rows: 1,
    width: 3,
    classes: 3,
    predictions: Float32Array.of(20, -20, -20),
    activation: 'softmax',
    targets: Float32Array.of(0),
  };
  expect(valueOf('meanAbsoluteError', sure)).toBeCloseTo(0, 8);
  expect(valueOf('cosineSimilarity', sure)).toBeCloseTo(1, 8);
  const yes = { ...sure, width: 1, classes: 2, predictions: Float32Array.of(0), activation: 'sigmoid' as const };
  expect(valueOf('meanSquaredError', yes)).toBe(0.25);
});

it('what is NaN is wrong: a negative is above every threshold, a positive above none', () => {
  const nothing: MetricBlock = {
    rows: 4,
    width: 1,
    classes: 2,
    predictions: new Float32Array(4).fill(Number.NaN),
    targets: Float32Array.of(0, 1, 0, 1),
  };
  expect(valueOf('auc', nothing)).toBe(0);
  const half = { ...nothing, predictions: Float32Array.of(Number.NaN, 0.9, 0.1, 0.9) };
  expect(valueOf('auc', half)).toBe(0.5);
  expect(valueOf('precision', half)).toBeCloseTo(2 / 3, 12);
  expect(valueOf('precision', { ...half, classes: 0 })).toBeCloseTo(2 / 3, 12);
  expect(valueOf('recall', { ...nothing, classes: 0 })).toBe(0);
});

it('thresholds are float32, as outputs are: one that equals a threshold is not above it', () => {
  const block: MetricBlock = { rows: 2, width: 1, classes: 0, predictions: Float32Array.of(0.4, 0.8), targets: Float32Array.of(1, 1) };
  expect(valueOf('recall', block, { threshold: 0.4 })).toBe(0.5);
  expect(valueOf('recall', block, { threshold: 0.8 })).toBe(0);
  const buckets = sumsOf('auc', block, { thresholds: 21 });
  expect([...buckets].flatMap((count, bucket) => (count > 0 ? [bucket] : []))).toEqual([7, 15]);
});

it('a target says how many sums', () => {
  const label = metricTarget({ name: 'label', kind: 'classes', shape: [7], classes: 10 });
  const values = metricTarget({ name: 'y', kind: 'values', shape: [5, 3] });
  expect([
    METRICS.precision.sums(label),
    METRICS.confusionMatrix.sums(label),
    METRICS.auc.sums(label),
    METRICS.accuracy.sums(label),
  ]).toEqual([30, 100, 400, 2]);
  expect([METRICS.precision.sums(values), METRICS.r2Score.sums(values), METRICS.auc.sums(values, { thresholds: 50 })]).toEqual([
    3, 12, 100,
  ]);
});

describe('the plan of a run', () => {
  const classes = (count: number) => ({
    inputs: [{ name: 'x', shape: [1] }],
    targets: Array.from({ length: count }, (_, i) => ({ name: `out${i}`, kind: 'classes' as const, classes: 60, shape: [1] })),
    isWeighted: false,
  });
  const outputs = (count: number, name = 'out') => Array.from({ length: count }, (_, i) => ({ name: `${name}${i}`, shape: [60] }));

  it('names what may be averaged over rows', () => {
    const { means } = createMetricPlan({ metrics: ['accuracy', 'auc', 'perplexity', 'f1Score'] }, classes(2), outputs(2));
    expect([...means].sort()).toEqual(['accuracy', 'loss', 'out0_accuracy', 'out0_loss', 'out1_accuracy', 'out1_loss']);
  });

  it('is refused where its sums, or a name, are more than a message or the history takes', () => {
    const confusions = (count: number) => () => createMetricPlan({ metrics: ['confusionMatrix'] }, classes(count), outputs(count));
    expect(confusions(4)).not.toThrow();
    expect(confusions(5)).toThrow(
      'the metrics would keep 18000 sums together; at most 16383 are kept, and out0_confusionMatrix keeps 3600: leave out the largest',
    );
    expect(() => createMetricPlan({ metrics: ['accuracy'] }, classes(2), outputs(2, 'ä'.repeat(96)))).toThrow(
      /_accuracy is longer than 200 bytes: give that output of the model a shorter name/u,
    );
  });
});

describe('of a new run', () => {
  const format = {
    inputs: [{ name: 'x', shape: [1] }],
    targets: [
      { name: 'kind', kind: 'classes' as const, classes: 3, shape: [] },
      { name: 'labels', kind: 'values' as const, shape: [4] },
    ],
    isWeighted: false,
  };
  const outputs = [
    { name: 'kind', shape: [3] },
    { name: 'labels', shape: [4] },
  ];
  const issuesOf = (spec: MeasuredPart, of = [0, 1]) => {
    const [ends, targets] = [of.map((i) => outputs[i]!), of.map((i) => format.targets[i]!)];
    return measureIssues(spec, ends, createMetricPlan(spec, Object.assign({}, format, { targets }), ends)).map(
      ({ path, message }) => `${path} ${message}`,
    );
  };
  const losses = { labels: 'binaryCrossentropy' } as const;

  it('classes and values are both measured where it names no metrics', () => {
    const ends = [outputs[0]!, outputs[1]!];
    expect(metricsOfBoth({}, format, ends)).toEqual(['accuracy', 'meanAbsoluteError']);
    const both = createMetricPlan({ metrics: metricsOfBoth({}, format, ends)! }, format, ends);
    expect(both.planned.map(({ name, output }) => [name, output])).toEqual([
      ['accuracy', 0],
      ['meanAbsoluteError', 1],
    ]);
    expect(metricsOfBoth({ losses }, format, ends)).toBeUndefined();
    expect(metricsOfBoth({ metrics: [] }, format, ends)).toBeUndefined();
    // One that was stored goes on as it was.
    expect(createMetricPlan({}, format, ends).planned.map(({ name }) => name)).toEqual(['accuracy']);
  });

  it('refuses a topK that every class is among', () => {
    const topK = (k: number): MeasuredPart => ({ metrics: ['topKCategoricalAccuracy'], metricOptions: { topK: k } });
    expect(issuesOf(topK(3), [0])).toEqual([
      'metricOptions.topK must be less than the 3 classes: among the 3 largest outputs each class is always right',
    ]);
    expect(issuesOf(topK(2), [0])).toEqual([]);
    expect(issuesOf(Object.assign(topK(3), { losses }))).toEqual([]);
  });

  it('refuses a threshold that nothing is compared with', () => {
    const threshold = (...metrics: MeasuredName[]): MeasuredPart => ({ metrics, metricOptions: { threshold: 0.9 } });
    expect(issuesOf(threshold('precision'), [0])).toEqual([
      'metricOptions.threshold is not used: precision takes the class with the largest of 3 outputs; measure binaryAccuracy, or leave it out',
    ]);
    expect(issuesOf(threshold('recall', 'binaryAccuracy'), [0])).toEqual([]);
    expect(issuesOf(Object.assign(threshold('precision'), { losses }))).toEqual([]);
  });

  it('refuses a perplexity of several labels', () => {
    expect(issuesOf({ metrics: ['perplexity'], losses })).toEqual([
      'metrics perplexity is of one class in a row, and the output labels has 4 labels at once: leave it out, or measure binaryAccuracy',
    ]);
    expect(issuesOf({ metrics: ['perplexity'], losses: { labels: 'categoricalCrossentropy' } })).toEqual([]);
  });
});
