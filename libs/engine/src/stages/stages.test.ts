/** A model in stages against the same model in one engine: the same bits. */
import { layoutOfPart, type Layout } from '@paceline/learning';
import { MODEL_ZOO, type LayerTopology, type RunSpecInput } from '@paceline/spec';
import * as tf from '@tensorflow/tfjs-core';
import { describe, expect, it } from 'vitest';
import type { Batch } from '../engine.js';
import { batchOf, bitsOf, IMAGES, loadedEngine, sequential, specOf } from '../run.fixture.js';
import type { StageCuts } from './cut-model.js';
import { createStageEngine, describeStages, type StageEngine } from './stage-engine.js';

const KEY = { round: 3, replica: 1 };
const sizeOf = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);

async function staged(input: RunSpecInput, cuts: StageCuts) {
  const loaded = await loadedEngine(input);
  const backend = loaded.engine.name;
  const { spec, description, layout, flat } = loaded;
  const { stages } = await describeStages(spec, IMAGES, cuts);
  const engines: Staged[] = [];
  for (const [index, { variables }] of stages.entries()) {
    const own = layoutOfPart(description, variables);
    const engine = await createStageEngine({ spec, format: IMAGES, layout: own, cuts, index, backend });
    const places = own.variables.map(({ path, offset, length }) => ({ own: offset, length, whole: placeOf(layout, path) }));
    const values = new Float32Array(own.totalLength);
    for (const place of places) values.set(flat.subarray(place.whole, place.whole + place.length), place.own);
    engine.load(values);
    const write = (from: Float32Array, into: Float32Array): void => {
      for (const place of places) into.set(from.subarray(place.own, place.own + place.length), place.whole);
    };
    engines.push(Object.assign(engine, { length: own.totalLength, write }));
  }
  return { ...loaded, stages, engines };
}

/** `write`: from a vector of the stage to where its variables lie in the whole model. */
type Staged = StageEngine & { readonly length: number; readonly write: (from: Float32Array, into: Float32Array) => void };

const placeOf = (layout: Layout, path: string): number => layout.variables.find((variable) => variable.path === path)!.offset;

/** One step over all stages, in their order and back. */
function step(engines: readonly Staged[], batch: Batch, length: number) {
  const boundaries: Float32Array[] = [];
  const batchAt = (i: number): Batch => ({
    ...batch,
    inputs: [...(i === 0 ? [] : [boundaries[i - 1]!]), ...engines[i]!.fields.map((field) => batch.inputs[field]!)],
  });
  for (const [i, engine] of engines.slice(0, -1).entries()) {
    boundaries.push(new Float32Array(batch.count * sizeOf(engine.stage.passed!)));
    // What is passed on is read when the gradients come back, and the rows are others by then.
    const inputs = batchAt(i).inputs.map((input) => input.slice());
    engine.pass(KEY, { ...batchAt(i), inputs }, boundaries[i]!);
    for (const input of inputs) input.fill(7);
  }
  const whole = new Float32Array(length).fill(7);
  let [loss, passed]: [number, Float32Array | undefined] = [0, undefined];
  for (let i = engines.length - 1; i >= 0; i--) {
    const received = i > 0 ? new Float32Array(boundaries[i - 1]!.length) : undefined;
    const out = new Float32Array(engines[i]!.length).fill(7);
    loss += engines[i]!.gradients(KEY, batchAt(i), { out, passed, received })[0]!;
    engines[i]!.write(out, whole);
    passed = received;
  }
  return { out: whole, loss };
}

async function expectSameBits(input: RunSpecInput, cuts: StageCuts) {
  const { engine, engines, stages, layout, description } = await staged(input, cuts);
  const batch = batchOf(5);
  const out = new Float32Array(layout.totalLength);
  const { metricSums } = engine.step({ ...KEY, batches: [batch], out });
  for (let i = 0; i < 2; i++) {
    const result = step(engines, batch, layout.totalLength);
    expect(bitsOf(result.out).equals(bitsOf(out))).toBe(true);
    expect(result.loss).toBeCloseTo(metricSums[0]!, 10);
  }
  expect(stages.flatMap(({ variables }) => variables).toSorted()).toEqual(description.variables.map(({ path }) => path).toSorted());

  const answers = (values: readonly number[]) => new Float32Array(batch.count * sizeOf(values));
  const expected = answers(description.outputs[0]!.shape);
  engine.predict!(batch, [expected]);
  let [rows, given]: [Float32Array[], Float32Array] = [[], expected];
  for (const [i, stage] of engines.entries()) {
    given = answers(stages[i]!.passed ?? description.outputs[0]!.shape);
    const read = stage.fields.map((field) => batch.inputs[field]!);
    stage.predict({ inputs: [...rows, ...read], count: batch.count }, [given]);
    rows = [given];
  }
  expect(bitsOf(given).equals(bitsOf(expected))).toBe(true);
  for (const each of [engine, ...engines]) each.dispose();
  return stages;
}

const DEEP = sequential(
  [
    'Conv2D',
    {
      filters: 4,
      kernel_size: 3,
      batch_input_shape: [null, 28, 28, 1],
      name: 'conv',
      kernel_regularizer: { class_name: 'L2', config: { l2: 0.01 } },
    },
  ],
  ['BatchNormalization', { name: 'norm' }],
  ['Activation', { activation: 'relu', name: 'relu' }],
  ['MaxPooling2D', { pool_size: 2, name: 'pool' }],
  ['Dropout', { rate: 0.3, name: 'drop' }],
  ['Conv2D', { filters: 3, kernel_size: 3, activation: 'relu', name: 'second' }],
  ['MaxPooling2D', { pool_size: 2, name: 'pool2' }],
  ['Flatten', { name: 'flat' }],
  ['Dense', { units: 12, activation: 'tanh', name: 'hidden', kernel_regularizer: { class_name: 'L1', config: { l1: 0.001 } } }],
  ['GaussianNoise', { stddev: 0.1, name: 'noise' }],
  ['Dense', { units: 10, activation: 'softmax', name: 'out' }],
);

/** A model of layers called on layers. */
const graph = (
  ...nodes: readonly (readonly [className: string, config: Record<string, unknown> & { readonly name: string }, ...from: string[]])[]
): RunSpecInput['model'] => ({
  topology: {
    class_name: 'Model',
    config: {
      layers: nodes.map(([class_name, config, ...from]): LayerTopology =>
        Object.assign(
          { class_name, config, name: config.name },
          { inbound_nodes: from.length === 0 ? [] : [from.map((name) => [name, 0, 0, {}])] },
        ),
      ),
      input_layers: [['image', 0, 0]],
      output_layers: [['out', 0, 0]],
    },
  },
});
const IMAGE = ['InputLayer', { name: 'image', batch_input_shape: [null, 28, 28, 1], dtype: 'float32' }] as const;

describe('a model in stages has the bits of the whole one', () => {
  const CUT = MODEL_ZOO.filter((name) => !['linear', 'lstm', 'gru', 'transformer'].includes(name));
  it.each(CUT)('%s, in two stages', async (model) => {
    await expectSameBits({ model }, { stages: 2 });
  });

  it('with a recurrent layer that drops states, in front', async () => {
    const model = sequential(
      ['Reshape', { name: 'steps', target_shape: [28, 28], batch_input_shape: [null, 28, 28, 1] }],
      ['LSTM', { name: 'first', units: 6, return_sequences: true, dropout: 0.2, recurrent_dropout: 0.3 }],
      ['Bidirectional', { name: 'both', layer: { class_name: 'GRU', config: { units: 4 } } }],
      ['Dense', { name: 'out', units: 10, activation: 'softmax' }],
    );
    await expectSameBits({ model }, { stages: 3 });
  });

  it('on the cpu backend, which keeps the arrays that it is given', async () => {
    await expectSameBits({ model: DEEP, engine: 'cpu' }, { stages: 3 });
  });

  it.each([2, 3])('with batch normalisation, dropout, noise and penalties, in %i stages', async (stages) => {
    await expectSameBits({ model: DEEP }, { stages });
  });

  it('with rows of several replicas under way, and nothing is left behind, also of those that do not come back', async () => {
    const { engine, engines, layout } = await staged({ model: DEEP }, { stages: 2, cutAfter: ['drop'] });
    const [first, last] = engines as [Staged, Staged];
    const batches = [3, 5, 2].map((count, i) => batchOf(count, i + 1));
    const round = (replicas: readonly number[]): void => {
      const boundaries = batches.map(({ count }) => new Float32Array(count * sizeOf(first.stage.passed!)));
      for (const [replica, batch] of batches.entries()) first.pass({ round: 3, replica }, batch, boundaries[replica]!);
      for (const replica of replicas) {
        const [batch, key] = [batches[replica]!, { round: 3, replica }];
        const [out, received] = [new Float32Array(layout.totalLength), new Float32Array(boundaries[replica]!.length)];
        const outs = [first, last].map(({ length }) => new Float32Array(length));
        last.gradients(key, { ...batch, inputs: [boundaries[replica]!] }, { out: outs[1]!, received });
        first.gradients(key, batch, { out: outs[0]!, passed: received });
        for (const [i, stage] of [first, last].entries()) stage.write(outs[i]!, out);
        const whole = new Float32Array(layout.totalLength);
        engine.step({ ...key, batches: [batch], out: whole });
        expect(bitsOf(out).equals(bitsOf(whole))).toBe(true);
      }
      first.forget();
    };
    round([0, 1, 2]);
    const { numTensors, numBytes } = tf.memory();
    for (const replicas of [[2, 0, 1], [1], []]) round(replicas);
    expect(tf.memory()).toMatchObject({ numTensors, numBytes });
    const batch = batches[0]!;
    const passed = new Float32Array(batch.count * sizeOf(first.stage.passed!));
    const again = { round: 4, replica: 1 };
    first.pass(again, batch, passed);
    expect(() => first.pass(again, batch, passed)).toThrow(/passed on twice/);
    expect(() => first.gradients(KEY, batch, { out: new Float32Array(first.length), passed })).toThrow(/that were not passed on/);
    first.forget();
    expect(tf.memory()).toMatchObject({ numTensors, numBytes });
  });

  it('cut where somebody says', async () => {
    const stages = await expectSameBits({ model: DEEP }, { stages: 3, cutAfter: ['relu', 'noise'] });
    expect(stages.map(({ layers }) => layers)).toEqual([
      ['conv', 'norm', 'relu'],
      ['pool', 'drop', 'second', 'pool2', 'flat', 'hidden', 'noise'],
      ['out'],
    ]);
  });

  it('with frozen variables in one stage, and all of them in another', async () => {
    await expectSameBits({ model: DEEP, freeze: ['hidden/kernel', 'conv/*', 'norm/*'] }, { stages: 3, cutAfter: ['drop', 'hidden'] });
  });

  it.each([[['conv/*', 'norm/*']], [['conv/*', 'norm/*', 'second/*']], [['hidden/*', 'out/*']]])(
    'with %j frozen: a front, two stages, or the end',
    async (freeze) => {
      await expectSameBits({ model: DEEP, freeze }, { stages: 4, cutAfter: ['drop', 'pool2', 'noise'] });
    },
  );

  it('without a gradient for stages in front in which all is frozen', async () => {
    const { engines } = await staged({ model: DEEP, freeze: ['conv/*', 'norm/*'] }, { stages: 3, cutAfter: ['drop', 'pool2'] });
    const batch = batchOf(2);
    const passed = [new Float32Array(2 * sizeOf(engines[0]!.stage.passed!)), new Float32Array(2 * sizeOf(engines[1]!.stage.passed!))];
    engines[0]!.pass(KEY, batch, passed[0]!);
    engines[1]!.pass(KEY, { ...batch, inputs: [passed[0]!] }, passed[1]!);
    const back = passed.map(({ length }) => new Float32Array(length).fill(7));
    const outOf = ({ length }: Staged): Float32Array => new Float32Array(length);
    engines[2]!.gradients(KEY, { ...batch, inputs: [passed[1]!] }, { out: outOf(engines[2]!), received: back[1] });
    engines[1]!.gradients(KEY, { ...batch, inputs: [passed[0]!] }, { out: outOf(engines[1]!), passed: back[1], received: back[0] });
    expect(back[1]!.some((value) => value !== 0)).toBe(true); // `second` is trained
    expect(back[0]!.every((value) => value === 0)).toBe(true);
  });

  it('with branches inside of a stage', async () => {
    const model = graph(
      IMAGE,
      ['Flatten', { name: 'flat' }, 'image'],
      ['Dense', { name: 'a', units: 6, activation: 'relu' }, 'flat'],
      ['Dense', { name: 'b', units: 6 }, 'a'],
      ['Add', { name: 'sum' }, 'a', 'b'],
      ['Dense', { name: 'c', units: 6 }, 'sum'],
      ['Concatenate', { name: 'both' }, 'sum', 'c'],
      ['Dense', { name: 'out', units: 10 }, 'both'],
    );
    const stages = await expectSameBits({ model }, { stages: 2, cutAfter: ['sum'] });
    expect(stages[1]!.layers).toEqual(['c', 'both', 'out']);
  });
});

describe('where a model is cut', () => {
  const layersOf = async (model: RunSpecInput['model'], cuts: StageCuts) =>
    (await describeStages(specOf({ model }), IMAGES, cuts)).stages.map(({ layers }) => layers.join(' '));

  it('so that no stage has much more to compute than another', async () => {
    const dense = (name: string, units: number) => ['Dense', { name, units }] as const;
    const model = sequential(
      ['Flatten', { name: 'flat', batch_input_shape: [null, 28, 28, 1] }],
      dense('a', 64),
      dense('b', 512),
      dense('c', 100),
      dense('out', 10),
    );
    expect(await layersOf(model, { stages: 2 })).toEqual(['flat a', 'b c out']);
    expect(await layersOf(model, { stages: 3 })).toEqual(['flat a', 'b', 'c out']);
  });

  it.each([
    [
      'more stages than it has boundaries',
      { stages: 6 },
      /at most 5 stages, and not into 6: set stages to 5 or less. It can be cut after conv, norm, relu/,
    ],
    [
      'after a layer that it does not have',
      { stages: 2, cutAfter: ['hiden'] },
      /has no layer "hiden". It can be cut after conv, norm, relu, pool, drop, pool2/,
    ],
    ['behind its last weight', { stages: 2, cutAfter: ['out'] }, /cannot be cut after "out": no weights lie behind/],
    [
      'between a convolution and its pooling',
      { stages: 2, cutAfter: ['second'] },
      /computes it together with the pooling behind it: cut after "pool2"/,
    ],
    ['twice in the same place', { stages: 3, cutAfter: ['relu', 'relu'] }, /"relu" is named twice/],
    ['in another order', { stages: 3, cutAfter: ['relu', 'norm'] }, /"relu" and "norm" are not in the order of the model/],
    [
      'around layers without weights',
      { stages: 3, cutAfter: ['norm', 'drop'] },
      /the stage between "norm" and "drop" would have no weights to train/,
    ],
  ] as const)('is refused: %s', async (_, cuts, message) => {
    await expect(layersOf(DEEP, cuts)).rejects.toThrow(message);
  });

  it('wherever one tensor goes on, whatever the order of the layers', async () => {
    const towers = (...order: string[]) =>
      graph(
        IMAGE,
        ['Flatten', { name: 'flat' }, 'image'],
        ['Dense', { name: 'd', units: 4 }, 'flat'],
        ['Dense', { name: 'e', units: 5 }, 'flat'],
        ['Concatenate', { name: 'both' }, ...order],
        ['Dense', { name: 'out', units: 10 }, 'both'],
      );
    // The second stage would read what `flat` gives, which is in the first one.
    for (const order of [
      ['d', 'e'],
      ['e', 'd'],
    ])
      await expect(layersOf(towers(...order), { stages: 2, cutAfter: ['d'] })).rejects.toThrow(
        /what follows also reads the output of flat/,
      );
    const apart = (...order: string[]) =>
      graph(
        IMAGE,
        ['Flatten', { name: 'flat' }, 'image'],
        ['Dense', { name: 'd', units: 4 }, 'flat'],
        ['Flatten', { name: 'flat2' }, 'image'],
        ['Dense', { name: 'e', units: 5 }, 'flat2'],
        ['Concatenate', { name: 'both' }, ...order],
        ['Dense', { name: 'out', units: 10 }, 'both'],
      );
    for (const order of [
      ['d', 'e'],
      ['e', 'd'],
    ]) {
      const stages = await expectSameBits({ model: apart(...order) }, { stages: 2, cutAfter: ['d'] });
      expect(stages[0]!.layers).toEqual(['flat', 'd']);
      expect(stages[1]!.inputs).toEqual([0]);
      await expect(layersOf(apart(...order), { stages: 3, cutAfter: ['d', 'e'] })).rejects.toThrow(/lie on branches beside each other/);
    }
  });

  it('behind the last call of a layer that is called twice, and not between its calls', async () => {
    const calls = [[['a', 0, 0, {}]], [['between', 0, 0, {}]]];
    const model = graph(
      IMAGE,
      ['Flatten', { name: 'flat' }, 'image'],
      ['Dense', { name: 'a', units: 8 }, 'flat'],
      ['Dense', { name: 'shared', units: 8, activation: 'tanh' }, 'a'],
      ['Dense', { name: 'between', units: 8 }, 'shared'],
      ['Dense', { name: 'out', units: 10 }, 'between'],
    );
    const { layers } = (model as unknown as { topology: { config: { layers: { name: string; inbound_nodes: unknown }[] } } }).topology
      .config;
    Object.assign(
      layers.find(({ name }) => name === 'shared')!,
      { inbound_nodes: calls },
    );
    Object.assign(
      layers.find(({ name }) => name === 'out')!,
      { inbound_nodes: [[['shared', 1, 0, {}]]] },
    );
    const stages = await expectSameBits({ model }, { stages: 3 });
    expect(stages.map(({ layers: own }) => own.join(' '))).toEqual(['flat a', 'shared between', 'out']);
    await expect(layersOf(model, { stages: 2, cutAfter: ['between'] })).rejects.toThrow(
      /only the output of shared, which is called on it, goes on: cut after "shared". It can be cut after a, shared$/,
    );
  });

  it('is refused inside of what a branch goes around, and behind a mask', async () => {
    const around = graph(
      IMAGE,
      ['Flatten', { name: 'flat' }, 'image'],
      ['Dense', { name: 'a', units: 10 }, 'flat'],
      ['Dense', { name: 'b', units: 10 }, 'a'],
      ['Add', { name: 'sum' }, 'a', 'b'],
      ['Dense', { name: 'out', units: 10 }, 'sum'],
    );
    expect(await layersOf(around, { stages: 3 })).toEqual(['flat a', 'b sum', 'out']);
    await expect(layersOf(around, { stages: 2, cutAfter: ['b'] })).rejects.toThrow(
      /cannot be cut after "b": what follows also reads the output of a/,
    );
    const masked = sequential(
      ['Reshape', { name: 'steps', target_shape: [28, 28], batch_input_shape: [null, 28, 28, 1] }],
      ['Dense', { name: 'a', units: 6 }],
      ['Masking', { name: 'mask' }],
      ['Dense', { name: 'b', units: 6 }],
      ['LSTM', { name: 'sum', units: 4 }],
      ['Dense', { name: 'out', units: 10 }],
    );
    await expect(layersOf(masked, { stages: 2, cutAfter: ['b'] })).rejects.toThrow(
      /cannot be cut after "b": its output has a mask. It can be cut after a, sum$/,
    );
  });
});
