/** What the layers of Keras 3 do with masks: who makes, keeps and takes them (keras/src/layers). */
import type { PlannedLayer } from '@paceline/engine';

/** Planned, or of a topology that is not planned yet, with keys in camel case. */
export type GraphLayer = Pick<PlannedLayer, 'className' | 'name' | 'config' | 'calls'>;

/** Layers in which tensors meet step by step. */
export const MERGING: ReadonlySet<string> = new Set(['Add', 'Average', 'Maximum', 'Minimum', 'Multiply', 'Subtract']);
const RECURRENT: ReadonlySet<string> = new Set(['Bidirectional', 'ConvLSTM2D', 'GRU', 'LSTM', 'RNN', 'SimpleRNN']);
const KEEPING: ReadonlySet<string> = new Set([
  ...['Activation', 'BatchNormalization', 'Dense', 'ELU', 'LayerNormalization', 'LeakyReLU', 'Normalization', 'PReLU', 'ReLU'],
  ...['Rescaling', 'Softmax', 'TimeDistributed'],
  ...['AlphaDropout', 'Dropout', 'GaussianDropout', 'GaussianNoise', 'SpatialDropout1D', 'SpatialDropout2D'],
  ...['Concatenate', ...MERGING],
]);
const TAKING: ReadonlySet<string> = new Set(['BatchNormalization', 'GlobalAveragePooling1D', 'Softmax', 'TimeDistributed', ...RECURRENT]);

export const makesMask = ({ className, config }: GraphLayer): boolean =>
  className === 'Masking' || (className === 'Embedding' && config['maskZero'] === true);

export const takesMask = (layer: GraphLayer | undefined): boolean => layer !== undefined && TAKING.has(layer.className);

/** Whether a mask leaves a layer with its output. */
export function keepsMask({ className, config }: GraphLayer): boolean {
  if (!RECURRENT.has(className)) return KEEPING.has(className);
  const inner = (className === 'Bidirectional' ? (config['layer'] as { readonly config: GraphLayer['config'] }).config : config) ?? {};
  return (inner['returnSequences'] ?? inner['return_sequences']) === true;
}
