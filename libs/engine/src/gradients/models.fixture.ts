/** Models that together have every layer a run may have: what each engine's gradients are compared by. */
import { ATTENTION_MODELS } from './attention.fixture.js';
import {
  type Model,
  image,
  rows,
  dense,
  conv,
  conv3d,
  convLstm,
  cell,
  rnn,
  stack,
  gru,
  flat,
  of,
  ofKeras3,
  onImage,
  onRows,
  onVolume,
  onFilm,
  masksThatMeet,
  merged,
} from './build.fixture.js';

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
  [
    'rectifiers with slopes of their own',
    of(dense(9), ['LeakyReLU', { negative_slope: 0.4 }], dense(9), ['ReLU', { negative_slope: 0.6, max_value: 9 }]),
  ],
  // With a threshold there is a jump, which has no slope (layers/keras-layers.test.ts).
  ['ThresholdedReLU', of(dense(9), ['ThresholdedReLU', { theta: 0 }])],
  [
    'activations of Keras',
    of(
      ...[
        'silu',
        'hard_silu',
        'hard_swish',
        'leaky_relu',
        'exponential',
        'celu',
        'hard_tanh',
        'tanh_shrink',
        'log_sigmoid',
        'squareplus',
      ].map((name) => dense(9, name)),
      dense(9, 'gelu'),
      dense(9, 'mish'),
    ),
  ],
  ['hard_sigmoid of Keras 3', ofKeras3(...rows, dense(5, 'hard_sigmoid'), ['LSTM', { units: 4, recurrent_activation: 'hard_sigmoid' }])],
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
  [
    'causal Conv1D, with strides and with holes',
    onRows(
      ['Conv1D', { filters: 4, kernel_size: 3, padding: 'causal', strides: 2, activation: 'tanh' }],
      ['Conv1D', { filters: 3, kernel_size: 2, padding: 'causal', dilation_rate: 3 }],
    ),
  ],
  ['Conv1D whose windows leave steps out', onRows(['Conv1D', { filters: 4, kernel_size: 2, strides: 4, padding: 'same' }])],
  [
    'convolutions whose windows leave pixels out',
    onImage(
      conv({ kernel_size: 2 }), // 8 × 8
      conv({ kernel_size: [1, 3], strides: 2, padding: 'same', activation: 'tanh' }), // 4 × 4
      ['DepthwiseConv2D', { kernel_size: 2, strides: 4, padding: 'same' }],
    ),
  ],
  [
    'Conv2DTranspose whose windows leave pixels out',
    onImage(conv({ strides: 2 }), ['Conv2DTranspose', { filters: 2, kernel_size: [1, 2], strides: 3, padding: 'same' }]),
  ],
  ['Conv2D', onImage(conv({ activation: 'relu' }), conv({ kernel_size: [3, 2], padding: 'same' }))],
  ['wide Conv2D', onImage(conv({ filters: 11, activation: 'tanh' }), conv({ filters: 17, kernel_size: [2, 3] }))],
  ['Conv2D of single pixels', onImage(conv({ filters: 5 }), conv({ filters: 9, kernel_size: 1, strides: 2, use_bias: false }))],
  // prettier-ignore
  ['Conv1DTranspose', onRows(
    ['Conv1DTranspose', { filters: 3, kernel_size: 4, strides: 2, padding: 'same', activation: 'sigmoid' }],
    ['Conv1DTranspose', { filters: 2, kernel_size: 3, kernel_regularizer: { class_name: 'L2', config: { l2: 0.1 } } }],
  )],
  // prettier-ignore
  ['images that are normalised and made larger and smaller', onImage(
    ['Normalization', { mean: [0.4], variance: [0.09] }], conv(), ['Resizing', { height: 10, width: 5 }],
    conv({ activation: 'tanh' }), ['Resizing', { height: 3, width: 6, interpolation: 'nearest' }],
  )],
  ['Subtract', merged('Subtract')],
  [
    'global pooling that keeps its dimensions',
    onImage(conv(), ['GlobalAveragePooling2D', { keepdims: true }], conv({ kernel_size: 1, activation: 'tanh' }), [
      'GlobalMaxPooling2D',
      { keepdims: true },
    ]),
  ],
  ['strided Conv2D', onImage(conv({ strides: 2 }), conv({ kernel_size: 4, strides: 3, padding: 'same' }))],
  ['Conv2D with channels first', onImage(['Permute', { dims: [3, 1, 2] }], conv({ data_format: 'channels_first' }))],
  ['DepthwiseConv2D', onImage(['DepthwiseConv2D', { kernel_size: 3, depth_multiplier: 2 }], ['DepthwiseConv2D', { kernel_size: 3 }])],
  ['strided, padded DepthwiseConv2D', onImage(conv({ filters: 5 }), ['DepthwiseConv2D', { kernel_size: 3, strides: 2, padding: 'same' }])],
  [
    'dilated DepthwiseConv2D',
    onImage(['DepthwiseConv2D', { kernel_size: 3, depth_multiplier: 2, dilation_rate: [2, 1], padding: 'same' }]),
  ],
  [
    'dilated SeparableConv2D',
    onImage(
      ['SeparableConv2D', { filters: 4, kernel_size: 3, dilation_rate: 2 }],
      ['SeparableConv2D', { filters: 2, kernel_size: 2, dilation_rate: [1, 3], activation: 'tanh' }],
    ),
  ],
  [
    'SeparableConv2D with channels first',
    onImage(['Permute', { dims: [3, 1, 2] }], ['SeparableConv2D', { filters: 4, kernel_size: 3, data_format: 'channels_first' }]),
  ],
  ['dilated Conv1D', onRows(['Conv1D', { filters: 4, kernel_size: 3, dilation_rate: 2, activation: 'relu' }])],
  ['dilated Conv2D', onImage(conv({ dilation_rate: 2, activation: 'relu' }), conv({ dilation_rate: [1, 2], padding: 'same' }))],
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
  ['bilinear upsampling of oblong images', onImage(conv({ kernel_size: [2, 5] }), ['UpSampling2D', { interpolation: 'bilinear' }])],
  ['RepeatVector', flat(dense(6), ['RepeatVector', { n: 3 }])],
  ['masks that meet in Concatenate', masksThatMeet('Concatenate')],
  ['Masking behind layers with weights', of(...rows, ['Dense', { units: 2, use_bias: false }], ['Masking', {}], ['LSTM', { units: 4 }])],
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
  ['spatial dropout of images', onImage(conv(), ['SpatialDropout2D', { rate: 0.3 }])],
  ['Conv3D', onVolume(conv3d({ activation: 'tanh' }), conv3d({ filters: 3, kernel_size: [2, 3, 1] }))],
  [
    'strided, padded Conv3D',
    onVolume(conv3d({ strides: 2, padding: 'same', use_bias: false }), conv3d({ filters: 5, kernel_size: 2, strides: [1, 2, 2] })),
  ],
  [
    'Conv3D with channels first',
    onVolume(['Permute', { dims: [4, 1, 2, 3] }], conv3d({ data_format: 'channels_first' }), [
      'MaxPooling3D',
      { data_format: 'channels_first' },
    ]),
  ],
  [
    'Conv3DTranspose',
    onVolume(
      conv3d({ strides: 3 }),
      ['Conv3DTranspose', { filters: 3, kernel_size: 3, strides: 2, activation: 'tanh' }],
      ['Conv3DTranspose', { filters: 2, kernel_size: [1, 2, 3], padding: 'same', strides: [1, 2, 1], use_bias: false }],
    ),
  ],
  [
    'Conv3DTranspose with channels first',
    onVolume(['Permute', { dims: [4, 1, 2, 3] }], conv3d({ strides: 3, data_format: 'channels_first' }), [
      'Conv3DTranspose',
      { filters: 2, kernel_size: 2, strides: 2, data_format: 'channels_first' },
    ]),
  ],
  ['max pooling of volumes', onVolume(conv3d(), ['MaxPooling3D', { pool_size: [3, 2, 2] }])],
  ['max pooling of volumes along their depth alone', onVolume(conv3d(), ['MaxPooling3D', { pool_size: [2, 1, 1], strides: [1, 2, 2] }])],
  ['overlapping, padded max pooling of volumes', onVolume(conv3d(), ['MaxPooling3D', { pool_size: 3, strides: 2, padding: 'same' }])],
  ['average pooling of volumes', onVolume(conv3d(), ['AveragePooling3D'])],
  ['overlapping average pooling of volumes', onVolume(conv3d(), ['AveragePooling3D', { pool_size: [2, 3, 3], strides: [1, 2, 2] }])],
  ['ConvLSTM2D', onFilm(convLstm())],
  [
    'padded ConvLSTM2D backwards, sequences, sigmoid',
    onFilm(convLstm({ padding: 'same', return_sequences: true, go_backwards: true, recurrent_activation: 'sigmoid' })),
  ],
  ['strided ConvLSTM2D without bias', onFilm(convLstm({ strides: 2, kernel_size: [2, 3], use_bias: false }))],
  ['ConvLSTM2D with dropout', onFilm(convLstm({ dropout: 0.2, recurrent_dropout: 0.2 }))],
  ['ConvLSTM2D behind a mask', onFilm(['Masking', { mask_value: 2 }], convLstm({ padding: 'same' }))],
  [
    'ConvLSTM2D with channels first',
    onFilm(['Permute', { dims: [1, 4, 2, 3] }], convLstm({ data_format: 'channels_first', return_sequences: true })),
  ],
  [
    'bidirectional ConvLSTM2D on ConvLSTM2D',
    onFilm(convLstm({ return_sequences: true }), [
      'Bidirectional',
      { merge_mode: 'concat', layer: { class_name: 'ConvLSTM2D', config: { filters: 2, kernel_size: 2, return_sequences: true } } },
    ]),
  ],
  ['RNN of SimpleRNNCell', of(...rows, rnn(cell('SimpleRNNCell', { activation: 'sigmoid' })))],
  ['RNN of LSTMCell', onRows(rnn(cell('LSTMCell'), { return_sequences: true }))],
  ['RNN of GRUCell backwards', of(...rows, rnn(cell('GRUCell'), { go_backwards: true }))],
  ['RNN of GRUCell, reset after', of(...rows, rnn(cell('GRUCell', { reset_after: true })))],
  ['RNN of LSTMCell with dropout', of(...rows, rnn(cell('LSTMCell', { dropout: 0.2, recurrent_dropout: 0.2 })))],
  [
    'RNN of stacked cells',
    onRows(rnn(stack(cell('GRUCell'), cell('LSTMCell', { units: 3 }), cell('SimpleRNNCell', { units: 5 })), { return_sequences: true })),
  ],
  [
    'RNN of stacks in stacks with dropout',
    of(...rows, rnn(stack(cell('GRUCell', { dropout: 0.3 }), stack(cell('LSTMCell', { recurrent_dropout: 0.2 }), cell('LSTMCell'))))),
  ],
  ['RNN of stacked cells behind a mask', of(...rows, ['Masking', { mask_value: 2 }], rnn(stack(cell('GRUCell'), cell('LSTMCell'))))],
  [
    'bidirectional RNN',
    onRows([
      'Bidirectional',
      { merge_mode: 'concat', layer: { class_name: 'RNN', config: { cell: cell('GRUCell'), return_sequences: true } } },
    ]),
  ],
  [
    'RNN in TimeDistributed',
    onFilm(
      ['Reshape', { target_shape: [4, 7, 7] }],
      ['TimeDistributed', { layer: { class_name: 'RNN', config: { cell: stack(cell('LSTMCell'), cell('GRUCell')) } } }],
    ),
  ],
  [
    'regularizers of cells and wrapped layers',
    onRows(
      rnn(cell('LSTMCell', { kernel_regularizer: { class_name: 'L1L2', config: { l1: 0.01, l2: 0.02 } } }), { return_sequences: true }),
      [
        'Bidirectional',
        { merge_mode: 'sum', layer: { class_name: 'GRU', config: { units: 3, return_sequences: true, recurrent_regularizer: 'l1l2' } } },
      ],
    ),
  ],
  ...ATTENTION_MODELS,
  ['Rescaling', onImage(conv(), ['Rescaling', { scale: -1.5, offset: 0.25 }], ['Rescaling', { scale: 2 }])],
  [
    'CenterCrop',
    flat(['Reshape', { target_shape: [28, 28, 1] }], ['CenterCrop', { height: 9, width: 12 }], conv(), [
      'CenterCrop',
      { height: 4, width: 9 },
    ]),
  ],
  [
    'CenterCrop in TimeDistributed',
    onFilm(['TimeDistributed', { layer: { class_name: 'CenterCrop', config: { height: 3, width: 6 } } }], conv3d({ kernel_size: 2 })),
  ],
  ['CategoryEncoding', of(['Rescaling', { scale: 20 }], ['CategoryEncoding', { num_tokens: 30 }])],
  [
    'CategoryEncoding that counts',
    of(['Rescaling', { scale: 20 }], ['CategoryEncoding', { num_tokens: 30, output_mode: 'count' }], ['Rescaling', { scale: 0.01 }]),
  ],
  [
    'CategoryEncoding of one number',
    of(...image, ['GlobalMaxPooling2D'], ['Rescaling', { scale: 5 }], ['CategoryEncoding', { num_tokens: 6, output_mode: 'one_hot' }]),
  ],
];

/** Where tf.js's JavaScript backend gets the gradient wrong there is nothing to compare with but the slope. */
export const WRONG_ON_CPU: readonly (readonly [string, Model, string])[] = [
  ['nearest-neighbour upsampling', onImage(conv(), ['UpSampling2D', { size: [2, 2] }]), 'model.topology.config.layers.4'],
  [
    'padded average pooling',
    onImage(conv(), ['AveragePooling2D', { pool_size: [3, 3], strides: [2, 2], padding: 'same' }]),
    'model.topology.config.layers.4.config.padding',
  ],
  [
    'padded average pooling of volumes',
    onVolume(conv3d(), ['AveragePooling3D', { pool_size: 3, strides: [1, 2, 2], padding: 'same' }]),
    'model.topology.config.layers.3.config.padding',
  ],
  ...(
    [
      conv3d({ kernel_size: 1, strides: 2, padding: 'same' }),
      ['Conv3DTranspose', { filters: 2, kernel_size: 1, strides: 2, padding: 'same' }],
      ['AveragePooling3D', { pool_size: 2, strides: 3, padding: 'same' }],
      ['MaxPooling3D', { pool_size: 2, strides: 3, padding: 'same' }],
    ] as const
  ).map(
    (layer) =>
      [
        `${layer[0]} whose windows leave voxels out`,
        onVolume(conv3d({ kernel_size: [2, 3, 3], activation: 'tanh' }), layer), // 6 × 12 × 6
        layer[0] === 'AveragePooling3D' ? 'model.topology.config.layers.3.config.padding' : 'model.topology.config.layers.3',
      ] as const,
  ),
  [
    'max pooling of volumes with oblong windows',
    onVolume(conv3d(), ['MaxPooling3D', { pool_size: [2, 3, 2] }]),
    'model.topology.config.layers.3.config.pool_size',
  ],
];

/** Allowed by the schema, because Keras has them, and refused by the description, because tf.js cannot train them. */
export const REFUSED: readonly (readonly [string, Model, string])[] = [
  ['dilated Conv3D', onVolume(conv3d({ dilation_rate: [1, 2, 1] })), 'model.topology.config.layers.2.config.dilation_rate'],
  ['dilated ConvLSTM2D', onFilm(convLstm({ dilation_rate: 2 })), 'model.topology.config.layers.3.config.dilation_rate'],
  ['CenterCrop of more than there is', onImage(['CenterCrop', { height: 10, width: 3 }]), 'model.topology.config.layers.3'],
  ['CategoryEncoding behind weights', of(dense(3, 'sigmoid'), ['CategoryEncoding', { num_tokens: 2 }]), 'model.topology.config.layers.2'],
  ['CategoryEncoding of images', onImage(['CategoryEncoding', { num_tokens: 2 }]), 'model.topology.config.layers.3'],
  [
    'CategoryEncoding by tf-idf',
    of(['CategoryEncoding', { num_tokens: 2, output_mode: 'tf_idf' }]),
    'model.topology.config.layers.1.config.output_mode',
  ],
  ['Rescaling by a list', of(['Rescaling', { scale: [1, 2] }]), 'model.topology.config.layers.1.config.scale'],
  [
    'ConvLSTM2D that makes masked images smaller',
    onFilm(
      ['Masking', { mask_value: 2 }],
      ['Rescaling', { scale: 1 }],
      ['Masking', { mask_value: 3 }],
      ['Activation', { activation: 'relu' }],
      convLstm(),
    ),
    'model.topology.config.layers.7',
  ],
];
