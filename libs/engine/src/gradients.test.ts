import { ALLOWED_LAYERS, layersOf, type ModelTopology, type RunSpecInput } from '@paceline/spec';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { describeModel } from './describe.js';
import { batchOf, largestDifference, loadedEngine, sequential, specOf, type Loaded } from './run.fixture.js';

type Layer = readonly [className: string, config?: Record<string, unknown>];
type Model = RunSpecInput['model'];

const input: Layer = ['InputLayer', { batch_input_shape: [null, 784] }];
const out10: Layer = ['Dense', { units: 10, kernel_initializer: 'glorot_uniform' }];
const flatten: Layer = ['Flatten'];
/** 9 × 9 of each image: small enough for quick slopes. */
const image: readonly Layer[] = [
  ['Reshape', { target_shape: [28, 28, 1] }],
  ['AveragePooling2D', { pool_size: [3, 3] }],
];
const rows: readonly Layer[] = [
  ['Reshape', { target_shape: [28, 28] }],
  ['AveragePooling1D', { pool_size: 4 }],
];
const dense = (units: number, activation = 'linear'): Layer => ['Dense', { units, activation }];
const conv = (config: Record<string, unknown> = {}): Layer => ['Conv2D', { filters: 3, kernel_size: 3, ...config }];
const gru = (config: Record<string, unknown> = {}): Layer => ['GRU', { units: 6, reset_after: true, ...config }];
const flat = (...layers: readonly Layer[]): Model => sequential(input, ...layers, flatten, out10);
const of = (...layers: readonly Layer[]): Model => sequential(input, ...layers, out10);
const onImage = (...layers: readonly Layer[]): Model => flat(...image, ...layers);
const onRows = (...layers: readonly Layer[]): Model => flat(...rows, ...layers);

/** Two dense branches, merged. */
function merged(className: string, config: Record<string, unknown> = {}): Model {
  const node = (class_name: string, name: string, rest: Record<string, unknown>, ...from: readonly string[]) => ({
    class_name,
    config: { name, ...rest },
    inbound_nodes: from.length === 0 ? [] : [from.map((source) => [source, 0, 0, {}])],
  });
  const layers = [
    node('InputLayer', 'in', { batch_input_shape: [null, 784] }),
    node('Dense', 'a', { units: 6 }, 'in'),
    node('Dense', 'b', { units: 6, activation: 'tanh' }, 'in'),
    node(className, 'merged', config, 'a', 'b'),
    node('Dense', 'out', { units: 10 }, 'merged'),
  ];
  return { topology: { class_name: 'Model', config: { layers, input_layers: [['in', 0, 0]], output_layers: [['out', 0, 0]] } } };
}

/** Every allowed layer at least once, without the random ones' randomness. */
const MODELS: readonly (readonly [string, Model])[] = [
  ['mlp', 'mlp'],
  ['a dense layer without bias', of(['Dense', { units: 12, activation: 'relu', use_bias: false }])],
  [
    'smooth activations',
    of(dense(9, 'tanh'), dense(9, 'sigmoid'), dense(9, 'elu'), dense(9, 'softplus'), dense(9, 'swish'), [
      'Activation',
      { activation: 'gelu_new' },
    ]),
  ],
  ['activation layers', of(dense(12), ['PReLU'], ['LeakyReLU'], dense(9), ['ELU'], dense(9), ['ReLU', { max_value: 6 }], ['Softmax'])],
  ['batch normalisation', of(dense(12), ['BatchNormalization'], ['Activation', { activation: 'relu' }])],
  ['batch normalisation of images', onImage(conv(), ['BatchNormalization', { momentum: 0.9 }])],
  [
    'batch normalisation along another axis, without scale and centre',
    onImage(conv(), ['BatchNormalization', { axis: 1, scale: false, center: false }]),
  ],
  [
    'batch normalisation of six channels, without centre',
    onImage(conv({ filters: 6 }), ['BatchNormalization', { center: false, epsilon: 0.01 }], ['Activation', { activation: 'tanh' }]),
  ],
  ['layer normalisation', of(dense(12), ['LayerNormalization'])],
  ['dense layers on rows', onRows(dense(5, 'relu'), ['Permute', { dims: [2, 1] }])],
  [
    'Conv1D',
    onRows(['Conv1D', { filters: 4, kernel_size: 3, strides: 2, activation: 'relu' }], ['Conv1D', { filters: 2, kernel_size: 2 }]),
  ],
  ['Conv2D', onImage(conv({ activation: 'relu' }), conv({ kernel_size: [3, 2], padding: 'same' }))],
  ['wide Conv2D', onImage(conv({ filters: 11, activation: 'tanh' }), conv({ filters: 17, kernel_size: [2, 3] }))],
  ['Conv2D of single pixels', onImage(conv({ filters: 5 }), conv({ filters: 9, kernel_size: 1, strides: 2, use_bias: false }))],
  ['strided Conv2D', onImage(conv({ strides: 2 }), conv({ kernel_size: 4, strides: 3, padding: 'same' }))],
  ['Conv2D with channels first', onImage(['Permute', { dims: [3, 1, 2] }], conv({ data_format: 'channels_first' }))],
  ['DepthwiseConv2D', onImage(['DepthwiseConv2D', { kernel_size: 3, depth_multiplier: 2 }], ['DepthwiseConv2D', { kernel_size: 3 }])],
  ['strided, padded DepthwiseConv2D', onImage(conv({ filters: 5 }), ['DepthwiseConv2D', { kernel_size: 3, strides: 2, padding: 'same' }])],
  ['SeparableConv2D', onImage(['SeparableConv2D', { filters: 4, kernel_size: 3 }], ['SeparableConv2D', { filters: 2, kernel_size: 3 }])],
  [
    'Conv2DTranspose',
    onImage(
      conv({ strides: 2 }),
      ['Conv2DTranspose', { filters: 3, kernel_size: 3, strides: 2 }],
      ['Conv2DTranspose', { filters: 2, kernel_size: 3 }],
    ),
  ],
  ['max pooling', onImage(conv(), ['MaxPooling2D', { pool_size: [3, 3], strides: [2, 2], padding: 'same' }])],
  ['max pooling of two by two', onImage(conv({ filters: 8, activation: 'tanh' }), ['MaxPooling2D', { pool_size: [2, 2] }])],
  ['max pooling behind Conv2D', onImage(conv({ filters: 8, activation: 'relu' }), ['MaxPooling2D'])],
  [
    'max pooling of three by two behind padded Conv2D without bias',
    onImage(conv({ padding: 'same', use_bias: false }), ['MaxPooling2D', { pool_size: [3, 2], strides: [4, 2] }]),
  ],
  ['average pooling', onImage(conv(), ['AveragePooling2D', { pool_size: [2, 2] }])],
  ['overlapping average pooling', onImage(conv(), ['AveragePooling2D', { pool_size: [3, 3], strides: [2, 2] }])],
  ['pooling of rows', onRows(dense(3), ['MaxPooling1D', { pool_size: 2 }], ['AveragePooling1D', { pool_size: 2 }])],
  ['global average pooling', of(...image, conv(), ['GlobalAveragePooling2D'])],
  ['global max pooling', of(...image, conv(), ['GlobalMaxPooling2D'])],
  ['global pooling of rows', of(...rows, dense(4), ['GlobalAveragePooling1D'])],
  ['global max pooling of rows', of(...rows, dense(4), ['GlobalMaxPooling1D'])],
  [
    'cropping, padding and upsampling',
    onImage(
      conv(),
      [
        'Cropping2D',
        {
          cropping: [
            [1, 1],
            [2, 0],
          ],
        },
      ],
      [
        'ZeroPadding2D',
        {
          padding: [
            [1, 1],
            [0, 2],
          ],
        },
      ],
      ['UpSampling2D', { size: [2, 2], interpolation: 'bilinear' }],
    ),
  ],
  ['RepeatVector', flat(dense(6), ['RepeatVector', { n: 3 }])],
  ['Masking and SimpleRNN', onRows(['Masking', { mask_value: 2 }], ['SimpleRNN', { units: 4, return_sequences: true }])],
  ['LSTM', of(...rows, ['LSTM', { units: 5 }])],
  ['LSTM as in Keras', onRows(['LSTM', { units: 9, recurrent_activation: 'sigmoid', return_sequences: true }])],
  ['LSTM backwards, without bias', of(...rows, ['LSTM', { units: 4, use_bias: false, go_backwards: true }])],
  ['LSTM with dropout', of(...rows, ['LSTM', { units: 4, dropout: 0.2, recurrent_dropout: 0.2 }])],
  ['LSTM with dropout of its inputs', of(...rows, ['LSTM', { units: 6, dropout: 0.3, return_sequences: true }], ['GlobalMaxPooling1D'])],
  ['GRU with dropout of its inputs', of(...rows, gru({ dropout: 0.3 }))],
  ['LSTM with another activation', of(...rows, ['LSTM', { units: 4, activation: 'softsign' }])],
  ['LSTM behind a mask', of(...rows, ['Masking', { mask_value: 2 }], ['LSTM', { units: 4 }])],
  ['LSTM on LSTM', of(...rows, ['LSTM', { units: 8, return_sequences: true }], ['LSTM', { units: 7 }])],
  ['GRU', of(...rows, ['GRU', { units: 5 }])],
  ['GRU as in Keras', onRows(['GRU', { units: 9, recurrent_activation: 'sigmoid', reset_after: true, return_sequences: true }])],
  ['GRU on GRU, reset after', of(...rows, gru({ return_sequences: true }), gru({ units: 4, use_bias: false }))],
  ['GRU with dropout, reset after', of(...rows, gru({ dropout: 0.2, recurrent_dropout: 0.2 }))],
  [
    'bidirectional GRU, reset after',
    onRows([
      'Bidirectional',
      { merge_mode: 'sum', layer: { class_name: 'GRU', config: { units: 3, reset_after: true, return_sequences: true } } },
    ]),
  ],
  [
    'Bidirectional',
    onRows(['Bidirectional', { merge_mode: 'concat', layer: { class_name: 'LSTM', config: { units: 3, return_sequences: true } } }]),
  ],
  ['TimeDistributed', onRows(['TimeDistributed', { layer: { class_name: 'Dense', config: { units: 3, activation: 'tanh' } } }])],
  ['Embedding', flat(['Embedding', { input_dim: 4, output_dim: 2 }])],
  ...['Add', 'Average', 'Concatenate', 'Maximum', 'Minimum', 'Multiply'].map((name) => [name, merged(name)] as const),
  ['Dot', merged('Dot', { axes: -1 })],
  [
    'dropout and noise',
    of(
      dense(12),
      ['GaussianNoise', { stddev: 0.1 }],
      ['Dropout', { rate: 0.3 }],
      dense(8),
      ['GaussianDropout', { rate: 0.3 }],
      ['AlphaDropout', { rate: 0.3 }],
    ),
  ],
  ['spatial dropout', onRows(dense(4), ['SpatialDropout1D', { rate: 0.3 }])],
];

/** Allowed by the schema, because Keras has them, and refused by the description, because tf.js cannot train them. */
const REFUSED: readonly (readonly [string, Model, string])[] = [
  ['ThresholdedReLU', of(dense(8), ['ThresholdedReLU']), 'model.topology.config.layers.2'],
  ['causal Conv1D', onRows(['Conv1D', { filters: 2, kernel_size: 3, padding: 'causal' }]), 'model.topology.config.layers.3.config.padding'],
  ['dilated Conv2D', onImage(conv({ dilation_rate: [2, 2] })), 'model.topology.config.layers.3.config.dilation_rate'],
];

it('covers every allowed layer', () => {
  const topologies = [...MODELS, ...REFUSED].flatMap(([, model]) =>
    typeof model === 'string' || !model ? [] : [model.topology as ModelTopology],
  );
  const used = new Set(topologies.flatMap((topology) => layersOf(topology).map(({ layer }) => layer.class_name)));
  expect(ALLOWED_LAYERS.filter((name) => !used.has(name))).toEqual([]);
});

it.each(REFUSED)('%s is refused when the run is described', async (_, model, path) => {
  await expect(describeModel(specOf({ model }))).rejects.toMatchObject({ code: 'INVALID_MODEL', path });
});

/** The gradient is the slope of the training loss along its own direction. */
function expectSlope(loaded: Loaded): void {
  const batch = batchOf(6, 3);
  const { engine, layout, flat: start } = loaded;
  const gradient = new Float32Array(layout.totalLength);
  engine.step({ round: 0, replica: 0, batches: [batch], out: gradient });
  const norm = Math.sqrt(gradient.subarray(0, layout.trainableLength).reduce((sum, g) => sum + g * g, 0));
  expect(norm).toBeGreaterThan(1e-3);
  const scratch = new Float32Array(layout.totalLength);
  const lossAt = (distance: number): number => {
    engine.load(start.map((value, i) => (i < layout.trainableLength ? value + (distance * gradient[i]!) / norm : value)));
    // The training loss: batch normalisation must see the batch.
    return engine.step({ round: 0, replica: 0, batches: [batch], out: scratch }).metricSums[0]!;
  };
  const h = 4e-3;
  const slope = (8 * (lossAt(h) - lossAt(-h)) - (lossAt(2 * h) - lossAt(-2 * h))) / (12 * h);
  engine.load(start);
  expect(Math.abs(slope - norm) / norm).toBeLessThan(5e-3);
}

/** Where tf.js's JavaScript backend gets the gradient wrong there is nothing to compare with but the slope. */
const WRONG_ON_CPU: readonly (readonly [string, Model, string])[] = [
  ['nearest-neighbour upsampling', onImage(conv(), ['UpSampling2D', { size: [2, 2] }]), 'model.topology.config.layers.4'],
  [
    'padded average pooling',
    onImage(conv(), ['AveragePooling2D', { pool_size: [3, 3], strides: [2, 2], padding: 'same' }]),
    'model.topology.config.layers.4.config.padding',
  ],
];

describe.each(WRONG_ON_CPU)('%s', (_, model, path) => {
  it('is refused on the engine that gets its gradient wrong', async () => {
    await expect(describeModel(specOf({ model, engine: 'cpu' }))).rejects.toMatchObject({ path });
  });

  it('has the gradient of its slope on wasm', async () => {
    const loaded = await loadedEngine(run(model, 'wasm', 'sparseCategoricalCrossentropy'));
    expectSlope(loaded);
    loaded.engine.dispose();
  });
});

const run = (model: RunSpecInput['model'], engine: 'wasm' | 'cpu', loss: RunSpecInput['loss']): RunSpecInput => ({ model, engine, loss });

describe.each(MODELS)('the gradient of %s', (_, model) => {
  let wasm: Loaded;
  let cpu: Loaded;
  beforeAll(async () => {
    wasm = await loadedEngine(run(model, 'wasm', 'sparseCategoricalCrossentropy'));
    cpu = await loadedEngine(run(model, 'cpu', 'sparseCategoricalCrossentropy'));
  });
  afterAll(() => {
    wasm.engine.dispose();
    cpu.engine.dispose();
  });

  it('is the same on wasm and on the JavaScript backend', () => {
    const batch = batchOf(7);
    const [a, b] = [wasm, cpu].map(({ engine, layout }) => {
      const out = new Float32Array(layout.totalLength);
      return { out, sums: engine.step({ round: 0, replica: 0, batches: [batch], out }) };
    });
    expect(a!.sums.metricSums[0]).toBeCloseTo(b!.sums.metricSums[0]!, 3);
    expect(a!.sums.metricSums[1]).toBe(b!.sums.metricSums[1]);
    expect(largestDifference(a!.out, b!.out, 0.5)).toBeLessThan(2e-4);
  });

  it('is the slope of the loss along its own direction', () => expectSlope(wasm));
});

it.each(['meanSquaredError', 'categoricalCrossentropy'] as const)('%s has the gradient of its own slope', async (loss) => {
  const { engine, layout, flat } = await loadedEngine(run(sequential(input, out10), 'wasm', loss));
  const batch = batchOf(5);
  const gradient = new Float32Array(layout.totalLength);
  engine.step({ round: 0, replica: 0, batches: [batch], out: gradient });
  const norm = Math.sqrt(gradient.reduce((sum, g) => sum + g * g, 0));
  const lossAt = (distance: number): number => {
    engine.load(flat.map((value, i) => value + (distance * gradient[i]!) / norm));
    return engine.evaluate(batch).metricSums[0]!;
  };
  expect((lossAt(1e-2) - lossAt(-1e-2)) / 2e-2).toBeCloseTo(norm, 2);
  engine.dispose();
});

it('scores like the definition', async () => {
  const loaded = await loadedEngine(
    run(sequential(['Dense', { units: 10, batch_input_shape: [null, 784] }]), 'wasm', 'sparseCategoricalCrossentropy'),
  );
  expect(specOf({}).metrics).toEqual(['accuracy']);
  loaded.flat.fill(0);
  loaded.flat[7840 + 3] = 2; // the bias of class 3: logits 2 against 0
  loaded.engine.load(loaded.flat);
  const batch = { ...batchOf(2), y: Int32Array.of(3, 4) };
  const [loss, correct] = loaded.engine.evaluate(batch).metricSums;
  expect(loss).toBeCloseTo(2 * Math.log(Math.exp(2) + 9) - 2, 5);
  expect(correct).toBe(1);
  loaded.engine.dispose();
});
