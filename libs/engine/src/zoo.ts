/**
 * The built-in models as Layers topologies, so that they take the same road as a person's own. All end in logits.
 * The MLP and the CNN are the ones that the peer benchmarks train; weights start from Glorot & Bengio 2010 (uniform).
 */
import type { LayerTopology, MODEL_ZOO, ModelTopology } from '@paceline/spec';

type ZooName = (typeof MODEL_ZOO)[number];

const layer = (class_name: string, name: string, config: Record<string, unknown> = {}): LayerTopology => ({
  class_name,
  config: { name, ...config },
});
const input = (...shape: number[]): LayerTopology => layer('InputLayer', 'input', { batch_input_shape: [null, ...shape] });
const dense = (name: string, units: number, activation = 'linear'): LayerTopology =>
  layer('Dense', name, { units, activation, kernel_initializer: 'glorot_uniform', bias_initializer: 'zeros' });
const conv = (name: string, filters: number): LayerTopology =>
  layer('Conv2D', name, {
    filters,
    kernel_size: [3, 3],
    activation: 'relu',
    kernel_initializer: 'glorot_uniform',
    bias_initializer: 'zeros',
  });
const pool = (name: string): LayerTopology => layer('MaxPooling2D', name, { pool_size: [2, 2] });

const ZOO: Record<ZooName, readonly LayerTopology[]> = {
  mlp: [input(784), dense('dense_1', 256, 'relu'), dense('dense_2', 128, 'relu'), dense('dense_3', 10)],
  'mlp-dropout': [
    input(784),
    dense('dense_1', 256),
    layer('BatchNormalization', 'batch_normalization_1'),
    layer('Activation', 'activation_1', { activation: 'relu' }),
    layer('Dropout', 'dropout_1', { rate: 0.5 }),
    dense('dense_2', 128, 'relu'),
    layer('Dropout', 'dropout_2', { rate: 0.5 }),
    dense('dense_3', 10),
  ],
  cnn: [
    input(28, 28, 1),
    conv('conv2d_1', 32),
    pool('max_pooling2d_1'),
    conv('conv2d_2', 64),
    pool('max_pooling2d_2'),
    layer('Flatten', 'flatten_1'),
    dense('dense_1', 128, 'relu'),
    dense('dense_2', 10),
  ],
};

/** The topology of a zoo model. */
export function zooTopology(name: ZooName): ModelTopology {
  return { class_name: 'Sequential', config: { name, layers: ZOO[name] } };
}
