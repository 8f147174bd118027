/** The models of the zoo for rows of several kinds: parameters by the formulas of Keras, and a step of training. */
import type { InputField, MODEL_ZOO, RowFormat, TargetField } from '@paceline/spec';
import { describe, expect, it } from 'vitest';
import { describeModel } from '../describe/describe.js';
import { loadedEngine, specOf } from '../run.fixture.js';

type Name = (typeof MODEL_ZOO)[number];

const kind: TargetField = { name: 'y', kind: 'classes', shape: [], classes: 10 };
const rows = (input: Omit<InputField, 'name'>, target: TargetField = kind): RowFormat => ({
  inputs: [Object.assign({ name: 'x' }, input)],
  targets: [target],
  isWeighted: false,
});
const next = (steps: number, classes: number): TargetField => ({ name: 'y', kind: 'classes', shape: [steps], classes });

/** What Keras counts: kernel, bias, scale and shift, and of batch normalisation the averages beside them. */
const dense = (from: number, to: number): number => (from + 1) * to;
const conv = (size: number, from: number, to: number): number => size * size * from * to;
const norm = (width: number): number => 2 * width;
const lstm = (from: number, units: number): number => 4 * units * (from + units + 1);
const gru = (from: number, units: number): number => 3 * units * (from + units + 2);
const attention = (width: number): number => 4 * dense(width, width);
const block = (width: number): number => 2 * norm(width) + attention(width) + dense(width, 4 * width) + dense(4 * width, width);

const residual = (channels: number): number =>
  conv(3, channels, 16) +
  norm(16) +
  [16, 32, 64].reduce((sum, to, stage) => {
    const from = stage === 0 ? 16 : to / 2;
    const shortcut = stage === 0 ? 0 : conv(1, from, to) + norm(to);
    return sum + conv(3, from, to) + conv(3, to, to) + 2 * norm(to) + shortcut;
  }, 0);
const separable = (from: number, to: number): number => 9 * from + norm(from) + conv(1, from, to) + norm(to);
const mobile = (channels: number): number =>
  conv(3, channels, 16) + norm(16) + separable(16, 32) + separable(32, 64) + separable(64, 64) + separable(64, 128) + separable(128, 128);

const CASES: readonly (readonly [Name, string, RowFormat, number])[] = [
  ['linear', 'images', rows({ shape: [28, 28, 1] }), dense(784, 10)],
  ['lenet', 'images of 28 × 28', rows({ shape: [28, 28, 1] }), 61_706],
  ['lenet', 'colour images of 32 × 32', rows({ shape: [32, 32, 3] }), 62_006],
  ['resnet', 'images of 28 × 28', rows({ shape: [28, 28, 1] }), residual(1) + dense(64, 10)],
  ['resnet', 'colour images of 32 × 32', rows({ shape: [32, 32, 3] }), residual(3) + dense(64, 10)],
  ['mobilenet', 'images of 28 × 28', rows({ shape: [28, 28, 1] }), mobile(1) + dense(128, 10)],
  ['mobilenet', 'colour images of 32 × 32', rows({ shape: [32, 32, 3] }), mobile(3) + dense(128, 10)],
  ['lstm', 'texts', rows({ shape: [12], ids: 50 }), 50 * 32 + lstm(32, 64) + dense(64, 10)],
  ['lstm', 'numbers', rows({ shape: [12] }), lstm(1, 64) + dense(64, 10)],
  ['lstm', 'the next token', rows({ shape: [12], ids: 50 }, next(12, 50)), 50 * 32 + lstm(32, 64) + dense(64, 50)],
  ['gru', 'texts', rows({ shape: [12], ids: 50 }), 50 * 32 + gru(32, 64) + dense(64, 10)],
  ['gru', 'several numbers', rows({ shape: [12, 3] }), gru(3, 64) + dense(64, 10)],
  [
    'transformer',
    'the next token',
    rows({ shape: [12], ids: 50 }, next(12, 50)),
    (50 + 12) * 128 + 2 * block(128) + norm(128) + dense(128, 50),
  ],
  ['transformer', 'texts', rows({ shape: [12], ids: 50 }), (50 + 12) * 128 + 2 * block(128) + norm(128) + dense(128, 10)],
];

it.each(CASES)(
  '%s for %s has the parameters of Keras; a step lowers its loss, has the same bits again and leaves nothing behind',
  async (model, _, format, parameters) => {
    const { description, layout, engine, flat } = await loadedEngine({ model }, undefined, format);
    expect(description.parameterCount).toBe(parameters);
    const [field, target] = [format.inputs[0]!, format.targets[0]!];
    const length = field.shape.reduce((product, n) => product * n, 1);
    const labels = target.shape.reduce((product, n) => product * n, 1);
    const count = 4;
    const values = Float32Array.from({ length: count * length }, (__, i) =>
      field.ids === undefined ? Math.sin(i * 12.9898) : (i * 7) % field.ids,
    );
    const batch = { inputs: [values], targets: [Float32Array.from({ length: count * labels }, (__, i) => (i * 3) % 10)], count };
    const gradient = new Float32Array(layout.totalLength);
    const step = (): number => engine.step({ round: 0, replica: 0, batches: [batch], out: gradient }).metricSums[0]!;
    const before = step();
    expect(Number.isFinite(before) && gradient.every(Number.isFinite)).toBe(true);
    const [bits, held] = [Buffer.from(gradient.slice().buffer), engine.memory()];
    step();
    expect(bits.equals(Buffer.from(gradient.buffer)), 'the same bits again').toBe(true);
    expect(engine.memory()).toEqual(held);
    engine.load(flat.map((value, i) => (i < layout.trainableLength ? value - 0.002 * gradient[i]! : value)));
    expect(step()).toBeLessThan(before);
    engine.dispose();
  },
);

describe('is refused, with what the data has:', () => {
  it.each<[Name, RowFormat, RegExp]>([
    ['lenet', rows({ shape: [784] }), /lenet needs images .*\[784\]/],
    ['resnet', rows({ shape: [6, 6, 1] }), /8 × 8 or more; those of the data are 6 × 6/],
    ['lstm', rows({ shape: [28, 28, 1] }), /needs a sequence.*\[28, 28, 1\]/],
    ['transformer', rows({ shape: [20] }), /encode: ids/],
    [
      'gru',
      {
        ...rows({ shape: [20] }),
        inputs: [
          { name: 'a', shape: [3] },
          { name: 'b', shape: [4] },
        ],
      },
      /one input.*\[3\] and \[4\]/,
    ],
  ])('%s', async (model, format, message) => {
    await expect(describeModel(specOf({ model }), format)).rejects.toThrow(message);
  });
});
