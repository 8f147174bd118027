/** Models that together have every layer a run may have: what each engine's gradients are compared by. */
import type { RunSpecInput } from '@paceline/spec';
import { sequential } from './run.fixture.js';

type Layer = readonly [className: string, config?: Record<string, unknown>];
export type Model = RunSpecInput['model'];

export const input: Layer = ['InputLayer', { batch_input_shape: [null, 784] }];
export const out10: Layer = ['Dense', { units: 10, kernel_initializer: 'glorot_uniform' }];
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
export const dense = (units: number, activation = 'linear'): Layer => ['Dense', { units, activation }];
export const conv = (config: Record<string, unknown> = {}): Layer => ['Conv2D', { filters: 3, kernel_size: 3, ...config }];
const gru = (config: Record<string, unknown> = {}): Layer => ['GRU', { units: 6, reset_after: true, ...config }];
const flat = (...layers: readonly Layer[]): Model => sequential(input, ...layers, flatten, out10);
export const of = (...layers: readonly Layer[]): Model => sequential(input, ...layers, out10);
export const onImage = (...layers: readonly Layer[]): Model => flat(...image, ...layers);
export const onRows = (...layers: readonly Layer[]): Model => flat(...rows, ...layers);

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

/** Every allowed layer at least once. */
export const MODELS: readonly (readonly [string, Model])[] = [
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

/** Where tf.js's JavaScript backend gets the gradient wrong there is nothing to compare with but the slope. */
export const WRONG_ON_CPU: readonly (readonly [string, Model, string])[] = [
  ['nearest-neighbour upsampling', onImage(conv(), ['UpSampling2D', { size: [2, 2] }]), 'model.topology.config.layers.4'],
  [
    'padded average pooling',
    onImage(conv(), ['AveragePooling2D', { pool_size: [3, 3], strides: [2, 2], padding: 'same' }]),
    'model.topology.config.layers.4.config.padding',
  ],
];
