import { CROSSENTROPIES, type LossName, type LossOptions, type RowFormat, type TargetField } from '@paceline/spec';
import { describe, expect, it } from 'vitest';
import type { Batch } from '../engine.js';
import { loadedEngine, sequential, specOf, type Loaded } from '../run.fixture.js';
import { describeModel } from '../describe/describe.js';
import { EPSILON, FORMULAE, LOGIT_FORMULAE, sigmoid, softmax, sum } from './loss-formulae.fixture.js';

const CLASSES = 3;
const labels = (shape: number[] = []): TargetField => ({ name: 'label', kind: 'classes', shape, classes: CLASSES });
const yes: TargetField = { name: 'yes', kind: 'classes', shape: [], classes: 2 };
const values = (...shape: number[]): TargetField => ({ name: 'value', kind: 'values', shape });
const formatOf = (target: TargetField, shape: number[] = [4], isWeighted = false): RowFormat => ({
  inputs: [{ name: 'x', shape }],
  targets: [target],
  isWeighted,
});

/** Deterministic, in (-1, 1). */
const wave = (i: number): number => Math.sin(i * 12.9898 + 1) * 0.9;
const COUNT = 5;

interface Case {
  readonly loss: LossName;
  readonly options?: LossOptions;
  readonly target: TargetField;
  readonly activation: 'linear' | 'softmax' | 'sigmoid';
  readonly units: number;
  /** A sequence of so many steps. */
  readonly steps?: number;
}

const CASES: readonly Case[] = [
  { loss: 'sparseCategoricalCrossentropy', target: labels(), activation: 'linear', units: CLASSES },
  { loss: 'sparseCategoricalCrossentropy', target: labels(), activation: 'softmax', units: CLASSES },
  { loss: 'sparseCategoricalCrossentropy', target: labels(), activation: 'sigmoid', units: CLASSES },
  { loss: 'sparseCategoricalCrossentropy', target: labels([2]), activation: 'linear', units: CLASSES, steps: 2 },
  { loss: 'sparseCategoricalCrossentropy', target: labels([2]), activation: 'softmax', units: CLASSES, steps: 2 },
  { loss: 'categoricalCrossentropy', target: labels(), activation: 'linear', units: CLASSES },
  { loss: 'categoricalCrossentropy', target: labels(), activation: 'softmax', units: CLASSES },
  { loss: 'categoricalCrossentropy', target: labels(), activation: 'sigmoid', units: CLASSES },
  { loss: 'categoricalCrossentropy', target: values(CLASSES), activation: 'linear', units: CLASSES },
  { loss: 'categoricalCrossentropy', target: values(CLASSES), activation: 'sigmoid', units: CLASSES },
  { loss: 'binaryCrossentropy', target: { name: 'yes', kind: 'classes', shape: [], classes: 2 }, activation: 'linear', units: 1 },
  { loss: 'binaryCrossentropy', target: { name: 'yes', kind: 'classes', shape: [], classes: 2 }, activation: 'sigmoid', units: 1 },
  { loss: 'binaryCrossentropy', target: values(4), activation: 'linear', units: 4 },
  { loss: 'binaryCrossentropy', target: values(4), activation: 'sigmoid', units: 4 },
  { loss: 'meanSquaredError', target: values(2), activation: 'linear', units: 2 },
  { loss: 'meanSquaredError', target: values(2, 3), activation: 'linear', units: 3, steps: 2 },
  { loss: 'meanSquaredError', target: labels(), activation: 'softmax', units: CLASSES },
  { loss: 'meanAbsoluteError', target: values(2), activation: 'linear', units: 2 },
  { loss: 'meanAbsoluteError', target: values(6), activation: 'linear', units: 3, steps: 2 },
  { loss: 'sparseCategoricalCrossentropy', options: { labelSmoothing: 0.2 }, target: labels(), activation: 'softmax', units: CLASSES },
  { loss: 'binaryCrossentropy', options: { labelSmoothing: 0.2 }, target: yes, activation: 'sigmoid', units: 1 },
  { loss: 'meanAbsolutePercentageError', target: values(2), activation: 'linear', units: 2 },
  { loss: 'meanSquaredLogarithmicError', target: values(2), activation: 'sigmoid', units: 2 },
  { loss: 'huber', options: { delta: 0.3 }, target: values(2, 3), activation: 'linear', units: 3, steps: 2 },
  { loss: 'logCosh', target: values(2), activation: 'linear', units: 2 },
  { loss: 'hinge', target: yes, activation: 'linear', units: 1 },
  { loss: 'squaredHinge', target: yes, activation: 'linear', units: 1 },
  { loss: 'categoricalHinge', target: labels([2]), activation: 'linear', units: CLASSES, steps: 2 },
  { loss: 'poisson', target: values(2), activation: 'sigmoid', units: 2 },
  { loss: 'cosineSimilarity', target: values(3), activation: 'linear', units: 3 },
  { loss: 'kullbackLeiblerDivergence', target: values(3), activation: 'softmax', units: 3 },
];

const inputShapeOf = ({ steps }: Case): number[] => (steps === undefined ? [4] : [steps, 4]);
const load = (of: Case, engine: 'wasm' | 'cpu' = 'wasm', isWeighted = false): Promise<Loaded> => {
  const shape = inputShapeOf(of);
  const dense = ['Dense', { units: of.units, activation: of.activation, batch_input_shape: [null, ...shape] }] as const;
  const spec = { model: sequential(dense), loss: of.loss, lossOptions: of.options, engine };
  return loadedEngine(spec, undefined, formatOf(of.target, shape, isWeighted));
};

function batchFor({ target, steps = 1 }: Case): Batch {
  const length = target.shape.reduce((a, b) => a * b, 1);
  const element = (i: number): number => (target.kind === 'classes' ? (i * 7 + 1) % target.classes : Math.abs(wave(i + 40)));
  return {
    inputs: [Float32Array.from({ length: COUNT * steps * 4 }, (_, i) => wave(i))],
    targets: [Float32Array.from({ length: COUNT * length }, (_, i) => element(i))],
    count: COUNT,
  };
}

/** The sum of the losses of the examples, by the formula, from weights and inputs. */
function expectedLoss(of: Case, flat: Float32Array, { inputs, targets }: Batch): number {
  const { loss, target, activation, units, steps = 1 } = of;
  let total = 0;
  for (let row = 0; row < COUNT * steps; row++) {
    const z = Array.from({ length: units }, (_, u) =>
      sum([0, 1, 2, 3].map((i) => inputs[0]![row * 4 + i]! * flat[i * units + u]!).concat(flat[4 * units + u]!)),
    );
    const outputs = activation === 'softmax' ? softmax(z) : activation === 'sigmoid' ? z.map(sigmoid) : z;
    const label = targets[0]![row]!;
    const wanted = outputs.map((_, c) =>
      target.kind === 'values' ? targets[0]![row * units + c]! : units === 1 ? label : Number(c === label),
    );
    const isOfLogits = CROSSENTROPIES.includes(loss) && activation === 'linear';
    total += (isOfLogits ? LOGIT_FORMULAE[loss]! : FORMULAE[loss])(outputs, wanted, of.options ?? {}) / steps;
  }
  return total;
}

const newOut = ({ layout }: Loaded): Float32Array => new Float32Array(layout.totalLength);
const step = (loaded: Loaded, batch: Batch) => {
  const out = newOut(loaded);
  return { out, sums: loaded.engine.step({ round: 0, replica: 0, batches: [batch], out }).metricSums };
};

/** Within so much of it, and of 1. */
const expectNear = (value: number, wanted: number, tolerance: number): void =>
  expect(Math.abs(value - wanted) / Math.max(1, Math.abs(wanted)), `${value}, not ${wanted}`).toBeLessThan(tolerance);

describe.each(CASES)('$loss $options of $target.kind $target.shape after $activation', (of) => {
  it('has the value of its formula, and the gradient of its slope in every direction', async () => {
    const loaded = await load(of);
    const { engine, flat } = loaded;
    const batch = batchFor(of);
    const { out, sums } = step(loaded, batch);
    expectNear(sums[0]!, expectedLoss(of, flat, batch), 1e-5);
    expectNear(engine.evaluate(batch).metricSums[0]!, sums[0]!, 1e-5);
    const h = 1e-4;
    const numeric = Float64Array.from(flat, (_, i) => {
      const lossAt = (by: number): number => {
        const moved = Float32Array.from(flat);
        moved[i]! += by;
        return expectedLoss(of, moved, batch) / (2 * (moved[i]! - flat[i]!)) || 0;
      };
      return lossAt(h) + lossAt(-h);
    });
    for (let i = 0; i < out.length; i++) expect(Math.abs(out[i]! - numeric[i]!), `parameter ${i}`).toBeLessThan(6e-3);
    expect(Math.max(...out.map(Math.abs))).toBeGreaterThan(0.05);
    engine.dispose();
  });

  it('is the same on the JavaScript backend, and counts weighted examples by their weights', async () => {
    const [wasm, cpu] = [await load(of, 'wasm', true), await load(of, 'cpu', true)];
    const weights = Float32Array.of(1, 0, 2.5, 1, 0.5);
    const batch = { ...batchFor(of), weights };
    const [a, b] = [step(wasm, batch), step(cpu, batch)];
    a.out.forEach((value, i) => expectNear(value, b.out[i]!, 1e-5));
    expectNear(a.sums[0]!, b.sums[0]!, 1e-5);
    const alone = Array.from(weights, (weight, example) => {
      const part = (buffer: Float32Array): Float32Array => {
        const length = buffer.length / COUNT;
        return buffer.slice(example * length, (example + 1) * length);
      };
      const one = step(wasm, {
        inputs: [part(batch.inputs[0]!)],
        targets: [part(batch.targets[0]!)],
        weights: Float32Array.of(1),
        count: 1,
      });
      return { weight, ...one };
    });
    expect(a.sums[0]).toBeCloseTo(sum(alone.map(({ weight, sums }) => weight * sums[0]!)), 4);
    a.out.forEach((value, i) => expect(value).toBeCloseTo(sum(alone.map(({ weight, out }) => weight * out[i]!)), 4));
    for (const { engine } of [wasm, cpu]) engine.dispose();
  });
});

describe('probabilities at the ends', () => {
  const atBiases = async (
    biases: readonly number[],
    units: number,
    loss: LossName,
    layers: readonly (readonly [string, Record<string, unknown>])[],
    target = labels(),
  ) => {
    const loaded = await loadedEngine({ model: sequential(...layers), loss }, undefined, formatOf(target));
    loaded.flat.fill(0);
    loaded.flat.set(biases, 4 * units);
    loaded.engine.load(loaded.flat);
    const batch = { inputs: [new Float32Array(4)], targets: [Float32Array.of(1)], count: 1 };
    const { out, sums } = step(loaded, batch);
    const evaluated = loaded.engine.evaluate(batch).metricSums;
    loaded.engine.dispose();
    return { gradient: [...out.subarray(4 * units)], sums, evaluated };
  };
  const denseOf = (units: number, activation: string) => ['Dense', { units, activation, batch_input_shape: [null, 4] }] as const;

  // keras.losses.SparseCategoricalCrossentropy(from_logits=True) of [40, 0, 0] and label 1 is 40, of [200, 0, -200] 200.
  it.each([
    ['sparseCategoricalCrossentropy', [denseOf(CLASSES, 'softmax')]],
    ['categoricalCrossentropy', [denseOf(CLASSES, 'softmax')]],
    ['sparseCategoricalCrossentropy', [denseOf(CLASSES, 'linear'), ['Softmax', { axis: -1 }]]],
    ['categoricalCrossentropy', [denseOf(CLASSES, 'linear'), ['Activation', { activation: 'softmax' }]]],
  ] as const)('%s is trained from the logits of its softmax', async (loss, layers) => {
    for (const biases of [
      [40, 0, 0],
      [200, 0, -200],
    ]) {
      const { gradient, sums, evaluated } = await atBiases(biases, CLASSES, loss, [...layers]);
      expect(sums[0]).toBeCloseTo(biases[0]!, 4);
      expect(gradient.map((value) => value + 0)).toEqual([1, -1, 0].map((value) => expect.closeTo(value, 5) as number));
      // What is evaluated are the probabilities that the model gives.
      expect(evaluated[0]).toBeCloseTo(-Math.log(EPSILON), 2);
    }
  });

  it('binaryCrossentropy is trained from the logits of its sigmoid', async () => {
    const yes: TargetField = { name: 'yes', kind: 'classes', shape: [], classes: 2 };
    const { gradient, sums } = await atBiases([-40], 1, 'binaryCrossentropy', [denseOf(1, 'sigmoid')], yes);
    expect(sums).toEqual([expect.closeTo(40, 4), 0, 1]);
    expect(gradient[0]).toBeCloseTo(-1, 5);
  });

  it.each([
    ['sparseCategoricalCrossentropy', 'sigmoid'],
    ['categoricalCrossentropy', 'sigmoid'],
  ] as const)('%s after %s clips them, without a gradient', async (loss, activation) => {
    const { gradient } = await atBiases([200, -200, -200], CLASSES, loss, [denseOf(CLASSES, activation)]);
    expect(gradient.every((value) => Math.abs(value) < 1e-6)).toBe(true);
  });

  it('are taken for logits when the spec says so', async () => {
    const dense = (activation: string) => sequential(['Dense', { units: CLASSES, activation, batch_input_shape: [null, 4] }]);
    const of: Case = { loss: 'sparseCategoricalCrossentropy', target: labels(), activation: 'softmax', units: CLASSES };
    const forced = await loadedEngine({ model: dense('softmax'), lossFromLogits: true }, undefined, formatOf(labels()));
    const batch = batchFor(of);
    const logits = LOGIT_FORMULAE.sparseCategoricalCrossentropy!;
    const told = step(forced, batch).sums[0]!;
    const taken = step(await load(of), batch).sums[0]!;
    expect(Math.abs(told - taken)).toBeGreaterThan(0.01);
    expect(told).toBeGreaterThan(COUNT * logits([1, 0, 0], [1, 0, 0], {}));
  });

  it.each([
    ['a Softmax layer', ['Softmax', {}]],
    ['an Activation', ['Activation', { activation: 'softmax' }]],
    ['a softmax in front of a Reshape', ['Reshape', { target_shape: [CLASSES] }]],
  ] as const)('%s at the end is seen', async (_, last) => {
    const [first, second] = last[0] === 'Reshape' ? ['softmax', last] : ['linear', last];
    const model = sequential(['Dense', { units: CLASSES, activation: first, batch_input_shape: [null, 4] }], [second[0], { ...second[1] }]);
    const loaded = await loadedEngine({ model }, undefined, formatOf(labels()));
    const of: Case = { loss: 'sparseCategoricalCrossentropy', target: labels(), activation: 'softmax', units: CLASSES };
    expect(step(loaded, batchFor(of)).sums[0]).toBeCloseTo(expectedLoss(of, loaded.flat, batchFor(of)), 4);
  });
});

describe('metrics', () => {
  it('are the accuracy of classes and the mean absolute error of values, when the spec names none', async () => {
    const classes = await load(CASES[0]!);
    const regression = await load({ loss: 'meanSquaredError', target: values(2), activation: 'linear', units: 2 });
    expect([classes.engine.metricNames, regression.engine.metricNames]).toEqual([
      ['loss', 'accuracy', 'accuracy'],
      ['loss', 'meanAbsoluteError', 'meanAbsoluteError'],
    ]);
  });

  it('follow their definitions', async () => {
    const dense = (units: number) => sequential(['Dense', { units, batch_input_shape: [null, 4] }]);
    const metrics = ['accuracy', 'meanAbsoluteError', 'meanSquaredError'] as const;
    const scoreOf = async (target: TargetField, units: number, loss: LossName, bias: number[], targets: number[], count: number) => {
      const loaded = await loadedEngine({ model: dense(units), loss, metrics: [...metrics] }, undefined, formatOf(target));
      loaded.flat.fill(0);
      loaded.flat.set(bias, 4 * units);
      loaded.engine.load(loaded.flat);
      const { metricSums } = loaded.engine.evaluate({
        inputs: [new Float32Array(4 * count)],
        targets: [Float32Array.from(targets)],
        count,
      });
      loaded.engine.dispose();
      // Of each what is added; behind it stands of how many.
      return [1, 3, 5].map((at) => metricSums[at]);
    };
    // Classes: the largest output is at the label; errors of the probabilities against its one-hot form.
    const [a, b, c] = [0, 2, 1].map((logit) => Math.exp(logit) / (1 + Math.exp(2) + Math.exp(1))) as [number, number, number];
    const errors = [a, 1 - b, c, a, b, 1 - c];
    const [absolute, squared] = [1, 2].map((power) => errors.reduce((sum, error) => sum + error ** power, 0) / 3) as [number, number];
    expect(await scoreOf(labels(), 3, 'sparseCategoricalCrossentropy', [0, 2, 1], [1, 2], 2)).toEqual(
      [1, absolute, squared].map((value) => expect.closeTo(value, 5) as number),
    );
    // One logit is right above 0 for a target of 1.
    const yes: TargetField = { name: 'yes', kind: 'classes', shape: [], classes: 2 };
    expect((await scoreOf(yes, 1, 'binaryCrossentropy', [0.25], [1, 0, 1], 3))[0]).toBe(2);
    // An output of a squared error is right above 0.5.
    for (const loss of ['meanSquaredError', 'meanAbsoluteError'] as const)
      expect((await scoreOf(yes, 1, loss, [0.25], [1, 0, 1], 3))[0]).toBe(1);
    // Several values: the largest output is at the largest target.
    expect((await scoreOf(values(3), 3, 'categoricalCrossentropy', [0, 2, 1], [0.1, 0.8, 0.1, 0.5, 0.2, 0.3], 2))[0]).toBe(1);
  });

  it('refuse accuracy where nothing is classified', async () => {
    const model = sequential(['Dense', { units: 2, batch_input_shape: [null, 4] }]);
    const spec = specOf({ model, loss: 'mse' as never, metrics: ['acc' as never] });
    await expect(describeModel(spec, formatOf(values(2)))).rejects.toMatchObject({ path: 'metrics' });
  });
});

describe('what does not go together is refused', () => {
  const dense = (units: number) => sequential(['Dense', { units, batch_input_shape: [null, 4] }]);
  it.each([
    ['classes for a loss of values', dense(3), 'sparseCategoricalCrossentropy', values(3), 'takes classes'],
    ['as many outputs as there are no classes', dense(4), 'sparseCategoricalCrossentropy', labels(), 'must deliver [3]'],
    ['one output for a categorical loss', dense(1), 'sparseCategoricalCrossentropy', { ...labels(), classes: 2 }, 'binaryCrossentropy'],
    ['outputs of another size', dense(3), 'meanSquaredError', values(2), 'the target value is [2]'],
  ] as const)('%s', async (_, model, loss, target, message) => {
    await expect(describeModel(specOf({ model, loss }), formatOf(target as TargetField))).rejects.toThrow(message);
  });
});
