import { ALLOWED_LAYERS, LIMITS, parseRunSpec, type ModelTopology, type RunSpec, type RunSpecInput } from '@paceline/spec';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { describeModelInThread, warmThreads } from './describe-thread.js';
import { describeModel } from './describe.js';
import { ModelError } from '../errors/model-error.js';
import { IMAGES, sequential, specOf } from '../run.fixture.js';

const describing = (model: RunSpecInput['model'], rest: RunSpecInput = {}) => describeModel(specOf({ ...rest, model }), IMAGES);
const input = ['InputLayer', { batch_input_shape: [null, 784] }] as const;
const out10 = ['Dense', { units: 10 }] as const;
const onRows = ['InputLayer', { batch_input_shape: [null, 28, 28] }] as const;

function graph(
  layers: readonly (readonly [string, string, Record<string, unknown>, readonly (readonly unknown[])[]])[],
  outputs: readonly unknown[],
): RunSpecInput['model'] {
  const listed = layers.map(([class_name, name, config, from]) => ({ class_name, config: { name, ...config }, inbound_nodes: from }));
  return { topology: { class_name: 'Functional', config: { layers: listed, input_layers: [['in', 0, 0]], output_layers: outputs } } };
}
const graphInput = ['InputLayer', 'in', { batch_input_shape: [null, 784] }, []] as const;
const to = (name: string): readonly unknown[] => [[name, 0, 0, {}]];

describe('describeModel', () => {
  it('lists the variables of the zoo, trainable first, with what the servers need to start them', async () => {
    const { variables, ...rest } = await describing('mlp-dropout');
    expect(variables.map(({ path, shape, section }) => `${section} ${path} ${shape.join('×')}`)).toEqual([
      'trainable dense_1/kernel 784×256',
      'trainable dense_1/bias 256',
      'trainable batch_normalization_1/gamma 256',
      'trainable batch_normalization_1/beta 256',
      'trainable dense_2/kernel 256×128',
      'trainable dense_2/bias 128',
      'trainable dense_3/kernel 128×10',
      'trainable dense_3/bias 10',
      'state batch_normalization_1/moving_mean 256',
      'state batch_normalization_1/moving_variance 256',
    ]);
    expect(variables[0]!.initializer).toEqual({
      className: 'VarianceScaling',
      config: { scale: 1, mode: 'fanAvg', distribution: 'uniform', seed: null },
    });
    expect(variables[9]!.initializer).toEqual({ className: 'Ones', config: {} });
    expect(rest).toEqual({
      inputs: [{ name: 'input', shape: [784] }],
      outputs: [{ name: 'dense_3', shape: [10] }],
      parameterCount: 235_658,
      stateCount: 512,
    });
    expect((await describing('cnn')).inputs[0]!.shape).toEqual([28, 28, 1]);
  });

  it('gives the same description again in the same process, also for layers without names', async () => {
    const model = sequential(input, ['Dense', { units: 4 }], ['Dense', { units: 3 }], out10);
    const first = await describing(model);
    expect(first.variables.map(({ path }) => path)).toEqual([
      'dense_1/kernel',
      'dense_1/bias',
      'dense_2/kernel',
      'dense_2/bias',
      'dense_3/kernel',
      'dense_3/bias',
    ]);
    expect(await describing(model)).toEqual(first);
  });

  it('keeps paths unique inside wrappers and describes the forget bias', async () => {
    const inner = { class_name: 'LSTM', config: { units: 2, unit_forget_bias: true } };
    const { variables } = await describing(sequential(onRows, ['Bidirectional', { name: 'bi', layer: inner }], out10));
    expect(variables.slice(0, 6).map(({ path }) => path)).toEqual([
      'bi/kernel',
      'bi/recurrent_kernel',
      'bi/bias',
      'bi/kernel_1',
      'bi/recurrent_kernel_1',
      'bi/bias_1',
    ]);
    expect(variables[2]!.initializer).toEqual({ className: 'UnitForgetBias', config: { initializer: { className: 'Zeros', config: {} } } });
  });

  it('reads Keras 3 graphs with their histories', async () => {
    const history = (name: string) => ({
      args: [{ class_name: '__keras_tensor__', config: { shape: [null, 784], dtype: 'float32', keras_history: [name, 0, 0] } }],
      kwargs: {},
    });
    const wrapped = { module: 'keras.initializers', class_name: 'HeNormal', config: { seed: null }, registered_name: null };
    const dtype = { module: 'keras', class_name: 'DTypePolicy', config: { name: 'float32' }, registered_name: null };
    const topology = {
      class_name: 'Functional',
      config: {
        layers: [
          { class_name: 'InputLayer', name: 'in', config: { name: 'in', batch_shape: [null, 784], dtype: 'float32' }, inbound_nodes: [] },
          {
            class_name: 'Dense',
            name: 'd',
            config: {
              name: 'd',
              units: 10,
              kernel_initializer: wrapped,
              dtype,
              kernel_regularizer: { class_name: 'L2', config: { l2: 0.1 } },
            },
            inbound_nodes: [history('in')],
          },
        ],
        input_layers: ['in', 0, 0],
        output_layers: ['d', 0, 0],
      },
    };
    expect((await describing({ topology } as RunSpecInput['model'])).variables[0]).toMatchObject({
      path: 'd/kernel',
      initializer: { className: 'VarianceScaling', config: { scale: 2, distribution: 'normal' } },
    });
  });

  it('accepts examples in any shape of the right size and refuses others', async () => {
    await expect(describing(sequential(onRows, ['Flatten'], out10))).resolves.toMatchObject({ inputs: [{ shape: [28, 28] }] });
    await expect(describing(sequential(['Dense', { units: 10, batch_input_shape: [null, 783] }]))).rejects.toThrow(
      'image of the data is [28, 28, 1]',
    );
    const small = sequential(['Dense', { units: 3, batch_input_shape: [null, 4] }]);
    await expect(
      describeModel(specOf({ model: small }), {
        inputs: [{ name: 'x', shape: [2, 2] }],
        targets: [{ name: 'y', kind: 'classes', shape: [], classes: 3 }],
        isWeighted: false,
      }),
    ).resolves.toBeDefined();
  });
});

const L = 'model.topology.config.layers';
const REFUSALS: readonly (readonly [string, RunSpecInput['model'], string, string])[] = [
  ['units 2^31', sequential(input, ['Dense', { units: 2 ** 31 }]), `${L}.1`, `more than ${LIMITS.modelParameters} parameters`],
  [
    'many large layers',
    sequential(input, ...Array.from({ length: 5 }, () => ['Dense', { units: 12_000 }] as const)),
    `${L}.3`,
    'parameters',
  ],
  ['units -3', sequential(input, ['Dense', { units: -3 }]), `${L}.1.config.units`, 'positive integer'],
  ['units "many"', sequential(input, ['Dense', { units: 'many' }]), `${L}.1.config.units`, 'positive integer'],
  ['a huge activation', sequential(input, ['RepeatVector', { n: 1e9 }]), `${L}.1`, 'too large'],
  [
    'an empty activation',
    sequential(
      [
        'Cropping2D',
        {
          cropping: [
            [20, 20],
            [1, 1],
          ],
          batch_input_shape: [null, 28, 28, 1],
        },
      ],
      ['Flatten'],
      out10,
    ),
    `${L}.0`,
    '',
  ],
  ['no input shape', sequential(out10), `${L}.0.config`, 'batch_input_shape'],
  ['a fixed batch', sequential(['Dense', { units: 10, batch_input_shape: [32, 784] }]), `${L}.0`, 'batch size must be left open'],
  [
    'a layer that expects another input',
    sequential(input, ['Dense', { units: 10, batch_input_shape: [null, 5] }]),
    `${L}.1`,
    'but gets [null,784]',
  ],
  ['another number of classes', sequential(input, ['Dense', { units: 11 }]), 'model.topology', '10 classes'],
  ['a stateful RNN', sequential(onRows, ['LSTM', { units: 4, stateful: true }], out10), `${L}.1.config.stateful`, 'stateful'],
  ['a model that is frozen as a whole', sequential(input, ['Dense', { units: 10, trainable: false }]), 'model.topology', 'frozen'],
  [
    'a constraint',
    sequential(input, ['Dense', { units: 10, kernel_constraint: { class_name: 'NonNeg', config: {} } }]),
    `${L}.1.config.kernel_constraint`,
    'constraints',
  ],
  ['an unknown activation', sequential(input, ['Dense', { units: 10, activation: 'nope' }]), `${L}.1.config.activation`, 'one of linear'],
  [
    'an unknown initializer',
    sequential(input, ['Dense', { units: 10, kernel_initializer: 'nope' }]),
    `${L}.1.config.kernel_initializer`,
    'nope',
  ],
  [
    'an initializer that would take hours',
    sequential(input, ['Dense', { units: 30_000, kernel_initializer: { class_name: 'Orthogonal', config: {} } }], out10),
    `${L}.1`,
    'orthogonal',
  ],
  ['a name with a path in it', sequential(input, ['Dense', { units: 10, name: '../../x' }]), `${L}.1.config.name`, 'layer name'],
  ['a name of Object.prototype', sequential(input, ['Dense', { units: 10, name: 'toString' }]), `${L}.1.config.name`, 'layer name'],
  [
    'equal names',
    sequential(input, ['Dense', { units: 10, name: 'a' }], ['Dense', { units: 10, name: 'a' }]),
    `${L}.2.config.name`,
    'unique',
  ],
  ['a model without weights', sequential(input, ['Reshape', { target_shape: [10, 784 / 10] }]), `${L}.1`, ''],
  [
    'a cycle',
    graph([graphInput, ['Dense', 'b', { units: 10 }, [to('c')]], ['Dense', 'c', { units: 10 }, [to('b')]]], [['c', 0, 0]]),
    `${L}.1.inbound_nodes`,
    'cycle',
  ],
  [
    'an edge to nowhere',
    graph([graphInput, ['Dense', 'b', { units: 10 }, [to('nobody')]]], [['b', 0, 0]]),
    `${L}.1.inbound_nodes`,
    'does not exist',
  ],
  [
    'an output to nowhere',
    graph([graphInput, ['Dense', 'b', { units: 10 }, [to('in')]]], [['b', 3, 0]]),
    'model.topology.config.output_layers',
    'does not exist',
  ],
  [
    'two outputs',
    graph(
      [graphInput, ['Dense', 'b', { units: 10 }, [to('in')]]],
      [
        ['b', 0, 0],
        ['in', 0, 0],
      ],
    ),
    'model.topology',
    '2 outputs',
  ],
  [
    'a dead branch',
    graph([graphInput, ['Dense', 'b', { units: 10 }, [to('in')]], ['Dense', 'c', { units: 3 }, [to('in')]]], [['b', 0, 0]]),
    'model.topology',
    'does not lead to the output',
  ],
  [
    'nodes that are numbers',
    graph([graphInput, ['Dense', 'b', { units: 10 }, [[5]]]], [['b', 0, 0]]),
    `${L}.1.inbound_nodes.0`,
    'must be a list',
  ],
  ['no layer that computes', graph([graphInput], [['in', 0, 0]]), 'model.topology', ''],
];

it.each(REFUSALS)('refuses %s, naming the field', async (_, model, path, message) => {
  const refusal = await describing(model).then(
    () => expect.fail('it was accepted'),
    (error: unknown) => error as ModelError,
  );
  expect(refusal).toBeInstanceOf(ModelError);
  expect([refusal.code, refusal.path]).toEqual(['INVALID_MODEL', path]);
  expect(refusal.message).toContain(message);
});

it('answers whatever passes the schema with a description or a ModelError', async () => {
  const value = fc.oneof(
    fc.integer({ min: -2, max: 40 }),
    fc.constantFrom<unknown>(
      null,
      true,
      'same',
      'relu',
      [2, 2],
      [
        [1, 1],
        [0, 2],
      ],
      -1,
      1e9,
      2 ** 53,
      { class_name: 'L1L2', config: {} },
      { class_name: 'LSTMCell', config: { units: 2 } },
      { class_name: 'StackedRNNCells', config: { cells: [{ class_name: 'GRUCell', config: {} }] } },
      { class_name: 'ConvLSTM2D', config: { filters: 1, kernel_size: 2 } },
      'channels_first',
      [null, 784],
      [null, 28, 28, 1],
    ),
  );
  const key = fc.constantFrom(
    'units',
    'filters',
    'kernel_size',
    'strides',
    'padding',
    'activation',
    'pool_size',
    'axis',
    'rate',
    'n',
    'target_shape',
    'dims',
    'input_dim',
    'output_dim',
    'size',
    'batch_input_shape',
    'layer',
    'cell',
    'height',
    'width',
    'num_tokens',
    'output_mode',
    'scale',
    'data_format',
    'return_sequences',
    'return_state',
    'dilation_rate',
    'kernel_regularizer',
  );
  const layer = fc.record({ class_name: fc.constantFrom(...ALLOWED_LAYERS), config: fc.dictionary(key, value, { maxKeys: 5 }) });
  await fc.assert(
    fc.asyncProperty(fc.array(layer, { minLength: 1, maxLength: 4 }), fc.boolean(), async (layers, isGraph) => {
      const all = [{ class_name: 'InputLayer', config: { name: 'in', batch_input_shape: [null, 28, 28, 1] } }, ...layers];
      const listed = isGraph
        ? all.map((l, i) => ({
            ...l,
            config: { name: i === 0 ? 'in' : `l${i}`, ...l.config },
            inbound_nodes: i === 0 ? [] : [to(i === 1 ? 'in' : `l${i - 1}`)],
          }))
        : all;
      const topology = {
        class_name: isGraph ? 'Model' : 'Sequential',
        config: { layers: listed, input_layers: [['in', 0, 0]], output_layers: [[`l${layers.length}`, 0, 0]] },
      } as ModelTopology;
      const parsed = parseRunSpec({ model: { topology } });
      if (!parsed.ok) return;
      try {
        const { variables } = await describeModel(parsed.spec, IMAGES);
        expect(variables.length).toBeGreaterThan(0);
      } catch (error) {
        if (!(error instanceof ModelError)) throw error;
      }
    }),
    { numRuns: 300 },
  );
});

describe('describeModelInThread', () => {
  const large = sequential(
    ...Array.from(
      { length: LIMITS.modelLayers },
      (_, i) => ['Dense', { units: 10, ...(i === 0 ? { batch_input_shape: [null, 784] } : {}) }] as const,
    ),
  );
  const spec = (model: RunSpecInput['model']): RunSpec => specOf({ model });

  it('describes, and refuses with the same field and message', async () => {
    expect(await describeModelInThread(spec('mlp'), IMAGES)).toEqual(await describing('mlp'));
    await expect(describeModelInThread(spec(sequential(out10)), IMAGES)).rejects.toMatchObject({
      code: 'INVALID_MODEL',
      path: `${L}.0.config`,
    });
  });

  it('ends a thread that takes too long or too much, and takes the next ones in turn', async () => {
    const late = describeModelInThread(spec(large), IMAGES, { deadlineMs: 20 });
    await expect(late).rejects.toMatchObject({ code: 'INVALID_MODEL', message: expect.stringContaining('20 ms') });
    await expect(describeModelInThread(spec(large), IMAGES, { heapMegabytes: 10 })).rejects.toThrow('more than 10 MB');
    const many = await Promise.all(Array.from({ length: 4 }, () => describeModelInThread(spec('mlp'), IMAGES)));
    expect(many.map(({ parameterCount }) => parameterCount)).toEqual([235_146, 235_146, 235_146, 235_146]);
    expect(warmThreads()).toBeGreaterThan(0);
  });

  it('says that it is busy, not that the model is wrong, when a thread has to be waited for too long', async () => {
    const cold = { heapMegabytes: 300 }; // no thread of that size is warm: tf.js has to be loaded, which takes longer than a tick
    const settled = await Promise.allSettled(
      Array.from({ length: 5 }, () => describeModelInThread(spec('mlp'), IMAGES, { ...cold, waitMs: 5, deadlineMs: 1 })),
    );
    const codes = settled.map((result) => (result.status === 'rejected' ? (result.reason as { code: string }).code : 'described'));
    expect(codes).toEqual(Array.from({ length: 5 }, () => 'DESCRIBE_BUSY'));
  });

  it('takes a warm thread again, and replaces one that had to be ended', async () => {
    await describeModelInThread(spec('mlp'), IMAGES);
    const before = warmThreads();
    await expect(describeModelInThread(spec(large), IMAGES, { deadlineMs: 1 })).rejects.toMatchObject({ code: 'INVALID_MODEL' });
    expect(warmThreads()).toBe(before - 1);
    await describeModelInThread(spec('cnn'), IMAGES);
    expect(warmThreads()).toBeGreaterThanOrEqual(before - 1);
  });

  it('refuses what can be seen without tf.js before it waits for a thread', async () => {
    const twice = sequential(['Dense', { name: 'a', units: 10, batch_input_shape: [null, 784] }], ['Dense', { name: 'a', units: 10 }]);
    await expect(describeModelInThread(spec(twice), IMAGES, { waitMs: 0 })).rejects.toMatchObject({ code: 'INVALID_MODEL' });
  });
});
