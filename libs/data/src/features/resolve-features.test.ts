import { featurePlanSchema, featuresSchema, sortedVocabulary, type Column, type DatasetManifest } from '@paceline/spec';
import { describe, expect, it } from 'vitest';
import { completeFeatures } from './default-features.js';
import { Resolution } from './resolution.js';
import { resolveFeatures, runDataOf } from './resolve-features.js';

const numbers = { count: 10, missing: 0, mean: 2, deviation: 4, minimum: -2, maximum: 6 };
const number = (name: string, change: Partial<typeof numbers> = {}): Column => ({
  name,
  kind: 'number',
  statistics: Object.assign({}, numbers, change),
});
const category = (name: string, vocabulary: string[], missing = 0): Column => ({
  name,
  kind: 'category',
  vocabulary,
  statistics: { count: 10 - missing, missing, counts: vocabulary.map((_, i) => i + 1) },
});
const sizes = { count: 10, missing: 0, minimum: 3, maximum: 9, mean: 5 };
const image: Column = { name: 'photo', kind: 'image', heights: sizes, widths: sizes, channels: [3] };
const text: Column = { name: 'review', kind: 'text', lengths: sizes };
const tags: Column = {
  name: 'tags',
  kind: 'sequence',
  dtype: 'I32',
  shape: [],
  statistics: Object.assign({}, numbers, { minimum: 0 }),
  lengths: sizes,
};
const bytes: Column = { name: 'pixels', kind: 'array', dtype: 'U8', shape: [4, 4, 1], statistics: numbers };

function manifest(columns: Column[], label?: string): DatasetManifest {
  const shards = [{ sha256: 'a'.repeat(64), rows: 10, bytes: 1000 }];
  return {
    format: 'paceline.dataset',
    version: 1,
    columns,
    ...(label === undefined ? {} : { label }),
    splits: { train: { rows: 10, shards }, validation: { rows: 10, shards } },
    dropped: { missing: 0 },
    isOrdered: false,
  };
}
const resolve = (columns: Column[], label: string | undefined, features?: unknown) =>
  resolveFeatures(manifest(columns, label), features === undefined ? undefined : featuresSchema.parse(features));
function planOf(...given: Parameters<typeof resolve>) {
  const result = resolve(...given);
  if (!result.ok) throw new Error(JSON.stringify(result.issues));
  return featurePlanSchema.parse(result.plan);
}
function issuesOf(...given: Parameters<typeof resolve>) {
  const result = resolve(...given);
  return result.ok ? [] : result.issues;
}

const FLOWERS = [number('sepal'), number('petal'), category('color', ['red', 'blue']), category('species', ['virginica', 'setosa'])];

describe('features that are left out', () => {
  it('the label is the target, and all other columns lie side by side in x', () => {
    const plan = planOf(FLOWERS, 'species');
    expect(plan.rowFormat).toEqual({
      inputs: [{ name: 'x', shape: [4] }],
      targets: [{ name: 'y', kind: 'classes', shape: [], classes: 2 }],
      isWeighted: false,
    });
    expect(plan.inputs[0]!.encoders).toEqual([
      { kind: 'numbers', columns: ['sepal', 'petal'], missing: [2, 2], subtract: [2, 2], divide: [4, 4] },
      { kind: 'one-hot', column: 'color', names: ['blue', 'red'] },
    ]);
    expect(plan.targets[0]!.labels).toEqual(['setosa', 'virginica']);
    expect(plan.evaluateOn).toBe('validation');
  });

  it('a label of numbers gives values, and an image is an input of its own', () => {
    const plan = planOf([number('age'), number('price'), image], 'price');
    expect(plan.rowFormat).toEqual({
      inputs: [
        { name: 'x', shape: [1] },
        { name: 'photo', shape: [5, 5, 3] },
      ],
      targets: [{ name: 'y', kind: 'values', shape: [1] }],
      isWeighted: false,
    });
    expect(planOf([bytes, number('price')], 'price').rowFormat.inputs).toEqual([{ name: 'x', shape: [4, 4, 1] }]);
  });

  it('images are as large as they are on average, and at most 128 × 128', () => {
    const large = Object.assign({}, sizes, { mean: 480.4, maximum: 4000 });
    const photos: Column = {
      name: 'photo',
      kind: 'image',
      heights: large,
      widths: Object.assign({}, sizes, { mean: 35.6 }),
      channels: [3],
    };
    expect(planOf([photos, number('y')], 'y').rowFormat.inputs[0]!.shape).toEqual([128, 36, 3]);
  });

  it('numbers to be predicted are standardised', () => {
    expect(planOf([number('age'), number('price', { mean: 3e5, deviation: 1e5 })], 'price').targets[0]!.encoders).toEqual([
      { kind: 'numbers', columns: ['price'], missing: [null], subtract: [3e5], divide: [1e5] },
    ]);
  });

  it('of a text it counts which words occur; for the next token, their ids', () => {
    const read = (features: object) => completeFeatures(new Resolution(manifest([text, category('mood', ['a', 'b'])], 'mood')), features);
    expect(read({})?.inputs['x']).toMatchObject([{ kind: 'text', encode: 'multi-hot', length: 100_000 }]);
    expect(read({ targets: { y: { kind: 'next-token', column: 'review' } } })?.inputs['review']).toMatchObject([{ encode: 'ids' }]);
  });

  it('without a label the columns are told', () => {
    expect(issuesOf(FLOWERS.slice(0, 3), undefined)).toEqual([
      {
        path: 'features.targets',
        message: 'is missing: the dataset names no label. Its columns are sepal (number), petal (number), color (category)',
      },
    ]);
  });

  it('of several images and texts one must say which', () => {
    expect(issuesOf([image, bytes, number('y')], 'y')).toEqual([
      {
        path: 'features.inputs',
        message:
          'is missing: several columns are inputs of their own (photo: image, pixels: array), so say which, or import the data again without the others (type ignore)',
      },
    ]);
  });

  it('a category of very many is hashed', () => {
    const names = Array.from({ length: 1001 }, (_, i) => `n${i}`);
    expect(planOf([category('id', names), number('y')], 'y').rowFormat.inputs[0]!.shape).toEqual([1024]);
  });
});

describe('what is wrong has its path', () => {
  it.each([
    [
      { inputs: { x: [{ kind: 'category', column: 'colour' }] } },
      'features.inputs.x.0.column',
      /no column of the dataset; did you mean color\?/,
    ],
    [{ inputs: { x: [{ kind: 'number', columns: ['sepal', 'Petals'] }] } }, 'features.inputs.x.0.columns.1', /did you mean petal\?/],
    [
      { inputs: { x: [{ kind: 'number', columns: ['color'] }] } },
      'features.inputs.x.0.columns.0',
      /kind category, and this takes number; write \{kind: category/,
    ],
    [{ targets: { y: { kind: 'class', column: 'sepal' } } }, 'features.targets.y.column', /import it as a category/],
    [{ inputs: { x: [{ kind: 'window', columns: ['sepal'], lookback: 3 }] } }, 'features.inputs.x.0', /import it again in order/],
    [{ evaluateOn: 'test' }, 'features.evaluateOn', /no split test; it has train, validation/],
    [{ weightColumn: 'petal' }, 'features.weightColumn', /-2; a weight is not negative/],
    [{ classWeights: { setoza: 2 } }, 'features.classWeights.setoza', /did you mean setosa\?/],
    [{ balanceClasses: true, classWeights: { setosa: 1 } }, 'features.balanceClasses', /give one of both/],
    [
      { targets: { y: { kind: 'number', columns: ['sepal'] } }, balanceClasses: true },
      'features.balanceClasses',
      /needs a target of kind class/,
    ],
  ])('%j', (features, path, message) => {
    expect(issuesOf(FLOWERS, 'species', features)).toContainEqual({ path, message: expect.stringMatching(message) as string });
  });

  it.each([
    [
      {
        inputs: {
          x: [
            { kind: 'number', columns: ['y'] },
            { kind: 'image', column: 'photo', height: 8, width: 8 },
          ],
        },
      },
      'features.inputs.x.1',
      /an input of its own/,
    ],
    [{ inputs: { x: [{ kind: 'text', column: 'review', length: 4 }] } }, 'features.inputs.x.0.vocabulary', /has no token/],
    [
      { inputs: { x: [{ kind: 'text', column: 'review', length: 4, tokens: 'tokenizer', tokenizer: { a: 1 } }] } },
      'features.inputs.x.0.tokenizer',
      /no field "model"/,
    ],
    [
      { inputs: { x: [{ kind: 'array', column: 'pixels' }] }, targets: { y: { kind: 'next-token', column: 'review' } } },
      'features.targets.y',
      /needs an input of kind text/,
    ],
    [{ inputs: { x: [{ kind: 'image', column: 'photo', height: 4096, width: 4096 }] } }, 'features.inputs.x', /at most 16777216/],
  ])('%j', (features, path, message) => {
    expect(issuesOf([image, bytes, text, tags, number('y')], 'y', features)).toContainEqual({
      path,
      message: expect.stringMatching(message) as string,
    });
  });

  it('weighs the classes of each of several targets, by the name of the target', () => {
    const columns = [number('sepal'), category('species', ['setosa', 'virginica']), category('color', ['blue', 'red'])];
    const targets = {
      kind: { kind: 'class', column: 'species' },
      tint: { kind: 'class', column: 'color' },
      size: { kind: 'number', columns: ['sepal'] },
    };
    const inputs = { x: [{ kind: 'number', columns: ['sepal'] }] };
    const read = (more: object) =>
      resolveFeatures(manifest(columns, 'species'), featuresSchema.parse(Object.assign({ inputs, targets }, more)));
    const weightsOf = (more: object) => {
      const found = read(more);
      return found.ok
        ? found.plan.rowFormat.targets.map((field) => (field.kind === 'classes' ? field.classWeights : undefined))
        : found.issues;
    };
    expect(weightsOf({ classWeights: { tint: { red: 3 } } })).toEqual([undefined, [1, 3], undefined]);
    expect(weightsOf({ balanceClasses: true })).toEqual([
      [expect.any(Number), expect.any(Number)],
      [expect.any(Number), expect.any(Number)],
      undefined,
    ]);
    expect(weightsOf({ classWeights: { tint: { rad: 3 } } })).toEqual([
      { path: 'features.classWeights.tint.rad', message: 'is no class of "color"; did you mean red?' },
    ]);
    expect(weightsOf({ classWeights: { size: { red: 3 }, tynt: { red: 3 } } })).toEqual([
      { path: 'features.classWeights.size', message: 'is no target of kind class; they are kind, tint' },
      { path: 'features.classWeights.tynt', message: 'is no target of kind class; did you mean tint?' },
    ]);
    expect(weightsOf({ classWeights: { red: 3 } })).toEqual([
      {
        path: 'features.classWeights.red',
        message: 'is the weight of a class, and those of several targets stand under their names: write { kind: { red: 3 } }',
      },
    ]);
  });

  it('a target without a value in some rows', () => {
    expect(issuesOf([number('a'), category('species', ['x', 'y'], 3)], 'species')).toEqual([
      { path: 'features.targets.y.column', message: expect.stringMatching(/^3 rows of the training split have no "species"/) as string },
    ]);
  });
});

describe('lists of any length are resolved in little time', () => {
  const names = Array.from({ length: 60_000 }, (_, i) => `column-${i}`);
  const wide = [...names.map((name) => number(name)), category('species', names.slice(0, 30_000))];

  it.each([
    ['columns', { inputs: { x: [{ kind: 'number', columns: names }] } }, 0],
    ['unknown columns', { inputs: { x: [{ kind: 'number', columns: names.map((name) => `${name}x`) }] } }, 20],
    [
      'unknown classes',
      {
        inputs: { x: [{ kind: 'number', columns: ['column-1'] }] },
        classWeights: Object.fromEntries(names.map((name) => [`${name}x`, 2])),
      },
      20,
    ],
    [
      'one category many times',
      { inputs: { x: Array.from({ length: 300 }, () => ({ kind: 'category', column: 'species', encode: 'index' })) } },
      0,
    ],
  ])('%s', (_, features, issues) => {
    const of = featuresSchema.parse(features);
    // Processor time, because the machine may be busy.
    const before = process.cpuUsage();
    const result = resolveFeatures(manifest(wide, 'species'), of);
    expect(process.cpuUsage(before).user / 1e6).toBeLessThan(2);
    expect(result.ok ? 0 : result.issues.length).toBe(issues);
  });

  it('a token that stands twice is found anywhere', () => {
    const vocabulary = [...names.slice(0, 5_000), 'column-7'];
    const features = { inputs: { x: [{ kind: 'text', column: 'review', length: 4, vocabulary }] } };
    expect(issuesOf([text, number('y')], 'y', features)).toEqual([
      { path: 'features.inputs.x.0.vocabulary.5000', message: '"column-7" stands twice' },
    ]);
  });

  it('weights of more classes than can be read are refused', () => {
    const weights = Object.fromEntries(Array.from({ length: 100_001 }, (_, i) => [`c${i}`, 1]));
    expect(featuresSchema.safeParse({ classWeights: weights }).success).toBe(false);
  });
});

it('labels per step are classes up to the largest, and what shorter sequences lack is masked', () => {
  const plan = planOf([number('y'), tags], 'y', {
    inputs: { x: [{ kind: 'number', columns: ['y'] }] },
    targets: { t: { kind: 'sequence', column: 'tags', length: 3 } },
  });
  expect(plan.rowFormat.targets).toEqual([{ name: 't', kind: 'classes', shape: [3], classes: 7 }]);
  const longer = { inputs: { x: [{ kind: 'number', columns: ['y'] }] }, targets: { t: { kind: 'sequence', column: 'tags', length: 5 } } };
  const padded = planOf([number('y'), tags], 'y', longer);
  expect(padded.rowFormat.targets).toEqual([{ name: 't', kind: 'classes', shape: [5], classes: 7, isPadded: true }]);
  expect(padded.targets[0]!.encoders).toMatchObject([{ kind: 'sequence', length: 5, isMasked: true }]);
  expect(plan.targets[0]!.encoders[0]).not.toHaveProperty('isMasked');
});

it('a column without spread is not divided by zero', () => {
  const plan = planOf([number('a', { deviation: 0, minimum: 2, maximum: 2 }), number('y')], 'y');
  expect(plan.inputs[0]!.encoders[0]).toMatchObject({ subtract: [2], divide: [1] });
});

it('classes that are whole numbers are in their order', () => {
  expect(sortedVocabulary(['10', '9', '-1', '0'])).toEqual(['-1', '0', '9', '10']);
  expect(sortedVocabulary(['b', 'a', '10', 'B'])).toEqual(['10', 'B', 'a', 'b']);
});

it('the data of a run follow from the plan', () => {
  const source = { teamId: '11111111-1111-4111-8111-111111111111', version: 'b'.repeat(64) };
  const plan = planOf(FLOWERS, 'species');
  expect(runDataOf(plan, source)).toEqual({
    source: { kind: 'prepared', teamId: source.teamId, version: source.version },
    format: plan.rowFormat,
    trainExamples: 10,
    evalExamples: 10,
    evaluateOn: 'validation',
  });
});

describe('what would make another model than it says', () => {
  const ordered = (columns: Column[], features: unknown) =>
    resolveFeatures(Object.assign(manifest(columns), { isOrdered: true }), featuresSchema.parse(features));

  it('a category of other splits is unknown as an input, and stays a class as a target', () => {
    const city: Column = {
      name: 'city',
      kind: 'category',
      vocabulary: ['Rome', 'Oslo'],
      statistics: { count: 10, missing: 0, counts: [10, 0] },
    };
    const plan = planOf([number('sepal'), city, category('species', ['a', 'b'])], 'species');
    expect(plan.inputs[0]!.encoders).toContainEqual({ kind: 'one-hot', column: 'city', names: ['Rome'] });
    expect(planOf([number('sepal'), city], 'city').targets[0]!.labels).toEqual(['Oslo', 'Rome']);
  });

  it('the target of a window is never made up', () => {
    const given = {
      inputs: { x: [{ kind: 'window', columns: ['t'], lookback: 2 }] },
      targets: { y: { kind: 'window', columns: ['t'] } },
    };
    const result = ordered([number('t', { missing: 1 })], given);
    expect(result).toMatchObject({ ok: false, issues: [{ path: 'features.targets.y.columns.0' }] });
    expect(ordered([number('t')], given)).toMatchObject({ ok: true });
  });

  it('arrays with missing elements are refused', () => {
    const array: Column = Object.assign({}, bytes, { dtype: 'F32', statistics: Object.assign({}, numbers, { missing: 3 }) });
    expect(issuesOf([array, category('species', ['a', 'b'])], 'species')).toMatchObject([
      { message: expect.stringContaining('3 elements of "pixels" are missing') as string },
    ]);
  });
});

describe('what only the split has that a run is measured on', () => {
  const held = <C extends Column>(column: C, heldOut: object): C => Object.assign({}, column, { heldOut: { validation: heldOut } });
  const elements = held(Object.assign({}, bytes, { dtype: 'F32' }) as Column, { missing: 3 });
  const steps = (heldOut: object) => held(tags, heldOut);
  const sequence = {
    inputs: { x: [{ kind: 'number', columns: ['sepal'] }] },
    targets: { y: { kind: 'sequence', column: 'tags', length: 3 } },
  };

  it.each([
    [
      'a class',
      [number('x'), held(category('y', ['a', 'b']), { missing: 2 })],
      'y',
      undefined,
      /^2 rows of the validation split have no "y"/,
    ],
    ['a number', [number('x'), held(number('y'), { missing: 1 })], 'y', undefined, /^1 rows of the validation split have no "y"/],
    ['elements', [elements, category('y', ['a', 'b'])], 'y', undefined, /^3 elements of "pixels" are missing in the validation split/],
    ['a class of a step', [number('sepal'), steps({ maximum: 9 })], undefined, sequence, /^has the class 9 in the validation split/],
    ['a negative one', [number('sepal'), steps({ minimum: -1 })], undefined, sequence, /^has the class -1 in the validation split/],
    [
      'a negative weight',
      [number('x'), held(number('w', { minimum: 0 }), { minimum: -4 }), category('y', ['a', 'b'])],
      'y',
      { weightColumn: 'w' },
      /^holds -4/,
    ],
  ])('%s that is missing or wrong is found when the features are resolved', (_, columns, label, features, message) => {
    expect(issuesOf(columns, label, features)).toEqual([expect.objectContaining({ message: expect.stringMatching(message) as string })]);
    const on = Object.assign({}, features, { evaluateOn: 'train' });
    expect(issuesOf(columns, label, on)).toEqual([]);
  });
});
