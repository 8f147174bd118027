/** What a planned model says about its tensors without tf.js: their rank, as far as it follows from the classes of the layers. */
import type { PlannedLayer, PlannedModel } from '@paceline/engine/planning';

/** Dimensions of the output with that of the batch, whatever comes in. */
const RANKS: Readonly<Record<string, number>> = {
  ...Object.fromEntries(['Conv1D', 'SeparableConv1D', 'MaxPooling1D', 'AveragePooling1D', 'RepeatVector'].map((name) => [name, 3])),
  ...Object.fromEntries(
    [
      'Conv2D',
      'Conv2DTranspose',
      'DepthwiseConv2D',
      'SeparableConv2D',
      'MaxPooling2D',
      'AveragePooling2D',
      'UpSampling2D',
      'ZeroPadding2D',
      'Cropping2D',
    ].map((name) => [name, 4]),
  ),
  ...Object.fromEntries(['Conv3D', 'Conv3DTranspose', 'MaxPooling3D', 'AveragePooling3D'].map((name) => [name, 5])),
  ...Object.fromEntries(
    ['Flatten', 'GlobalAveragePooling1D', 'GlobalMaxPooling1D', 'GlobalAveragePooling2D', 'GlobalMaxPooling2D'].map((name) => [name, 2]),
  ),
};
/** They change no rank. */
const SAME: ReadonlySet<string> = new Set([
  ...[
    'Activation',
    'AlphaDropout',
    'BatchNormalization',
    'Dense',
    'Dropout',
    'ELU',
    'GaussianDropout',
    'GaussianNoise',
    'LayerNormalization',
  ],
  ...['LeakyReLU', 'Masking', 'PReLU', 'Permute', 'ReLU', 'Rescaling', 'Softmax', 'SpatialDropout1D', 'SpatialDropout2D'],
  ...['Add', 'Average', 'Concatenate', 'Maximum', 'Minimum', 'Multiply', 'Subtract'],
]);

const RECURRENT: ReadonlySet<string> = new Set(['GRU', 'LSTM', 'RNN', 'SimpleRNN', 'ConvLSTM2D']);

/** Dimensions of the output of layers whose config says them. */
function saidRank({ className, config }: Pick<PlannedLayer, 'className' | 'config'>): number | undefined {
  if (className === 'Bidirectional') return saidRank(config['layer'] as Pick<PlannedLayer, 'className' | 'config'>);
  if (RECURRENT.has(className)) return (config['returnSequences'] === true ? 3 : 2) + (className === 'ConvLSTM2D' ? 2 : 0);
  if (className === 'Reshape' && Array.isArray(config['targetShape'])) return config['targetShape'].length + 1;
  return RANKS[className];
}

/** Dimensions of what a layer is called on, with that of the batch; undefined where nothing in front of it tells. */
export function inputRank({ sequential, layers }: PlannedModel, layer: PlannedLayer): number | undefined {
  const byName = new Map(layers.map((each) => [each.name, each]));
  const before = (each: PlannedLayer): PlannedLayer | undefined =>
    sequential ? layers[layers.indexOf(each) - 1] : byName.get(each.calls[0]?.[0]?.[0] ?? '');
  const given = (each: PlannedLayer): number | undefined => {
    const shape = each.config['batchInputShape'];
    return Array.isArray(shape) ? shape.length : undefined;
  };
  let more = 0;
  const seen = new Set<PlannedLayer>();
  for (let present: PlannedLayer | undefined = layer; present && !seen.has(present);) {
    seen.add(present);
    const source: PlannedLayer | undefined = before(present);
    const rank = !source ? given(present) : source.className === 'InputLayer' ? given(source) : saidRank(source);
    if (!source || rank !== undefined) return rank === undefined ? undefined : rank + more;
    // Token ids get a dimension.
    if (source.className === 'Embedding') more++;
    else if (!SAME.has(source.className)) return undefined;
    present = source;
  }
  return undefined;
}
