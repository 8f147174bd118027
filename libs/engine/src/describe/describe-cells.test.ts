import type { RunSpecInput } from '@paceline/spec';
import { describe, expect, it } from 'vitest';
import { describeModel } from './describe.js';
import { IMAGES, sequential, specOf } from '../run.fixture.js';

const describing = (model: RunSpecInput['model']) => describeModel(specOf({ model }), IMAGES);
const input = ['InputLayer', { batch_input_shape: [null, 784] }] as const;
const out10 = ['Dense', { units: 10 }] as const;
const onRows = ['InputLayer', { batch_input_shape: [null, 28, 28] }] as const;
const onFilm = ['InputLayer', { batch_input_shape: [null, 4, 14, 14, 1] }] as const;
const cellOf = (class_name: string, config: Record<string, unknown> = {}) => ({ class_name, config: { units: 3, ...config } });
const lines = (variables: readonly { path: string; shape: readonly number[]; initializer: { className: string } }[]): string[] =>
  variables.map(({ path, shape, initializer }) => `${path} ${shape.join('×')} ${initializer.className}`);

describe('describeModel of layers with cells and of images in time', () => {
  it('lists the weights of stacked cells in the order in which they compute', async () => {
    const cell = {
      class_name: 'StackedRNNCells',
      config: { cells: [cellOf('LSTMCell', { unit_forget_bias: true }), cellOf('GRUCell', { reset_after: true })] },
    };
    const { variables } = await describing(sequential(onRows, ['RNN', { name: 'r', cell }], out10));
    expect(lines(variables).slice(0, 6)).toEqual([
      'r/kernel 28×12 VarianceScaling',
      'r/recurrent_kernel 3×12 Orthogonal',
      'r/bias 12 UnitForgetBias',
      'r/kernel_1 3×9 VarianceScaling',
      'r/recurrent_kernel_1 3×9 Orthogonal',
      'r/bias_1 2×9 Zeros',
    ]);
  });

  it('knows the kernels of ConvLSTM2D and of 3-D convolutions', async () => {
    const convLstm = [
      'ConvLSTM2D',
      { name: 'c', filters: 2, kernel_size: [2, 3], unit_forget_bias: true, return_sequences: true },
    ] as const;
    const layers = [
      convLstm,
      ['Conv3D', { name: 'v', filters: 5, kernel_size: [2, 3, 1] }],
      ['Conv3DTranspose', { name: 't', filters: 4, kernel_size: 2 }],
    ] as const;
    const { variables } = await describing(sequential(onFilm, ...layers, ['Flatten'], out10));
    expect(lines(variables).slice(0, 7)).toEqual([
      'c/kernel 2×3×1×8 VarianceScaling',
      'c/recurrent_kernel 2×3×2×8 Orthogonal',
      'c/bias 8 UnitForgetBias',
      'v/kernel 2×3×1×2×5 VarianceScaling',
      'v/bias 5 Zeros',
      't/kernel 2×2×2×4×5 VarianceScaling',
      't/bias 4 Zeros',
    ]);
  });

  it('does not take the shape of a cropped input for that of the input', async () => {
    const crop = ['CenterCrop', { height: 5, width: 6, batch_input_shape: [null, 28, 28, 1] }] as const;
    expect((await describing(sequential(crop, ['Flatten'], out10))).inputs[0]!.shape).toEqual([28, 28, 1]);
  });
});

const L = 'model.topology.config.layers';
const REFUSALS: readonly (readonly [string, RunSpecInput['model'], string, string])[] = [
  ['a huge 3-D filter', sequential(onFilm, ['Conv3D', { filters: 4, kernel_size: 1e3 }], ['Flatten'], out10), `${L}.1`, 'parameters'],
  [
    'a huge 3-D image',
    sequential(
      onFilm,
      ['Conv3DTranspose', { filters: 1, kernel_size: 2, strides: 1e6 }],
      ['MaxPooling3D', { pool_size: 1e6 }],
      ['Flatten'],
      out10,
    ),
    `${L}.1`,
    'too large',
  ],
  ['huge images in time', sequential(onFilm, ['ConvLSTM2D', { filters: 1e5, kernel_size: 9 }], ['Flatten'], out10), `${L}.1`, 'parameters'],
  [
    'what a recurrent layer keeps of a long sequence',
    sequential(
      input,
      ['RepeatVector', { n: 20_000 }],
      ['RNN', { cell: cellOf('SimpleRNNCell', { units: 1000, recurrent_initializer: 'zeros' }) }],
      out10,
    ),
    `${L}.2`,
    'its cells at all steps (20000000 elements)',
  ],
  [
    'a crop of billions',
    sequential(onFilm, ['TimeDistributed', { layer: { class_name: 'CenterCrop', config: { height: 1e9, width: 2 } } }], ['Flatten'], out10),
    `${L}.1`,
    'cannot take',
  ],
  [
    'billions of categories',
    sequential(input, ['CategoryEncoding', { num_tokens: 1e9 }], ['Reshape', { target_shape: [1e9, 1] }], ['GlobalMaxPooling1D'], out10),
    `${L}.1`,
    'too large',
  ],
  ['an RNN without a cell', sequential(onRows, ['RNN', { return_sequences: true }], out10), `${L}.1`, ''],
  ['a huge cell', sequential(onRows, ['RNN', { cell: cellOf('LSTMCell', { units: 2 ** 31 }) }], out10), `${L}.1`, 'parameters'],
  [
    'a constraint in a cell',
    sequential(onRows, ['RNN', { cell: cellOf('LSTMCell', { kernel_constraint: 'nonNeg' }) }], out10),
    `${L}.1.config.cell.config.kernel_constraint`,
    'constraints',
  ],
  [
    'dropout by a function',
    sequential(onRows, ['SimpleRNN', { units: 3, dropout: 0.5, dropout_func: 'f' }], out10),
    `${L}.1.config.dropout_func`,
    'function',
  ],
  [
    'a stateful RNN of cells',
    sequential(onRows, ['RNN', { cell: cellOf('LSTMCell'), stateful: true }], out10),
    `${L}.1.config.stateful`,
    'stateful',
  ],
];

it.each(REFUSALS)('refuses %s, naming the field', async (_, model, path, message) => {
  await expect(describing(model)).rejects.toMatchObject({ code: 'INVALID_MODEL', path, message: expect.stringContaining(message) });
});
