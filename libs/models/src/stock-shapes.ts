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

/** Dimensions of what a layer is called on, with that of the batch; undefined where nothing in front of it tells. */
export function inputRank({ sequential, layers }: PlannedModel, layer: PlannedLayer): number | undefined {
  const byName = new Map(layers.map((each) => [each.name, each]));
  const before = (each: PlannedLayer): PlannedLayer | undefined =>
    sequential ? layers[layers.indexOf(each) - 1] : byName.get(each.calls[0]?.[0]?.[0] ?? '');
  const given = (each: PlannedLayer): number | undefined => {
    const shape = each.config['batchInputShape'];
    return Array.isArray(shape) ? shape.length : undefined;
  };
  const seen = new Set<PlannedLayer>();
  for (let present: PlannedLayer | undefined = layer; present && !seen.has(present);) {
    seen.add(present);
    const source: PlannedLayer | undefined = before(present);
    if (!source) return given(present);
    const rank = source.className === 'InputLayer' ? given(source) : RANKS[source.className];
    if (rank !== undefined || !SAME.has(source.className)) return rank;
    present = source;
  }
  return undefined;
}
