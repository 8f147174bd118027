import type { RowFormat, TargetField } from '@paceline/spec';
import { createMetricPlan } from '@paceline/learning';
import * as tf from '@tensorflow/tfjs-core';
import '@tensorflow/tfjs-backend-cpu';
import { describe, expect, it } from 'vitest';
import type { Batch, Engine } from '../engine.js';
import { FORMULAE, LOGIT_FORMULAE, sum } from '../loss/loss-formulae.fixture.js';
import { differentiableLoss, type Scoring } from '../loss/loss.js';
import { loadedEngine, sequential, type Loaded } from '../run.fixture.js';
import { lossInOperations } from '../backends/webgpu/loss-operations.js';

const [STEPS, WIDTH, COUNT] = [4, 2, 3];
const NONE = Number.NaN;
const format = (target: TargetField, isWeighted = false): RowFormat => ({
  inputs: [{ name: 'x', shape: [STEPS, WIDTH] }],
  targets: [target],
  isWeighted,
});
const CLASSES: TargetField = { name: 'tag', kind: 'classes', shape: [STEPS], classes: 3 };
const PADDED: TargetField = Object.assign({}, CLASSES, { isPadded: true as const });
const VALUES: TargetField = { name: 'y', kind: 'values', shape: [STEPS, 3], isPadded: true };

// The same name begins with the same weights.
const steps = ['Dense', { name: 'out', units: 3, batch_input_shape: [null, STEPS, WIDTH] }] as const;
const masking = ['Masking', { mask_value: 0, batch_input_shape: [null, STEPS, WIDTH] }] as const;
const out = ['Dense', { name: 'out', units: 3 }] as const;

/** Lengths 4, 2 and 1; zeros where an example is over. */
const LENGTHS = [4, 2, 1];
const isThere = (row: number): boolean => row % STEPS < LENGTHS[Math.floor(row / STEPS)]!;
const inputs = [Float32Array.from({ length: COUNT * STEPS * WIDTH }, (_, i) => (isThere(Math.floor(i / WIDTH)) ? Math.sin(i * 7 + 1) : 0))];
const labels = Float32Array.from({ length: COUNT * STEPS }, (_, row) => (isThere(row) ? row % 3 : NONE));
const batch: Batch = { inputs, targets: [labels], count: COUNT };

const step = ({ engine, layout }: Loaded, of: Batch) => {
  const gradient = new Float32Array(layout.totalLength);
  return Object.assign(engine.step({ round: 0, replica: 0, batches: [of], out: gradient }), { gradient });
};
const engines = ['wasm', 'cpu'] as const;

/** Per step that is there: the outputs of one Dense layer. */
function outputsOf(flat: Float32Array): number[][] {
  return Array.from({ length: COUNT * STEPS }, (_, row) =>
    [0, 1, 2].map((u) => sum([0, 1].map((i) => inputs[0]![row * WIDTH + i]! * flat[i * 3 + u]!)) + flat[WIDTH * 3 + u]!),
  );
}
const oneHot = (label: number): number[] => [0, 1, 2].map((c) => Number(c === label));
/** As reduce_weighted_values of Keras 3 with sum_over_batch_size: over the rows that count, by their number. */
const meanOver = (rows: readonly number[], of: (row: number) => number): number => sum(rows.map(of)) / rows.length;
const THERE = [...labels.keys()].filter(isThere);

describe.each(engines)('padding on %s', (engine) => {
  it('of labels counts neither in the loss nor in its gradient nor in the accuracy', async () => {
    const loaded = await loadedEngine({ model: sequential(steps), engine }, undefined, format(PADDED));
    const rows = outputsOf(loaded.flat);
    const result = step(loaded, batch);
    const mean = meanOver(THERE, (row) => LOGIT_FORMULAE.sparseCategoricalCrossentropy!(rows[row]!, oneHot(labels[row]!), {}));
    expect(result.metricSums[0]! / COUNT).toBeCloseTo(mean, 5);
    const right = (row: number): number => Number(rows[row]!.indexOf(Math.max(...rows[row]!)) === labels[row]);
    expect(result.metricSums.slice(1)).toEqual([sum(THERE.map(right)), THERE.length]);
    expect(loaded.engine.evaluate(batch).metricSums).toEqual(result.metricSums.map((value) => expect.closeTo(value, 5) as number));
    // What stands in the inputs of padded steps changes nothing.
    const other = inputs[0]!.map((value, i) => (isThere(Math.floor(i / WIDTH)) ? value : 5 - i));
    const again = step(loaded, { ...batch, inputs: [other] });
    expect([again.metricSums, again.gradient]).toEqual([result.metricSums, result.gradient]);
    loaded.engine.dispose();
  });

  it('of values is masked too, times the weights of the examples', async () => {
    const loaded = await loadedEngine({ model: sequential(steps), loss: 'huber', engine }, undefined, format(VALUES, true));
    const rows = outputsOf(loaded.flat);
    const values = Float32Array.from({ length: COUNT * STEPS * 3 }, (_, i) => (isThere(Math.floor(i / 3)) ? Math.cos(i) : NONE));
    const weights = Float32Array.of(0.5, 2, 0);
    const { metricSums, gradient } = step(loaded, { inputs, targets: [values], weights, count: COUNT });
    const mean = meanOver(
      THERE,
      (row) => weights[Math.floor(row / STEPS)]! * FORMULAE.huber(rows[row]!, [...values.subarray(row * 3, row * 3 + 3)], {}),
    );
    expect(metricSums[0]! / COUNT).toBeCloseTo(mean, 5);
    expect(gradient.every(Number.isFinite)).toBe(true);
    loaded.engine.dispose();
  });

  it('found by a Masking layer reaches the loss through the layers behind it', async () => {
    const known = labels.map((label) => (Number.isNaN(label) ? 0 : label));
    const masked = await loadedEngine({ model: sequential(masking, out), engine }, undefined, format(CLASSES));
    const padded = await loadedEngine({ model: sequential(steps), engine }, undefined, format(PADDED));
    const [a, b] = [step(masked, { ...batch, targets: [known] }), step(padded, batch)];
    expect(a.metricSums).toEqual(b.metricSums.map((value) => expect.closeTo(value, 6) as number));
    a.gradient.forEach((value, i) => expect(value).toBeCloseTo(b.gradient[i]!, 6));
    expect(masked.engine.evaluate({ ...batch, targets: [known] }).metricSums[0]).toBeCloseTo(a.metricSums[0]!, 5);
    // Both together: what either of them leaves out.
    const both = await loadedEngine({ model: sequential(masking, out), engine }, undefined, format(PADDED));
    const c = step(both, { ...batch, targets: [labels.map((label, row) => (row === 0 ? NONE : label))] });
    const rows = outputsOf(both.flat);
    const mean = meanOver(THERE.slice(1), (row) => LOGIT_FORMULAE.sparseCategoricalCrossentropy!(rows[row]!, oneHot(labels[row]!), {}));
    expect(c.metricSums[0]! / COUNT).toBeCloseTo(mean, 5);
    for (const each of [masked, padded, both]) each.engine.dispose();
  });

  it('of everything leaves no loss and no gradient, and tensors do not pile up', async () => {
    const loaded = await loadedEngine({ model: sequential(masking, out), engine }, undefined, format(PADDED));
    const nothing = { inputs: [new Float32Array(inputs[0]!.length)], targets: [new Float32Array(labels.length).fill(NONE)], count: COUNT };
    const { metricSums, gradient } = step(loaded, nothing);
    expect(metricSums).toEqual([0, 0, 0]);
    expect(gradient.every((value) => value === 0)).toBe(true);
    const tensors = (of: Engine): number => of.memory().tensors;
    step(loaded, batch);
    const before = tensors(loaded.engine);
    step(loaded, batch);
    loaded.engine.evaluate(batch);
    expect(tensors(loaded.engine)).toBe(before);
    loaded.engine.dispose();
  });
});

it('a mask of an Embedding passes a recurrent layer that gives every step', async () => {
  const ids = Float32Array.of(3, 1, 2, 4, 2, 1, 0, 0, 4, 0, 0, 0);
  const embedding = ['Embedding', { input_dim: 5, output_dim: 3, mask_zero: true, input_length: STEPS }] as const;
  const model = (last: boolean) =>
    sequential([embedding[0], { ...embedding[1], batch_input_shape: [null, STEPS] }], ['LSTM', { units: 4, return_sequences: last }], out);
  const rows = { inputs: [{ name: 'x', shape: [STEPS] }], isWeighted: false };
  const known = labels.map((label) => (Number.isNaN(label) ? 0 : label));
  const every = await loadedEngine({ model: model(true) }, undefined, { ...rows, targets: [CLASSES] });
  const padded = await loadedEngine({ model: model(true) }, undefined, { ...rows, targets: [PADDED] });
  const of = { inputs: [ids], count: COUNT };
  expect(step(every, { ...of, targets: [known] }).metricSums).toEqual(step(padded, { ...of, targets: [labels] }).metricSums);
  // A layer that gives its last step ends the mask.
  const last = await loadedEngine({ model: model(false) }, undefined, { ...rows, targets: [{ ...CLASSES, shape: [] }] });
  expect(step(last, { ...of, targets: [Float32Array.of(1, 2, 0)] }).metricSums[0]).toBeGreaterThan(0);
  for (const each of [every, padded, last]) each.engine.dispose();
});

describe('as Keras 3 writes them into a functional model', () => {
  const tensor = (...history: unknown[]) => ({
    class_name: '__keras_tensor__',
    config: { shape: [null], dtype: 'float32', keras_history: history },
  });
  const on = (
    class_name: string,
    name: string,
    config: object,
    args: readonly unknown[],
    kwargs: object = {},
    module = 'keras.layers',
  ) => ({
    module,
    class_name,
    name,
    config: { name, ...config },
    registered_name: null,
    inbound_nodes: [{ args, kwargs }],
  });
  const OPS = 'keras.src.ops.numpy';
  const input = (shape: readonly number[]) => ({
    module: 'keras.layers',
    class_name: 'InputLayer',
    name: 'in',
    config: { name: 'in', batch_shape: [null, ...shape] },
    inbound_nodes: [],
  });
  const model = (layers: readonly object[], out: string) => ({
    topology: { class_name: 'Functional', config: { layers, input_layers: ['in', 0, 0], output_layers: [out, 0, 0] } } as never,
  });
  const given = (source: string) => ({ training: false, mask: tensor(source, 0, 0) });
  const mean = on('GlobalAveragePooling1D', 'out', {}, [tensor('steps', 0, 0)], given('mask'));
  const embedding = on('Embedding', 'steps', { input_dim: 5, output_dim: 3, mask_zero: true }, [tensor('in', 0, 0)]);
  const compared = on('NotEqual', 'mask', {}, [tensor('in', 0, 0), 0], {}, OPS);
  const values: RowFormat = {
    inputs: [{ name: 'in', shape: [STEPS] }],
    targets: [{ name: 'out', kind: 'values', shape: [3] }],
    isWeighted: false,
  };

  it('the mean over the steps of a text leaves padding out, and is 0 for a text of nothing else', async () => {
    const loaded = await loadedEngine(
      { model: model([input([STEPS]), embedding, compared, mean], 'out'), loss: 'meanSquaredError' },
      undefined,
      values,
    );
    const ids = [3, 1, 2, 4, 2, 1, 0, 0, 0, 0, 0, 0];
    const targets = [new Float32Array(COUNT * 3)];
    const { metricSums, gradient } = step(loaded, { inputs: [Float32Array.from(ids)], targets, count: COUNT });
    const lossOf = (flat: Float32Array): number =>
      sum(
        [0, 1, 2].flatMap((row) => {
          const there = ids.slice(row * STEPS, (row + 1) * STEPS).filter((id) => id !== 0);
          return [0, 1, 2].map((c) => (there.length === 0 ? 0 : sum(there.map((id) => flat[id * 3 + c]!)) / there.length) ** 2 / 3);
        }),
      );
    expect(metricSums[0]).toBeCloseTo(lossOf(loaded.flat), 6);
    loaded.flat.forEach((value, i) => {
      const moved = (by: number) => lossOf(loaded.flat.map((one, j) => (i === j ? value + by : one)));
      expect(gradient[i]).toBeCloseTo((moved(1e-3) - moved(-1e-3)) / 2e-3, 4);
    });
    loaded.engine.dispose();
  });

  it('a Masking layer, whose mask an LSTM passes on', async () => {
    const lstm = (last: boolean) => ({ units: 3, return_sequences: last });
    const layers = [
      on('NotEqual', 'compared', {}, [tensor('in', 0, 0), 0.0], {}, OPS),
      on('Masking', 'steps', { mask_value: 0.0 }, [tensor('in', 0, 0)]),
      on('Any', 'mask', { axis: -1, keepdims: false }, [tensor('compared', 0, 0)], {}, OPS),
      on('LSTM', 'first', lstm(true), [tensor('steps', 0, 0)], given('mask')),
      on('LeakyReLU', 'leaky', { negative_slope: 0.2 }, [tensor('first', 0, 0)]),
      on('LSTM', 'out', lstm(false), [tensor('leaky', 0, 0)], given('mask')),
    ];
    const format = { ...values, inputs: [{ name: 'in', shape: [STEPS, WIDTH] }] };
    const loaded = await loadedEngine(
      { model: model([input([STEPS, WIDTH]), ...layers], 'out'), loss: 'meanSquaredError' },
      undefined,
      format,
    );
    const of = (x: Float32Array) => step(loaded, { inputs: [x], targets: [new Float32Array(COUNT * 3)], count: COUNT }).metricSums[0];
    // Steps that are all zeros change nothing, wherever they stand.
    const moved = inputs[0]!.slice();
    moved.copyWithin(4 * WIDTH + WIDTH, 4 * WIDTH, 4 * WIDTH + 2 * WIDTH);
    moved.fill(0, 4 * WIDTH, 4 * WIDTH + WIDTH);
    expect(moved).not.toEqual(inputs[0]);
    expect(of(moved)).toBe(of(inputs[0]!));
    loaded.engine.dispose();
  });

  const NONE_GIVEN = { training: false, mask: null };
  const pooled = on('GlobalAveragePooling1D', 'out', {}, [tensor('met', 0, 0)], NONE_GIVEN);
  const plain = on('Embedding', 'plain', { input_dim: 5, output_dim: 3 }, [tensor('in', 0, 0)]);
  const pair = (other: string) => [tensor('steps', 0, 0), tensor(other, 0, 0)];
  const { module: _none, ...sumOfH5 } = on('Add', 'met', {}, pair('plain'));
  it.each<[string, readonly object[]]>([
    ['Add of a tensor with a mask and one without', [on('Add', 'met', {}, [pair('plain')])]],
    ['Average of them', [on('Average', 'met', {}, [pair('plain')])]],
    ['Subtract of them', [on('Subtract', 'met', {}, [pair('plain')])]],
    [
      'the operation +, of tensors of one mask',
      [on('Dense', 'same', { units: 3 }, [tensor('steps', 0, 0)]), on('Add', 'met', {}, pair('same'), {}, OPS)],
    ],
    ['the operation + of an .h5 file, which says no module', [sumOfH5]],
    ['the operation *', [on('Multiply', 'met', {}, pair('plain'), {}, OPS)]],
  ])('behind %s there is no mask', async (_, layers) => {
    const sumsOf = async (mask_zero: boolean) => {
      const made = on('Embedding', 'steps', { input_dim: 5, output_dim: 3, mask_zero }, [tensor('in', 0, 0)]);
      const others = JSON.stringify(layers).includes('"plain",0,0') ? [plain, ...layers] : layers;
      const of = { model: model([input([STEPS]), made, ...others, pooled], 'out'), loss: 'meanSquaredError' as const };
      const loaded = await loadedEngine(of, undefined, values);
      const ids = Float32Array.of(3, 1, 2, 4, 2, 1, 0, 0, 4, 0, 0, 0);
      const { metricSums } = step(loaded, { inputs: [ids], targets: [new Float32Array(COUNT * 3)], count: COUNT });
      loaded.engine.dispose();
      return metricSums;
    };
    expect(await sumsOf(true)).toEqual(await sumsOf(false));
  });

  it.each<[string, readonly object[], string, string]>([
    [
      'a mask of other values',
      [embedding, { ...compared, inbound_nodes: [{ args: [tensor('in', 0, 0), 7], kwargs: {} }] }, mean],
      'inbound_nodes',
      'called with "mask"',
    ],
    [
      'a comparison that is no mask',
      [embedding, compared, on('Dense', 'out', { units: 3 }, [tensor('mask', 0, 0)])],
      'inbound_nodes',
      'a comparison',
    ],
    [
      'a mask that does not arrive',
      [
        embedding,
        compared,
        on('Conv1D', 'conv', { filters: 3, kernel_size: 1 }, [tensor('steps', 0, 0)]),
        on('GlobalAveragePooling1D', 'out', {}, [tensor('conv', 0, 0)], given('mask')),
      ],
      'inbound_nodes',
      'no layer in front of it passes on',
    ],
    [
      'a mask that Keras has not',
      [embedding, mean].map((layer) => ({
        ...layer,
        inbound_nodes: [{ ...layer.inbound_nodes[0], kwargs: layer === mean ? NONE_GIVEN : {} }],
      })),
      'inbound_nodes',
      'called without a mask in Keras',
    ],
    ...['Multiply', 'Maximum', 'Minimum'].map((name): [string, readonly object[], string, string] => [
      `${name} of a tensor with a mask and one without`,
      [embedding, plain, on(name, 'met', {}, [pair('plain')]), pooled],
      'layers.3',
      'one tensor has a mask and another has none',
    ]),
    [
      'an operation on tensors of different ranks',
      [
        plain,
        on('GlobalMaxPooling1D', 'last', {}, [tensor('plain', 0, 0)]),
        on('Add', 'sum', {}, [tensor('plain', 0, 0), tensor('last', 0, 0)], {}, OPS),
        on('GlobalMaxPooling1D', 'out', {}, [tensor('sum', 0, 0)]),
      ],
      'layers.3.inbound_nodes',
      'different ranks',
    ],
    [
      'a number in the place of a tensor',
      [embedding, on('Add', 'out', {}, [tensor('steps', 0, 0), 0.5])],
      'inbound_nodes.0',
      'no tensor of the model',
    ],
  ])('%s is refused', async (_, layers, path, message) => {
    const refused = { path: expect.stringContaining(path) as string, message: expect.stringContaining(message) as string };
    const made = loadedEngine({ model: model([input([STEPS]), ...layers], 'out'), loss: 'meanSquaredError' }, undefined, values);
    await expect(made.then(() => 'taken')).rejects.toMatchObject(refused);
  });
});

it('a label that is none is refused where the target is not padded', async () => {
  const loaded = await loadedEngine({ model: sequential(steps) }, undefined, format(CLASSES));
  expect(() => step(loaded, batch)).toThrow('label NaN of example 1 is not one of the 3 classes');
  loaded.engine.dispose();
});

describe('as operations of tf.js', () => {
  const reads = { values: (tensor: tf.TensorInfo) => (tensor as tf.Tensor).dataSync() as Float32Array };
  const output = Object.assign({ name: 'out', shape: [STEPS, 3], index: 0, field: 0, loss: 'huber' as const, lossOptions: {} }, { fromLogits: false, weight: 0.5, width: 3, positions: STEPS }); // oxfmt-ignore
  const values = Float32Array.from({ length: COUNT * STEPS * 3 }, (_, i) => (isThere(Math.floor(i / 3)) ? Math.cos(i) : NONE));
  const known = values.map((value) => (Number.isNaN(value) ? 9 : value));
  const mask = Float32Array.from({ length: COUNT * STEPS }, (_, row) => Number(row % STEPS !== 1));
  const weights = Float32Array.of(0.5, 2, 0);
  const plain = { name: 'y', kind: 'values' as const, shape: [STEPS, 3] };

  it.each([
    ['padding', VALUES, values, undefined, undefined],
    ['a mask', plain, known, mask, undefined],
    ['padding, a mask and weights', VALUES, values, mask, weights],
    ['a mask of nothing', VALUES, values, new Float32Array(mask.length), weights],
    ['weights alone', plain, known, undefined, weights],
  ])('the gradient with %s is the same', async (_, target, targets, given, ofExamples) => {
    await tf.setBackend('cpu');
    const scoring: Scoring = { output: Object.assign({}, output, { target }), targets, weights: ofExamples };
    const plan = createMetricPlan({}, format(target), [output]);
    const x = tf.tensor3d(known.map(Math.sin), [COUNT, STEPS, 3]);
    const steps = given && tf.tensor2d(given, [COUNT, STEPS]);
    const operations = tf
      .grad((of) => lossInOperations(scoring, of, undefined, steps))(x)
      .dataSync();
    const sums = new Float64Array(plan.sumNames.length);
    const loops = tf
      .grad((of) => differentiableLoss({ ...scoring, mask: given }, plan, reads, of, sums))(x)
      .dataSync();
    loops.forEach((value, i) => expect(operations[i]).toBeCloseTo(value, 6));
    expect(sums.every(Number.isFinite)).toBe(true);
  });
});

it('a loss that is no number leaves no gradient that looks like one', async () => {
  const model = sequential(['Dense', { units: 2, batch_input_shape: [null, 2] }]);
  const rows: RowFormat = { inputs: [{ name: 'x', shape: [2] }], targets: [{ name: 'y', kind: 'values', shape: [2] }], isWeighted: false };
  const loaded = await loadedEngine({ model, loss: 'poisson' }, undefined, rows);
  loaded.flat.fill(-1);
  loaded.engine.load(loaded.flat);
  const { metricSums, gradient } = step(loaded, { inputs: [Float32Array.of(1, 1)], targets: [Float32Array.of(1, 2)], count: 1 });
  expect([Number.isFinite(metricSums[0]), gradient.every(Number.isFinite)]).toEqual([false, false]);
  loaded.engine.dispose();
});
