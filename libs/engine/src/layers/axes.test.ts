/** Axes, shapes and masks of layers, by what the same computation gives in another way. */
import { describe, expect, it } from 'vitest';
import type { RunSpecInput } from '@paceline/spec';
import { modelVariables } from '../describe/describe.js';
import { createPredictor } from '../predictor.js';
import { specOf } from '../run.fixture.js';

const layer = (class_name: string, name: string, config: object = {}, ...inbound: unknown[]) => ({
  class_name,
  name,
  config: { name, ...config },
  inbound_nodes: inbound,
});
const input = (name: string, ...shape: number[]) => layer('InputLayer', name, { batch_input_shape: [null, ...shape] });
const from = (...names: string[]) => names.map((name) => [name, 0, 0, {}]);
type Layers = readonly ReturnType<typeof layer>[];
const graph = (layers: Layers, outputs: readonly string[], version = 'tfjs-layers 4.22.0'): RunSpecInput['model'] =>
  ({
    topology: {
      class_name: 'Model',
      keras_version: version,
      config: {
        name: 'graph',
        layers,
        input_layers: layers.filter(({ class_name }) => class_name === 'InputLayer').map(({ name }) => [name, 0, 0]),
        output_layers: outputs.map((name) => [name, 0, 0]),
      },
    },
  }) as unknown as RunSpecInput['model'];

/** Weights that follow from their names and places. */
const valueOf = (path: string, i: number): number => {
  const seed = [...path].reduce((sum, letter) => Math.imul(sum, 31) + letter.codePointAt(0)!, 7);
  return path.endsWith('variance') ? 0.5 + ((i * 7) % 5) / 4 : Math.sin(seed + i * 1.7) * 0.8;
};
async function predict(model: RunSpecInput['model'], inputs: readonly Float32Array[], count: number): Promise<number[][]> {
  const spec = specOf({ model });
  const { variables } = modelVariables(spec);
  const sizes = new Map(variables.map(({ path, shape }) => [path, shape.reduce((product, size) => product * size, 1)]));
  const predictor = await createPredictor({ model: spec.model! }, (path) =>
    Float32Array.from({ length: sizes.get(path)! }, (_, i) => valueOf(path, i)),
  );
  return predictor.predict(inputs, count).map((values) => [...values]);
}
const numbers = (length: number, seed = 1): Float32Array => Float32Array.from({ length }, (_, i) => Math.cos(seed + i * i * 0.37));
function near(actual: readonly number[], expected: readonly number[]): void {
  expect(actual.length).toBe(expected.length);
  for (const [i, value] of expected.entries()) expect(actual[i]!).toBeCloseTo(value, 5);
}

const keras = (class_name: string, name: string, config: object, args: unknown[], kwargs: object = {}, module = 'keras.layers') => ({
  module,
  class_name,
  name,
  config: { name, ...config },
  registered_name: null,
  inbound_nodes: args.length === 0 ? [] : [{ args, kwargs }],
});
const tensor = (name: string, node = 0) => ({
  class_name: '__keras_tensor__',
  config: { shape: [null, 4], dtype: 'float32', keras_history: [name, node, 0] },
});
/** Two masked inputs that meet, as Keras 3.15 writes them. */
const kerasBoth = (className: string): RunSpecInput['model'] => {
  const OPERATIONS = 'keras.src.ops.numpy';
  const layers = [
    ...['a', 'b'].flatMap((name) => [
      keras('InputLayer', `of_${name}`, { batch_shape: [null, 5] }, []),
      keras('Embedding', name, { input_dim: 6, output_dim: 4, mask_zero: true }, [tensor(`of_${name}`)]),
      keras('NotEqual', `mask_${name}`, {}, [tensor(`of_${name}`), 0], {}, OPERATIONS),
    ]),
    keras(className, 'met', {}, [[tensor('a'), tensor('b')]]),
    keras('LogicalOr', 'or', {}, [tensor('mask_a'), tensor('mask_b')], {}, OPERATIONS),
    keras('LSTM', 'last', { units: 3, recurrent_activation: 'sigmoid' }, [tensor('met')], { mask: tensor('or') }),
  ];
  const config = {
    name: 'model',
    layers,
    input_layers: [
      ['of_a', 0, 0],
      ['of_b', 0, 0],
    ],
    output_layers: [
      ['met', 0, 0],
      ['last', 0, 0],
    ],
  };
  return { topology: { class_name: 'Functional', keras_version: '3.15.1', config } } as unknown as RunSpecInput['model'];
};

describe('a mask', () => {
  const ids = input('ids', 5);
  const embedding = layer('Embedding', 'embedding', { input_dim: 6, output_dim: 4, mask_zero: true }, from('ids'));
  const tokens = Float32Array.from([1, 2, 0, 3, 0, 4, 0, 0, 0, 1]);
  const unmasked = layer('Embedding', 'embedding', { input_dim: 6, output_dim: 4 }, from('ids'));

  it('is that of the branch that made it', async () => {
    const series = input('series', 5, 2);
    const own = layer('LSTM', 'own', { units: 3 }, from('series'));
    const masked = layer('LSTM', 'masked', { units: 3 }, from('embedding'));
    const [alone] = await predict(graph([series, own], ['own']), [numbers(20)], 2);
    const [, beside] = await predict(graph([ids, embedding, masked, series, own], ['masked', 'own']), [tokens, numbers(20)], 2);
    near(beside!, alone!);
  });

  it.each([
    ['a convolution', [layer('Conv1D', 'end', { filters: 4, kernel_size: 2, padding: 'same' }, from('embedding'))]],
    ['pooling', [layer('MaxPooling1D', 'end', { pool_size: 1, strides: 1 }, from('embedding'))]],
    ['Permute', [layer('Permute', 'end', { dims: [2, 1] }, from('embedding'))]],
  ])('ends at %s', async (_, ends) => {
    const last = [layer('LSTM', 'last', { units: 3 }, from('end'))];
    const [masked] = await predict(graph([ids, embedding, ...ends, ...last], ['last']), [tokens], 2);
    const [without] = await predict(graph([ids, unmasked, ...ends, ...last], ['last']), [tokens], 2);
    near(masked!, without!);
  });

  it('acts behind layers that pass it on, and not on a Softmax behind the steps', async () => {
    const lstm = layer('LSTM', 'last', { units: 3 }, from('scaled'));
    const scaled = layer('Rescaling', 'scaled', { scale: 2 }, from('embedding'));
    const [masked] = await predict(graph([ids, embedding, scaled, lstm], ['last']), [tokens], 2);
    const [without] = await predict(graph([ids, unmasked, scaled, lstm], ['last']), [tokens], 2);
    expect(masked!.some((value, i) => Math.abs(value - without![i]!) > 0.01)).toBe(true);
    const head = [layer('LSTM', 'steps', { units: 5 }, from('embedding')), layer('Softmax', 'shares', {}, from('steps'))];
    const [steps, shares] = await predict(graph([ids, embedding, ...head], ['steps', 'shares']), [tokens], 2);
    for (const row of [0, 1]) {
      const powers = steps!.slice(row * 5, row * 5 + 5).map(Math.exp);
      const sum = powers.reduce((a, b) => a + b, 0);
      near(
        shares!.slice(row * 5, row * 5 + 5),
        powers.map((power) => power / sum),
      );
    }
  });
});

describe('masks that meet', () => {
  const both = (className: string, version?: string) => {
    const embedding = (name: string) => layer('Embedding', name, { input_dim: 6, output_dim: 4, mask_zero: true }, from(`of_${name}`));
    const layers = [input('of_a', 5), input('of_b', 5), embedding('a'), embedding('b')];
    return graph(
      [
        ...layers,
        layer(className, 'met', {}, from('a', 'b')),
        layer('LSTM', 'last', { units: 3, recurrent_activation: 'sigmoid' }, from('met')),
      ],
      ['met', 'last'],
      version,
    );
  };
  const [a, b] = [Float32Array.from([1, 2, 3, 0, 0]), Float32Array.from([1, 0, 3, 4, 0])];
  /** The LSTM over the steps that count, whose inputs are known. */
  const over = async (values: readonly number[], steps: readonly number[]): Promise<number[]> => {
    const kept = Float32Array.from(steps.flatMap((step) => values.slice(step * 4, step * 4 + 4)));
    const alone = graph(
      [input('x', steps.length, 4), layer('LSTM', 'last', { units: 3, recurrent_activation: 'sigmoid' }, from('x'))],
      ['last'],
    );
    return (await predict(alone, [kept], 1))[0]!;
  };

  it.each(['Add', 'Average', 'Multiply', 'Maximum', 'Minimum'])('in %s: a step counts where all say so', async (className) => {
    const [met, last] = await predict(both(className), [a, b], 1);
    near(last!, await over(met!, [0, 2]));
  });

  it('in Add of Keras 3: where one says so; Multiply is refused there', async () => {
    const [met, last] = await predict(kerasBoth('Add'), [a, b], 1);
    near(last!, await over(met!, [0, 1, 2, 3]));
    await expect(predict(kerasBoth('Multiply'), [a, b], 1)).rejects.toThrow(
      /Multiply of Keras 3 leaves the masked steps of each input out/,
    );
  });
});

describe('an axis', () => {
  it.each([1, -2, 2, -1, 3])('BatchNormalization along axis %i normalises by its moving averages', async (axis) => {
    const shape = [4, 3, 2];
    const norm = layer('BatchNormalization', 'norm', { axis }, from('x'));
    const x = numbers(48);
    const [y] = await predict(graph([input('x', ...shape), norm], ['norm']), [x], 2);
    const place = (axis < 0 ? axis + 4 : axis) - 1;
    const inner = shape.slice(place + 1).reduce((product, size) => product * size, 1);
    const of = (name: string, i: number): number => valueOf(`norm/${name}`, i);
    near(
      y!,
      [...x].map((value, i) => {
        const c = Math.floor(i / inner) % shape[place]!;
        return ((value - of('moving_mean', c)) / Math.sqrt(of('moving_variance', c) + 1e-3)) * of('gamma', c) + of('beta', c);
      }),
    );
  });

  it.each([-2, 1])('Concatenate along axis %i', async (axis) => {
    const model = graph(
      [
        input('a', 2, 3),
        input('b', 2, 3),
        layer('Concatenate', 'both', { axis }, from('a', 'b')),
        layer('Dense', 'd', { units: 1 }, from('both')),
      ],
      ['both', 'd'],
    );
    const [a, b] = [numbers(6), numbers(6, 2)];
    const [both] = await predict(model, [a, b], 1);
    near(both!, [...a, ...b]);
  });

  it.each([1, -2])('Softmax along axis %i', async (axis) => {
    const model = graph(
      [input('x', 3, 2), layer('Softmax', 's', { axis }, from('x')), layer('Dense', 'd', { units: 1 }, from('s'))],
      ['s', 'd'],
    );
    const [shares] = await predict(model, [numbers(6)], 1);
    for (const column of [0, 1]) expect([0, 1, 2].reduce((sum, row) => sum + shares![row * 2 + column]!, 0)).toBeCloseTo(1, 6);
  });

  it.each([[[-1, 2]], [[2, -1]], [[-1]]])('Reshape to %j knows the dimension that is left open', async (target_shape) => {
    const model = graph(
      [input('x', 3, 4), layer('Reshape', 'r', { target_shape }, from('x')), layer('Dense', 'd', { units: 2 }, from('r'))],
      ['r', 'd'],
    );
    const x = numbers(12);
    near((await predict(model, [x], 1))[0]!, [...x]);
  });
});

it('outputs that are a call of a model inside of one of Keras 3 are those of that call', async () => {
  const called = (class_name: string, name: string, config: object, ...called: [string, number][]) => ({
    module: 'keras.layers',
    class_name,
    name,
    config: { name, ...config },
    registered_name: null,
    inbound_nodes: called.map(([source, node]) => ({
      args: [{ class_name: '__keras_tensor__', config: { shape: [null, 4], dtype: 'float32', keras_history: [source, node, 0] } }],
      kwargs: {},
    })),
  });
  const model = (layers: object[], config: object) => ({ layers, name: 'model', trainable: true, ...config });
  const inside = {
    ...called('Functional', 'inside', {}, ['x', 0], ['inside', 0]),
    config: model([called('InputLayer', 'n', { batch_shape: [null, 4] }), called('Dense', 'dense', { units: 4 }, ['n', 0])], {
      name: 'inside',
      input_layers: ['n', 0, 0],
      output_layers: ['dense', 0, 0],
    }),
  };
  const topology = (outputs: unknown) => ({
    topology: {
      class_name: 'Functional',
      config: model([called('InputLayer', 'x', { batch_shape: [null, 4] }), inside, called('Dense', 'head', { units: 2 }, ['inside', 1])], {
        input_layers: ['x', 0, 0],
        output_layers: outputs,
      }),
    },
  });
  const x = numbers(4);
  const dense = (given: readonly number[]): number[] =>
    [0, 1, 2, 3].map((j) =>
      given.reduce((sum, value, i) => sum + value * valueOf('inside/dense/kernel', i * 4 + j), valueOf('inside/dense/bias', j)),
    );
  // Keras counts the making of the model as call 0 among the outputs.
  const [first, head] = await predict(
    topology([
      ['inside', 1, 0],
      ['head', 0, 0],
    ]) as never,
    [x],
    1,
  );
  near(first!, dense([...x]));
  expect(head!.length).toBe(2);
  const [second] = await predict(
    topology([
      ['inside', 2, 0],
      ['head', 0, 0],
    ]) as never,
    [x],
    1,
  );
  near(second!, dense(dense([...x])));
  // No layer is called on the first call: it is an output alone.
  const two = {
    ...inside,
    inbound_nodes: called('Functional', 'inside', {}, ['x', 0], ['y', 0]).inbound_nodes,
  };
  const inputs = ['x', 'y'].map((name) => called('InputLayer', name, { batch_shape: [null, 4] }));
  const ends = {
    input_layers: [
      ['x', 0, 0],
      ['y', 0, 0],
    ],
    output_layers: [
      ['inside', 1, 0],
      ['head', 0, 0],
    ],
  };
  const siamese = { class_name: 'Functional', config: model([...inputs, two, called('Dense', 'head', { units: 2 }, ['inside', 1])], ends) };
  const y = numbers(4, 5);
  const [ofX, ofY] = await predict({ topology: siamese } as never, [x, y], 1);
  near(ofX!, dense([...x]));
  const headOf = (given: readonly number[]): number[] =>
    [0, 1].map((k) => given.reduce((sum, value, n) => sum + value * valueOf('head/kernel', n * 2 + k), valueOf('head/bias', k)));
  near(ofY!, headOf(dense([...y])));
});
