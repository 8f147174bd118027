/** Short ways to write the models whose gradients are compared. */
import type { RunSpecInput } from '@paceline/spec';
import { sequential } from '../run.fixture.js';

type Layer = readonly [className: string, config?: Record<string, unknown>];
export type Model = RunSpecInput['model'];

export const input: Layer = ['InputLayer', { batch_input_shape: [null, 784] }];
export const out10: Layer = ['Dense', { units: 10, kernel_initializer: 'glorot_uniform' }];
const flatten: Layer = ['Flatten'];
/** 9 × 9 of each image: small enough for quick slopes. */
export const image: readonly Layer[] = [
  ['Reshape', { target_shape: [28, 28, 1] }],
  ['AveragePooling2D', { pool_size: [3, 3] }],
];
export const rows: readonly Layer[] = [
  ['Reshape', { target_shape: [28, 28] }],
  ['AveragePooling1D', { pool_size: 4 }],
];
export const dense = (units: number, activation = 'linear'): Layer => ['Dense', { units, activation }];
export const conv = (config: Record<string, unknown> = {}): Layer => ['Conv2D', { filters: 3, kernel_size: 3, ...config }];
/** 7 × 14 × 8 voxels of one channel; 4 × 14 × 14 pixels as a sequence of images, made smaller. */
const volume: readonly Layer[] = [['Reshape', { target_shape: [7, 14, 8, 1] }]];
const film: readonly Layer[] = [
  ['Reshape', { target_shape: [4, 14, 14, 1] }],
  ['AveragePooling3D', { pool_size: [1, 2, 2] }],
];
export const conv3d = (config: Record<string, unknown> = {}): Layer => ['Conv3D', { filters: 2, kernel_size: 3, ...config }];
export const convLstm = (config: Record<string, unknown> = {}): Layer => ['ConvLSTM2D', { filters: 2, kernel_size: 3, ...config }];
export const cell = (class_name: string, config: Record<string, unknown> = {}) => ({ class_name, config: { units: 4, ...config } });
export const rnn = (inner: object, config: Record<string, unknown> = {}): Layer => ['RNN', { cell: inner, ...config }];
export const stack = (...cells: readonly object[]) => ({ class_name: 'StackedRNNCells', config: { cells } });
export const gru = (config: Record<string, unknown> = {}): Layer => ['GRU', { units: 6, reset_after: true, ...config }];
export const flat = (...layers: readonly Layer[]): Model => sequential(input, ...layers, flatten, out10);
export const of = (...layers: readonly Layer[]): Model => sequential(input, ...layers, out10);
/** As Keras 3 writes it. */
export function ofKeras3(...layers: readonly Layer[]): Model {
  const { topology } = of(...layers) as { topology: object };
  return { topology: { ...topology, keras_version: '3.15.1' } as never };
}
export const onImage = (...layers: readonly Layer[]): Model => flat(...image, ...layers);
export const onRows = (...layers: readonly Layer[]): Model => flat(...rows, ...layers);
export const onVolume = (...layers: readonly Layer[]): Model => flat(...volume, ...layers);
export const onFilm = (...layers: readonly Layer[]): Model => flat(...film, ...layers);

const node = (class_name: string, name: string, rest: Record<string, unknown>, ...from: readonly string[]) => ({
  class_name,
  config: { name, ...rest },
  inbound_nodes: from.length === 0 ? [] : [from.map((source) => [source, 0, 0, {}])],
});

/** Three masks of steps that weights in front have made, which meet in a layer. */
export function masksThatMeet(className: string): Model {
  const layers = [
    node('InputLayer', 'in', { batch_input_shape: [null, 784] }),
    node('Reshape', 'rows', { target_shape: [28, 28] }, 'in'),
    node('AveragePooling1D', 'steps', { pool_size: 4 }, 'rows'),
    node('Dense', 'a', { units: 2, use_bias: false }, 'steps'), // what is zero stays zero
    ...['b', 'c', 'd'].map((name, value) => node('Masking', name, { mask_value: value }, 'a')),
    node(className, 'met', {}, 'b', 'c', 'd'),
    node('LSTM', 'lstm', { units: 3 }, 'met'),
    node('Dense', 'out', { units: 10 }, 'lstm'),
  ];
  return { topology: { class_name: 'Model', config: { layers, input_layers: [['in', 0, 0]], output_layers: [['out', 0, 0]] } } };
}

/** Two dense branches, merged. */
export function merged(className: string, config: Record<string, unknown> = {}): Model {
  const layers = [
    node('InputLayer', 'in', { batch_input_shape: [null, 784] }),
    node('Dense', 'a', { units: 6 }, 'in'),
    node('Dense', 'b', { units: 6, activation: 'tanh' }, 'in'),
    node(className, 'merged', config, 'a', 'b'),
    node('Dense', 'out', { units: 10 }, 'merged'),
  ];
  return { topology: { class_name: 'Model', config: { layers, input_layers: [['in', 0, 0]], output_layers: [['out', 0, 0]] } } };
}
