import type { InputField, LayerTopology, MODEL_ZOO, RowFormat, RunSpecInput, TargetField } from '@paceline/spec';
import { describe, expect, it } from 'vitest';
import { describeModel } from '../describe/describe.js';
import type { Batch } from '../engine.js';
import { planModel } from '../topology/plan-model.js';
import { outputActivations } from './ends.js';
import { IMAGES, loadedEngine, sequential, specOf, type Loaded } from '../run.fixture.js';

type Node = readonly [className: string, config: Record<string, unknown> & { readonly name: string }, from?: readonly string[]];

function graph(nodes: readonly Node[], inputs: readonly string[], outputs: readonly string[]): RunSpecInput['model'] {
  const layers = nodes.map(([class_name, config, from = []]): LayerTopology =>
    Object.assign(
      { class_name, config, name: config.name },
      { inbound_nodes: from.length === 0 ? [] : [from.map((name) => [name, 0, 0, {}])] },
    ),
  );
  const edges = (names: readonly string[]) => names.map((name) => [name, 0, 0]);
  return { topology: { class_name: 'Model', config: { layers, input_layers: edges(inputs), output_layers: edges(outputs) } } };
}

const inputNode = (name: string, shape: readonly number[], dtype = 'float32'): Node => [
  'InputLayer',
  { name, batch_input_shape: [null, ...shape], dtype },
];
const dense = (name: string, units: number, ...from: string[]): Node => ['Dense', { name, units }, from];

const FIELDS: { readonly inputs: InputField[]; readonly targets: TargetField[] } = {
  inputs: [
    { name: 'age', shape: [2] },
    { name: 'town', shape: [3] },
  ],
  targets: [
    { name: 'price', kind: 'values', shape: [1] },
    { name: 'kind', kind: 'classes', shape: [], classes: 4 },
  ],
};
const FORMAT: RowFormat = Object.assign({ isWeighted: false }, FIELDS);

/** Two inputs, two outputs, named as the fields or otherwise, in the order given. */
const twoByTwo = (inputs: readonly [string, string], outputs: readonly [string, string], sizes = [2, 3, 1, 4]) =>
  graph(
    [
      inputNode(inputs[0], [sizes[0]!]),
      inputNode(inputs[1], [sizes[1]!]),
      ['Concatenate', { name: 'both', axis: -1 }, [...inputs]],
      dense(outputs[0], sizes[2]!, 'both'),
      dense(outputs[1], sizes[3]!, 'both'),
    ],
    inputs,
    outputs,
  );

const COUNT = 6;
const wave = (i: number): number => Math.sin(i * 12.9898 + 1);
const batch = (): Batch => ({
  inputs: [Float32Array.from({ length: COUNT * 2 }, (_, i) => wave(i)), Float32Array.from({ length: COUNT * 3 }, (_, i) => wave(i + 50))],
  targets: [Float32Array.from({ length: COUNT }, (_, i) => wave(i + 90)), Float32Array.from({ length: COUNT }, (_, i) => i % 4)],
  count: COUNT,
});
const stepOf = ({ engine, layout }: Loaded, rows: Batch) => {
  const out = new Float32Array(layout.totalLength);
  return { out, sums: engine.step({ round: 0, replica: 0, batches: [rows], out }).metricSums };
};

const LOSSES = { losses: { price: 'mse' as never }, lossWeights: { kind: 0.5 } };

describe('a model with two inputs and two outputs', () => {
  it('trains: its gradient is the slope of the weighted sum of its losses, on wasm as on the JavaScript backend', async () => {
    const model = twoByTwo(['age', 'town'], ['price', 'kind']);
    const load = (engine: 'wasm' | 'cpu') => loadedEngine({ model, engine, ...LOSSES }, undefined, FORMAT);
    const [wasm, cpu] = [await load('wasm'), await load('cpu')];
    const [a, b] = [stepOf(wasm, batch()), stepOf(cpu, batch())];
    a.out.forEach((value, i) => expect(value).toBeCloseTo(b.out[i]!, 5));
    expect(wasm.engine.metricNames).toEqual(['loss', 'accuracy', 'accuracy', 'price_loss', 'kind_loss']);
    // Each before its factor, as Keras tells them.
    const [loss, , , price, kind] = a.sums as [number, number, number, number, number];
    expect(loss).toBeCloseTo(price + 0.5 * kind, 5);
    const norm = Math.hypot(...a.out);
    const lossAt = (distance: number): number => {
      wasm.engine.load(wasm.flat.map((value, i) => value + (distance * a.out[i]!) / norm));
      return wasm.engine.evaluate(batch()).metricSums[0]!;
    };
    expect((lossAt(1e-2) - lossAt(-1e-2)) / 2e-2).toBeCloseTo(norm, 2);
  });

  it('weighs the classes of one output in training, and neither the other output nor an evaluation', async () => {
    const model = twoByTwo(['age', 'town'], ['price', 'kind']);
    const load = (classWeights?: number[]) => {
      const targets = FIELDS.targets.map((field) =>
        field.kind === 'classes' ? Object.assign({}, field, classWeights && { classWeights }) : field,
      );
      return loadedEngine({ model, ...LOSSES }, undefined, Object.assign({}, FORMAT, { targets }));
    };
    const [plain, thrice, one] = [await load(), await load([3, 3, 3, 3]), await load([0, 0, 1, 0])];
    const [without, with3, only] = [plain, thrice, one].map((loaded) => stepOf(loaded, batch()));
    for (const { path, offset, length } of plain.layout.variables)
      for (let i = offset; i < offset + length; i++)
        expect(with3!.out[i]).toBeCloseTo((path.startsWith('kind') ? 3 : 1) * without!.out[i]!, 5);
    // The third of the six examples is of class 2: as if the others had no loss there.
    const third = batch();
    const alone = stepOf(
      plain,
      Object.assign(third, {
        inputs: [third.inputs[0]!.slice(4, 6), third.inputs[1]!.slice(6, 9)],
        targets: third.targets.map((all) => all.slice(2, 3)),
        count: 1,
      }),
    );
    const kind = plain.layout.variables.find(({ path }) => path === 'kind/bias')!;
    for (let i = kind.offset; i < kind.offset + kind.length; i++) expect(only!.out[i]).toBeCloseTo(alone.out[i]!, 5);
    expect(thrice.engine.evaluate(batch())).toEqual(plain.engine.evaluate(batch()));
  });

  it('gets each field by its name, and else by its order', async () => {
    const scoreOf = async (model: RunSpecInput['model'], losses: object) =>
      stepOf(await loadedEngine({ model, ...losses }, undefined, FORMAT), batch()).sums;
    const inOrder = await scoreOf(twoByTwo(['age', 'town'], ['price', 'kind']), LOSSES);
    const other = { losses: { left: 'meanSquaredError' }, lossWeights: { right: 0.5 } };
    expect((await scoreOf(twoByTwo(['a', 'b'], ['left', 'right']), other)).length).toBe(5);
    // Turned round: only the names say which is which.
    const turned = await scoreOf(twoByTwo(['town', 'age'], ['kind', 'price'], [3, 2, 4, 1]), LOSSES);
    expect(Number.isFinite(turned[0]) && Number.isFinite(inOrder[0])).toBe(true);
    await expect(
      describeModel(specOf({ model: twoByTwo(['b', 'a'], ['price', 'kind'], [3, 2, 1, 4]), ...LOSSES }), FORMAT),
    ).rejects.toThrow("the model's input b is [3], but age of the data is [2]");
  });

  it.each([
    [
      'another number of inputs',
      sequential(['Dense', { name: 'price', units: 1, batch_input_shape: [null, 5] }]),
      {},
      'the model has 1 input (price_input), but the data has 2 inputs (age, town)',
    ],
    [
      'a loss for an output that is not there',
      twoByTwo(['age', 'town'], ['price', 'kind']),
      { losses: { prise: 'mse' as never } },
      'the model has no such output; it has price, kind',
    ],
  ] as const)('refuses %s', async (_, model, rest, message) => {
    await expect(describeModel(specOf({ model, ...rest }), FORMAT)).rejects.toThrow(message);
  });
});

it('takes whole numbers into an input of dtype int32, for an Embedding', async () => {
  const format: RowFormat = {
    inputs: [{ name: 'tokens', shape: [3] }],
    targets: [{ name: 'next', kind: 'classes', shape: [3], classes: 5 }],
    isWeighted: false,
  };
  const model = graph(
    [inputNode('in', [3], 'int32'), ['Embedding', { name: 'e', input_dim: 5, output_dim: 4 }, ['in']], dense('out', 5, 'e')],
    ['in'],
    ['out'],
  );
  const loaded = await loadedEngine({ model }, undefined, format);
  const rows = { inputs: [Float32Array.of(0, 4, 2, 1, 1, 3)], targets: [Float32Array.of(4, 2, 0, 1, 3, 0)], count: 2 };
  expect(stepOf(loaded, rows).sums[0]).toBeCloseTo(2 * Math.log(5), 0);
  expect(() => stepOf(loaded, Object.assign({}, rows, { targets: [Float32Array.of(4, 2, 0, 1, 3, 5)] }))).toThrow('label 5 of example 1');
});

it('two outputs of one shared layer do not take one target both', async () => {
  const { topology } = graph(
    [inputNode('age', [2]), inputNode('town', [2]), dense('price', 1, 'age')],
    ['age', 'town'],
    ['price'],
  ) as unknown as {
    topology: { config: { layers: { inbound_nodes: unknown }[]; output_layers: unknown } };
  };
  topology.config.layers[2]!.inbound_nodes = [[['age', 0, 0, {}]], [['town', 0, 0, {}]]];
  topology.config.output_layers = [
    ['price', 0, 0],
    ['price', 1, 0],
  ];
  const inputs = ['age', 'town'].map((name) => ({ name, shape: [2] }));
  const formatOf = (...names: string[]): RowFormat => ({
    inputs,
    targets: names.map((name) => ({ name, kind: 'values', shape: [1] })),
    isWeighted: false,
  });
  const described = (format: RowFormat) => describeModel(specOf({ model: { topology } as never }), format);
  await expect(described(formatOf('price', 'rent'))).rejects.toThrow(/two outputs of the model are called price/);
  await expect(described(formatOf('first', 'second'))).resolves.toBeDefined();
});

describe('the zoo', () => {
  const row = (shape: number[], ...targets: TargetField[]): RowFormat => ({ inputs: [{ name: 'x', shape }], targets, isWeighted: false });
  const price: TargetField = { name: 'price', kind: 'values', shape: [2] };
  const kind: TargetField = { name: 'kind', kind: 'classes', shape: [], classes: 3 };
  const tags: TargetField = { name: 'tags', kind: 'classes', shape: [5], classes: 3 };

  it.each<[(typeof MODEL_ZOO)[number], string, RowFormat, number[][]]>([
    ['mlp', 'classes', row([13], kind), [[3]]],
    ['mlp-dropout', 'values', row([4, 2], price), [[2]]],
    ['linear', 'values', row([7], price), [[2]]],
    ['linear', 'a class at each step', row([7], tags), [[5, 3]]],
    ['cnn', 'colour images', row([20, 16, 3], kind), [[3]]],
    ['cnn', 'a value of larger images', row([40, 64, 1], price), [[2]]],
    ['mlp', 'two inputs and two targets', FORMAT, [[1], [4]]],
    ['linear', 'an input and two targets', row([6], price, tags), [[2], [5, 3]]],
  ])('%s fits %s', async (model, _, format, shapes) => {
    const loaded = await loadedEngine({ model }, undefined, format);
    expect(loaded.description.outputs.map(({ shape }) => shape)).toEqual(shapes);
    const values = (fields: readonly (InputField | TargetField)[]) =>
      fields.map((field) =>
        Float32Array.from({ length: 4 * field.shape.reduce((a, b) => a * b, 1) }, (__, i) => ('classes' in field ? i % 3 : wave(i))),
      );
    const { out } = stepOf(loaded, { inputs: values(format.inputs), targets: values(format.targets), count: 4 });
    expect(out.every(Number.isFinite) && out.some((value) => value !== 0)).toBe(true);
    loaded.engine.dispose();
  });

  it('the CNN ends in a small dense layer, however large the image', async () => {
    const { variables, parameterCount } = await describeModel(specOf({ model: 'cnn' }), row([224, 224, 3], kind));
    expect(variables.filter(({ path }) => path.endsWith('/kernel')).map(({ shape }) => shape)).toEqual([
      [3, 3, 3, 32],
      [3, 3, 32, 64],
      [3, 3, 64, 64],
      [3, 3, 64, 64],
      [9216, 128],
      [128, 3],
    ]);
    expect(parameterCount).toBeLessThan(2e6);
  });

  it('keeps the variables that it has for MNIST', async () => {
    const { variables, inputs, outputs } = await describeModel(specOf({ model: 'linear' }), IMAGES);
    expect(variables.map(({ path, shape }) => [path, shape])).toEqual([
      ['dense_1/kernel', [784, 10]],
      ['dense_1/bias', [10]],
    ]);
    expect([inputs, outputs]).toEqual([[{ name: 'input', shape: [784] }], [{ name: 'dense_1', shape: [10] }]]);
  });

  it.each([
    ['no image', row([784], kind), 'one input [height, width, channels]'],
    ['too small an image', row([8, 8, 1], kind), '10 × 10 or more'],
  ])('cnn refuses %s', async (_, format, message) => {
    await expect(describeModel(specOf({ model: 'cnn' }), format)).rejects.toThrow(message);
  });
});

it('the last activation is found inside of TimeDistributed, as a layer and as a setting', () => {
  const inside = (class_name: string, config: object) => ({ class_name, config: { name: 'inner', ...config } });
  const endOf = (layer: object) => {
    const steps: Node = ['TimeDistributed', { name: 'steps', layer }, ['x']];
    const { plan } = planModel({ model: specOf({ model: graph([inputNode('x', [3, 4]), steps], ['x'], ['steps']) }).model! }, undefined);
    return outputActivations(plan);
  };
  expect(endOf(inside('Softmax', {}))).toEqual(['softmax']);
  expect(endOf(inside('Activation', { activation: 'softmax' }))).toEqual(['softmax']);
  expect(endOf(inside('Dense', { units: 2 }))).not.toEqual(['softmax']);
});
