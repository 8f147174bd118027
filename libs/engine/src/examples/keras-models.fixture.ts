/** Topologies of examples and guides of Keras that take more than a line. */
import type { ModelTopology } from '@paceline/spec';
import { dense, conv, pool, dropout, flatten, norm, relu, same, Graph, type Config, type Listed, type Tensor } from './build.fixture.js';

/** `keras.Sequential`, as Keras 3 writes it. */
export const keras = (shape: readonly (number | null)[], ...layers: readonly Listed[]): ModelTopology => {
  const marked = (class_name: string, config: Config) => ({ module: 'keras.layers', class_name, config, registered_name: null });
  return {
    class_name: 'Sequential',
    config: {
      name: 'sequential',
      trainable: true,
      layers: [
        marked('InputLayer', { batch_shape: [null, ...shape], dtype: 'float32', sparse: false, name: 'input_layer' }),
        ...layers.map(([class_name, config = {}], i) =>
          marked(class_name, Object.assign({ name: `${class_name.toLowerCase()}_${i}`, trainable: true }, config)),
        ),
      ],
    },
  };
};

export function xception(): ModelTopology {
  const g = new Graph('keras3');
  const image = g.input('image', [32, 32, 3]);
  let x = g.chain(
    image,
    ['Rescaling', { scale: 1 / 255, offset: 0 }],
    conv(4, 3, { activation: 'linear', strides: [2, 2], ...same }),
    norm,
    relu,
    conv(8, 3, { activation: 'linear', ...same }),
    norm,
    relu,
  );
  for (const size of [8, 12, 16]) {
    const separable: Listed = ['SeparableConv2D', { filters: size, kernel_size: [3, 3], ...same }];
    const main = g.chain(x, relu, separable, norm, relu, separable, norm, pool(3, { strides: [2, 2], ...same }));
    x = g.on([main, g.on(x, ...conv(size, 1, { activation: 'linear', strides: [2, 2], ...same }))], 'Add');
  }
  const out = g.chain(
    x,
    ['SeparableConv2D', { filters: 20, kernel_size: [3, 3], ...same }],
    norm,
    relu,
    ['GlobalAveragePooling2D'],
    dropout(0.5),
    dense(1, 'sigmoid'),
  );
  return g.model([image], [out]);
}

export function uNet(): ModelTopology {
  const g = new Graph('keras3');
  const image = g.input('image', [16, 16, 3]);
  let x = g.chain(image, conv(4, 3, { activation: 'linear', strides: [2, 2], ...same }), norm, relu);
  for (const filters of [6, 8]) {
    const separable: Listed = ['SeparableConv2D', { filters, kernel_size: [3, 3], ...same }];
    const main = g.chain(x, relu, separable, norm, relu, separable, norm, pool(3, { strides: [2, 2], ...same }));
    x = g.on([main, g.on(x, ...conv(filters, 1, { activation: 'linear', strides: [2, 2], ...same }))], 'Add');
  }
  const up: Listed = ['UpSampling2D', { size: [2, 2], interpolation: 'nearest' }];
  for (const filters of [8, 6, 4]) {
    const transposed: Listed = ['Conv2DTranspose', { filters, kernel_size: [3, 3], ...same }];
    const main = g.chain(x, relu, transposed, norm, relu, transposed, norm, up);
    x = g.on([main, g.chain(x, up, conv(filters, 1, { activation: 'linear', ...same }))], 'Add');
  }
  return g.model([image], [g.on(x, ...conv(3, 3, { activation: 'softmax', ...same }))]);
}

/** One network on both images. The distance of the embeddings is a Lambda in the source. */
export function siamese(merge: Listed): ModelTopology {
  const inner = new Graph('keras3');
  const own = inner.input('tower', [28, 28, 1]);
  const average: Listed = ['AveragePooling2D', { pool_size: [2, 2] }];
  const embedding = inner.model(
    [own],
    [
      inner.chain(
        own,
        norm,
        conv(4, 5, { activation: 'tanh' }),
        average,
        conv(6, 5, { activation: 'tanh' }),
        average,
        flatten,
        norm,
        dense(10, 'tanh'),
      ),
    ],
  );
  const g = new Graph('keras3');
  const [a, b] = [g.input('left', [28, 28, 1]), g.input('right', [28, 28, 1])];
  const towers = [a, b].map((end) => g.on(end, 'Functional', Object.assign({}, embedding.config, { name: 'embedding' }), 'embedding'));
  return g.model([a, b], [g.chain(g.on(towers, ...merge), norm, dense(1, 'sigmoid'))]);
}

export function textConvolution(): ModelTopology {
  const row: Listed = ['Conv1D', { filters: 8, kernel_size: 7, padding: 'valid', activation: 'relu', strides: 3 }];
  return keras(
    [40],
    ['Embedding', { input_dim: 60, output_dim: 8 }],
    dropout(0.5),
    row,
    row,
    ['GlobalMaxPooling1D'],
    dense(16, 'relu'),
    dropout(0.5),
    dense(1, 'sigmoid'),
  );
}

export function glove(): ModelTopology {
  const row: Listed = ['Conv1D', { filters: 8, kernel_size: 5, activation: 'relu' }];
  const rows: Listed = ['MaxPooling1D', { pool_size: 2 }];
  return keras(
    [40],
    ['Embedding', { input_dim: 60, output_dim: 8, trainable: false }],
    row,
    rows,
    row,
    rows,
    row,
    ['GlobalMaxPooling1D'],
    dense(16, 'relu'),
    dropout(0.5),
    dense(4, 'softmax'),
  );
}

export function seriesClassifier(): ModelTopology {
  const block: readonly Listed[] = [['Conv1D', { filters: 8, kernel_size: 3, padding: 'same' }], norm, ['ReLU', {}]];
  return keras([20, 1], ...block, ...block, ...block, ['GlobalAveragePooling1D'], dense(2, 'softmax'));
}

export const volumes: readonly Listed[] = [
  ['Conv3D', { filters: 4, kernel_size: [3, 3, 3], activation: 'relu' }],
  ['MaxPooling3D', { pool_size: [2, 2, 2] }],
  norm,
];
export const film = (kernel: number): Listed => [
  'ConvLSTM2D',
  { filters: 3, kernel_size: [kernel, kernel], padding: 'same', return_sequences: true, activation: 'relu' },
];

/** Three texts and tags in, two answers out. */
export function tickets(): ModelTopology {
  const g = new Graph('keras3');
  const [title, body, tags] = [g.input('title', [10]), g.input('body', [12]), g.input('tags', [6])];
  const read = (text: Tensor, units: number): Tensor => g.chain(text, ['Embedding', { input_dim: 30, output_dim: 6 }], ['LSTM', { units }]);
  const all = g.on([read(title, 6), read(body, 4), tags], 'Concatenate', { axis: -1 });
  return g.model([title, body, tags], [g.on(all, 'Dense', { units: 1 }, 'priority'), g.on(all, 'Dense', { units: 4 }, 'department')]);
}

export function residual(): ModelTopology {
  const g = new Graph('keras3');
  const image = g.input('img', [16, 16, 3]);
  const first = g.chain(image, conv(4, 3), conv(6, 3), pool(3));
  const second = g.on([g.chain(first, conv(6, 3, same), conv(6, 3, same)), first], 'Add');
  const third = g.on([g.chain(second, conv(6, 3, same), conv(6, 3, same)), second], 'Add');
  return g.model([image], [g.chain(third, conv(6, 3), ['GlobalAveragePooling2D'], dense(16, 'relu'), dropout(0.5), dense(10))]);
}

/** `keras.applications` without its top, frozen, and a head: the guide to transfer learning. */
export function fineTuning(): ModelTopology {
  const inner = new Graph('keras3');
  const own = inner.input('base_in', [32, 32, 3]);
  const base = inner.model(
    [own],
    [
      inner.chain(
        own,
        conv(4, 3, { activation: 'linear', strides: [2, 2], use_bias: false }),
        norm,
        relu,
        ['SeparableConv2D', { filters: 8, kernel_size: [3, 3], use_bias: false, ...same }],
        norm,
      ),
    ],
  );
  const g = new Graph('keras3');
  const image = g.input('image', [32, 32, 3]);
  const scaled = g.on(image, 'Rescaling', { scale: 1 / 127.5, offset: -1 });
  const seen = g.on(scaled, 'Functional', Object.assign({}, base.config, { name: 'xception', trainable: false }), 'xception');
  return g.model([image], [g.chain(seen, ['GlobalAveragePooling2D'], dropout(0.2), dense(1))]);
}

export const upConv: Listed = ['Conv2DTranspose', { filters: 8, kernel_size: [3, 3], strides: [2, 2], activation: 'relu', ...same }];

/** Two encoder blocks over the steps of a series. */
export function seriesTransformer(): ModelTopology {
  const g = new Graph('keras3');
  const series = g.input('series', [20, 1]);
  const drop: Listed = ['Dropout', { rate: 0.25 }];
  const normed: Listed = ['LayerNormalization', { epsilon: 1e-6 }];
  let x = series;
  for (let block = 0; block < 2; block++) {
    const seen = g.on([x, x], 'MultiHeadAttention', { num_heads: 2, key_dim: 4, dropout: 0.25 });
    const sum = g.on([g.chain(seen, drop, normed), x], 'Add');
    const narrow: Listed = ['Conv1D', { filters: 4, kernel_size: 1, activation: 'relu' }];
    const wide: Listed = ['Conv1D', { filters: 1, kernel_size: 1 }];
    x = g.on([g.chain(sum, narrow, drop, wide, normed), sum], 'Add');
  }
  const dense: Listed = ['Dense', { units: 8, activation: 'relu' }];
  const pooled = g.chain(x, ['GlobalAveragePooling1D', { data_format: 'channels_last' }], dense, ['Dropout', { rate: 0.4 }]);
  return g.model([series], [g.on(pooled, 'Dense', { units: 2, activation: 'softmax' })]);
}
