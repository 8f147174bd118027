/** The larger models of the examples of TensorFlow.js. */
import type { ModelTopology } from '@paceline/spec';
import { tfjs, dense, conv, pool, dropout, flatten, norm, Graph, type Config, type Listed } from './build.fixture.js';

export const mnistDeep = tfjs(
  [28, 28, 1],
  conv(8, 3),
  conv(8, 3),
  pool(2),
  conv(16, 3),
  conv(16, 3),
  pool(2),
  flatten,
  dropout(0.25),
  dense(32, 'relu'),
  dropout(0.5),
  dense(10, 'softmax'),
);

export const additionRnn = (cell: string): ModelTopology => {
  const rnn = (config: Config): Listed => [cell, Object.assign({ units: 8, recurrent_initializer: 'glorot_normal' }, config)];
  return tfjs(
    [7, 12],
    rnn({}),
    ['RepeatVector', { n: 4 }],
    rnn({ return_sequences: true }),
    ['TimeDistributed', { layer: { class_name: 'Dense', config: { units: 12 } } }],
    ['Activation', { activation: 'softmax' }],
  );
};

export const sentiment = (...layers: readonly Listed[]): ModelTopology =>
  tfjs([20], ['Embedding', { input_dim: 50, output_dim: 8 }], ...layers, dense(1, 'sigmoid'));

/** The first dot gives scores, the second the context; `softmax` is over the steps of the encoder. */
export function dateAttention(): ModelTopology {
  const g = new Graph('tfjs');
  const [encoderIn, decoderIn] = [g.input('encoderInput', [12]), g.input('decoderInput', [10])];
  const encoder = g.chain(
    encoderIn,
    ['Embedding', { input_dim: 35, output_dim: 8, input_length: 12, mask_zero: true }],
    ['LSTM', { units: 8, return_sequences: true }],
  );
  const last = g.on(encoder, 'GetLastTimestepLayer', {}, 'encoderLast');
  const embedded = g.on(decoderIn, 'Embedding', { input_dim: 13, output_dim: 8 });
  const decoder = g.on([embedded, last, last], 'LSTM', { units: 8, return_sequences: true });
  return g.model(
    [encoderIn, decoderIn],
    [g.chain(decoder, ['TimeDistributed', { layer: { class_name: 'Dense', config: { units: 13, activation: 'softmax' } } }])],
  );
}

/** Generator and discriminator as they are trained together: two models in one, and two outputs. */
export function acgan(): ModelTopology {
  const generator = tfjs(
    [6],
    dense(3 * 3 * 12, 'relu'),
    ['Reshape', { target_shape: [3, 3, 12] }],
    [
      'Conv2DTranspose',
      { filters: 8, kernel_size: 5, strides: 1, padding: 'valid', activation: 'relu', kernel_initializer: 'glorot_normal' },
    ],
    norm,
    ['Conv2DTranspose', { filters: 4, kernel_size: 5, strides: 2, padding: 'same', activation: 'relu' }],
    norm,
    ['Conv2DTranspose', { filters: 1, kernel_size: 5, strides: 2, padding: 'same', activation: 'tanh' }],
  );
  const leaky: Listed = ['LeakyReLU', { alpha: 0.2 }];
  const features = tfjs(
    [28, 28, 1],
    conv(4, 3, { activation: 'linear', padding: 'same', strides: 2 }),
    leaky,
    dropout(0.3),
    conv(8, 3, { activation: 'linear', padding: 'same', strides: 1 }),
    leaky,
    dropout(0.3),
    flatten,
  );
  const own = (name: string, model: ModelTopology): Config => Object.assign({}, model.config, { name });
  const inner = new Graph('tfjs');
  const [latent, kind] = [inner.input('latent', [6]), inner.input('kind', [1])];
  const embedded = inner.chain(kind, ['Embedding', { input_dim: 10, output_dim: 6, embeddings_initializer: 'glorot_normal' }], flatten);
  const fake = inner.on(inner.on([latent, embedded], 'Multiply'), 'Sequential', own('generator_cnn', generator), 'generator_cnn');
  const judge = new Graph('tfjs');
  const image = judge.input('image', [28, 28, 1]);
  const seen = judge.on(image, 'Sequential', own('features', features), 'features');
  const verdict = judge.model(
    [image],
    [
      judge.on(seen, 'Dense', { units: 1, activation: 'sigmoid' }, 'realness'),
      judge.on(seen, 'Dense', { units: 10, activation: 'softmax' }, 'aux'),
    ],
  );
  const g = new Graph('tfjs');
  const [a, b] = [g.input('z', [6]), g.input('label', [1])];
  const made = g.on([a, b], 'Model', own('generator', inner.model([latent, kind], [fake])), 'generator');
  const [name, node] = g.on(made, 'Model', own('discriminator', verdict), 'discriminator');
  return g.model(
    [a, b],
    [
      g.on([name, node, 0], 'Activation', { activation: 'linear' }, 'real'),
      g.on([name, node, 1], 'Activation', { activation: 'linear' }, 'class'),
    ],
  );
}

/** MobileNet as far as the examples take it, frozen, with a head of their own. */
export function transfer(): ModelTopology {
  const g = new Graph('tfjs');
  const image = g.input('input_1', [32, 32, 3]);
  const frozen = { trainable: false };
  const six: Listed = ['ReLU', { max_value: 6, trainable: false }];
  let x = g.chain(
    image,
    [
      'ZeroPadding2D',
      {
        padding: [
          [0, 1],
          [0, 1],
        ],
        trainable: false,
      },
    ],
    conv(8, 3, { activation: 'linear', strides: [2, 2], use_bias: false, ...frozen }),
    ['BatchNormalization', frozen],
    six,
  );
  for (const [filters, strides] of [
    [8, 1],
    [16, 2],
    [16, 1],
  ] as const)
    x = g.chain(
      x,
      [
        'DepthwiseConv2D',
        { kernel_size: [3, 3], strides: [strides, strides], padding: 'same', use_bias: false, depth_multiplier: 1, ...frozen },
      ],
      ['BatchNormalization', frozen],
      six,
      conv(filters, 1, { activation: 'linear', padding: 'same', use_bias: false, ...frozen }),
      ['BatchNormalization', frozen],
      six,
    );
  const head = tfjs(
    [8, 8, 16],
    flatten,
    dense(16, 'relu', { kernel_initializer: 'variance_scaling', use_bias: true }),
    dense(4, 'softmax', { kernel_initializer: 'variance_scaling', use_bias: false }),
  );
  return g.model([image], [g.on(x, 'Sequential', Object.assign({}, head.config, { name: 'head' }), 'head')]);
}

export function detector(): ModelTopology {
  const topology = transfer() as unknown as { config: { layers: { config: { layers?: unknown } }[] } };
  topology.config.layers.at(-1)!.config.layers = tfjs([8, 8, 16], flatten, dense(20, 'relu'), dense(5)).config['layers'];
  return topology as unknown as ModelTopology;
}
