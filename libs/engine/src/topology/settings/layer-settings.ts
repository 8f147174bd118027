/**
 * Every key that a config of a layer may have, and what becomes of it: used, equal to its neutral value, or of no effect. Keys are those of
 * tf.js in camel case, with those that Keras 2 and 3 write beside them. A key that is not here is refused, so that no layer computes
 * something else than its config says. `layer-settings.test.ts` holds the table against the configs of tf.js and of Keras 3.
 */
import type { ALLOWED_CELLS, ALLOWED_LAYERS } from '@paceline/spec';
import { MULTI_HEAD_ATTENTION, TOKEN_AND_POSITION_EMBEDDING } from './attention-settings.js';
import {
  ACTIVATION,
  AMOUNTS,
  AXIS,
  CAUSAL_PADDING,
  COUNT,
  COUNTS,
  FINITE,
  FLAG,
  FLOAT32,
  FORMAT,
  free,
  INITIALIZER,
  INTEGER,
  INTEGERS,
  INTERPOLATION,
  LIST,
  MERGE_MODE,
  MOMENTUM,
  NOT_NEGATIVE,
  ONE_COUNT,
  only,
  orNull,
  OUTPUT_MODE,
  PADDING,
  PART,
  PARTS,
  REGULARIZER,
  SHAPE,
  SHARE,
  STATISTICS,
  TEXT,
  type Settings,
} from './setting.js';

const NO_CONSTRAINT = only([null], 'constraints are not supported: the servers apply the update; remove it or use a regularizer');
const SEED = free("the streams of the run's seed are drawn from");
const SPEED = free('it changes how fast something is computed, not what');
const ROWS_LAST = only(['channelsLast', null], 'tf.js has this layer with channels last only: use "channels_last"');
const DENSE_TENSORS = only([false, null], 'sparse and ragged tensors are not supported: leave it out');
const NOT_DILATED = only(
  [1, [1], [1, 1], [1, 1, 1], null],
  'tf.js has no gradient for dilated convolutions of this kind: use dilation_rate 1, or a dilated Conv1D, Conv2D, SeparableConv2D or DepthwiseConv2D',
);
const NO_ADAPTERS = only([null], 'low-rank adapters are not trained here: leave it out, the whole layer is trained');

/** Settings that all layers and cells have. */
export const EVERY_LAYER: Settings = {
  name: TEXT,
  /** false freezes the layer (`frozen-layers.ts`). */
  trainable: orNull(FLAG),
  dtype: only(['float32', null], 'only float32 is trained: use dtype "float32"'),
  batchInputShape: orNull(SHAPE),
  batchShape: orNull(SHAPE),
  inputShape: orNull(SHAPE),
  batchSize: only([null], 'the batch size must be left open: leave it out'),
  activityRegularizer: only([null], 'activity regularizers are not supported by tf.js; use a kernel or bias regularizer'),
};

const weight = (name: string): Settings => ({
  [`${name}Initializer`]: INITIALIZER,
  [`${name}Regularizer`]: REGULARIZER,
  [`${name}Constraint`]: NO_CONSTRAINT,
});
/** Where null means another thing to Keras than to tf.js, it is refused. */
const BIAS: Settings = { useBias: FLAG, ...weight('bias') };

const CONV: Settings = {
  filters: COUNT,
  kernelSize: COUNTS,
  strides: COUNTS,
  padding: PADDING,
  dataFormat: FORMAT,
  dilationRate: COUNTS,
  groups: only([1, null], 'tf.js has no convolutions in groups: leave it out'),
  activation: orNull(ACTIVATION),
  ...weight('kernel'),
  ...BIAS,
};
/** Sizes of windows, and what becomes of images at their borders. */
const { filters: _filters, kernelInitializer: _i, kernelRegularizer: _r, kernelConstraint: _c, ...DEPTHWISE } = CONV;
const TRANSPOSED: Settings = {
  ...CONV,
  dilationRate: NOT_DILATED,
  outputPadding: only([null], 'tf.js has no output_padding: leave it out'),
};

const POOLING: Settings = { poolSize: COUNTS, strides: orNull(COUNTS), padding: PADDING, dataFormat: FORMAT };
const ROW_POOLING: Settings = { ...POOLING, dataFormat: ROWS_LAST };
const GLOBAL_POOLING: Settings = { dataFormat: FORMAT, keepdims: orNull(FLAG) };
const GLOBAL_ROW_POOLING: Settings = { dataFormat: ROWS_LAST, keepdims: orNull(FLAG) };

const CELL: Settings = {
  units: COUNT,
  activation: ACTIVATION,
  ...weight('kernel'),
  ...weight('recurrent'),
  ...BIAS,
  dropout: SHARE,
  recurrentDropout: SHARE,
  dropoutFunc: only([null], 'is a function, which a run spec cannot hold: leave it out'),
  seed: SEED,
};
const LSTM_CELL: Settings = { ...CELL, recurrentActivation: ACTIVATION, unitForgetBias: orNull(FLAG), implementation: SPEED };
const GRU_CELL: Settings = { ...CELL, recurrentActivation: ACTIVATION, resetAfter: orNull(FLAG), implementation: SPEED };
const SEQUENCE: Settings = {
  returnSequences: orNull(FLAG),
  returnState: only([false, null], 'states as outputs are not supported: leave it out'),
  goBackwards: orNull(FLAG),
  stateful: only([false], 'stateful recurrent layers are refused: their state would depend on which worker saw which batch'),
  unroll: SPEED,
  timeMajor: only([false, null], 'tf.js takes [batch, time, ...] only: leave it out and put a Permute in front'),
  /** Refused where there are masks (`check-settings.ts`). */
  zeroOutputForMask: orNull(FLAG),
  useCudnn: SPEED,
};

const NORMALIZATION: Settings = { epsilon: NOT_NEGATIVE, center: FLAG, scale: FLAG, ...weight('beta'), ...weight('gamma') };

type ClassName = (typeof ALLOWED_LAYERS)[number] | (typeof ALLOWED_CELLS)[number];

export const LAYER_SETTINGS: Readonly<Record<ClassName, Settings>> = {
  InputLayer: {
    // Whole numbers come as float32, which an Embedding casts: see plan-topology.ts.
    dtype: only(['float32', 'int32', 'int64', null], 'the data comes as numbers: use dtype "float32" or "int32"'),
    sparse: DENSE_TENSORS,
    ragged: DENSE_TENSORS,
    optional: only([false, null], 'an input that may be missing is not supported: leave it out'),
  },
  Rescaling: { scale: FLOAT32, offset: FLOAT32 },
  Resizing: {
    height: COUNT,
    width: COUNT,
    interpolation: INTERPOLATION,
    dataFormat: FORMAT,
    cropToAspectRatio: only([false, null], 'images are stretched: leave it out, and put a CenterCrop in front of the layer'),
    padToAspectRatio: only([false, null], 'images are stretched: leave it out, and put a ZeroPadding2D in front of the layer'),
    fillMode: free('it acts with pad_to_aspect_ratio only'),
    fillValue: free('it acts with pad_to_aspect_ratio only'),
    antialias: only([false, null], 'pixels are interpolated and not averaged: leave it out'),
  },
  Normalization: { axis: orNull(INTEGERS), mean: STATISTICS, variance: STATISTICS, invert: FLAG },
  CenterCrop: { height: COUNT, width: COUNT, dataFormat: ROWS_LAST },
  CategoryEncoding: { numTokens: COUNT, outputMode: OUTPUT_MODE, sparse: DENSE_TENSORS },
  Dense: {
    units: COUNT,
    inputDim: COUNT,
    activation: orNull(ACTIVATION),
    ...weight('kernel'),
    ...BIAS,
    loraRank: NO_ADAPTERS,
    loraAlpha: NO_ADAPTERS,
    quantizationConfig: only([null], 'only float32 is trained: leave it out'),
  },
  Activation: { activation: ACTIVATION },
  Dropout: { rate: SHARE, noiseShape: orNull(SHAPE), seed: SEED },
  Flatten: { dataFormat: FORMAT },
  Reshape: { targetShape: SHAPE },
  Permute: { dims: LIST },
  RepeatVector: { n: COUNT },
  Masking: { maskValue: FINITE },
  ELU: { alpha: FINITE },
  LeakyReLU: { alpha: FINITE, negativeSlope: FINITE },
  PReLU: { ...weight('alpha'), sharedAxes: orNull(INTEGERS) },
  ReLU: { maxValue: orNull(NOT_NEGATIVE), negativeSlope: NOT_NEGATIVE, threshold: NOT_NEGATIVE },
  Softmax: { axis: INTEGERS },
  ThresholdedReLU: { theta: NOT_NEGATIVE },
  Conv1D: { ...CONV, dataFormat: ROWS_LAST, padding: CAUSAL_PADDING },
  Conv2D: CONV,
  DepthwiseConv2D: { ...DEPTHWISE, depthMultiplier: COUNT, ...weight('depthwise') },
  SeparableConv2D: {
    filters: COUNT,
    ...DEPTHWISE,
    depthMultiplier: COUNT,
    ...weight('depthwise'),
    ...weight('pointwise'),
    kernelInitializer: free('the kernels are the depthwise and the pointwise one: Keras 2 writes it and does not use it'),
    kernelRegularizer: only([null], 'use depthwise_regularizer and pointwise_regularizer'),
    kernelConstraint: NO_CONSTRAINT,
  },
  Conv1DTranspose: { ...TRANSPOSED, kernelSize: ONE_COUNT, strides: ONE_COUNT, dataFormat: ROWS_LAST },
  Conv2DTranspose: TRANSPOSED,
  Conv3D: { ...CONV, dilationRate: NOT_DILATED },
  Conv3DTranspose: TRANSPOSED,
  Cropping2D: { cropping: AMOUNTS, dataFormat: FORMAT },
  UpSampling2D: { size: COUNTS, dataFormat: FORMAT, interpolation: INTERPOLATION },
  ZeroPadding2D: { padding: AMOUNTS, dataFormat: FORMAT },
  AveragePooling1D: ROW_POOLING,
  AveragePooling2D: POOLING,
  AveragePooling3D: POOLING,
  MaxPooling1D: ROW_POOLING,
  MaxPooling2D: POOLING,
  MaxPooling3D: POOLING,
  GlobalAveragePooling1D: GLOBAL_ROW_POOLING,
  GlobalAveragePooling2D: GLOBAL_POOLING,
  GlobalMaxPooling1D: GLOBAL_ROW_POOLING,
  GlobalMaxPooling2D: GLOBAL_POOLING,
  Add: {},
  Average: {},
  Concatenate: { axis: INTEGER },
  Dot: { axes: INTEGERS, normalize: orNull(FLAG) },
  Maximum: {},
  Minimum: {},
  Multiply: {},
  Subtract: {},
  BatchNormalization: {
    axis: AXIS,
    momentum: MOMENTUM,
    ...NORMALIZATION,
    movingMeanInitializer: INITIALIZER,
    movingVarianceInitializer: INITIALIZER,
    synchronized: only([false, null], 'each replica normalises by its own rows: leave it out'),
    renorm: only([false, null], 'there is no batch renormalisation here: leave it out'),
    renormClipping: only([null], 'there is no batch renormalisation here: leave it out'),
    renormMomentum: free('it acts with renorm only'),
  },
  LayerNormalization: {
    axis: INTEGERS,
    ...NORMALIZATION,
    rmsScaling: only([false, null], 'tf.js has no normalisation by the root mean square: leave it out'),
  },
  GaussianNoise: { stddev: NOT_NEGATIVE, seed: SEED },
  GaussianDropout: { rate: SHARE, seed: SEED },
  AlphaDropout: { rate: SHARE, noiseShape: orNull(SHAPE), seed: SEED },
  SpatialDropout1D: { rate: SHARE, noiseShape: only([null], 'whole channels are dropped: leave it out'), seed: SEED },
  SpatialDropout2D: { rate: SHARE, noiseShape: only([null], 'whole channels are dropped: leave it out'), seed: SEED, dataFormat: FORMAT },
  Embedding: {
    inputDim: COUNT,
    outputDim: COUNT,
    ...weight('embeddings'),
    maskZero: orNull(FLAG),
    inputLength: orNull(COUNTS),
    loraRank: NO_ADAPTERS,
    loraAlpha: NO_ADAPTERS,
    quantizationConfig: only([null], 'only float32 is trained: leave it out'),
  },
  MultiHeadAttention: MULTI_HEAD_ATTENTION,
  TokenAndPositionEmbedding: TOKEN_AND_POSITION_EMBEDDING,
  SimpleRNN: { ...CELL, ...SEQUENCE },
  LSTM: { ...LSTM_CELL, ...SEQUENCE },
  GRU: { ...GRU_CELL, ...SEQUENCE },
  /** tf.js writes the settings of the cell beside it (`check-settings.ts`). */
  RNN: { ...SEQUENCE, cell: PART },
  ConvLSTM2D: convLstm(),
  /** The backward layer must be the layer itself (`check-settings.ts`). */
  Bidirectional: { layer: PART, mergeMode: MERGE_MODE, backwardLayer: orNull(PART) },
  TimeDistributed: { layer: PART },
  SimpleRNNCell: CELL,
  LSTMCell: LSTM_CELL,
  GRUCell: GRU_CELL,
  StackedRNNCells: { cells: PARTS },
};

function convLstm(): Settings {
  const { units: _units, ...cell } = LSTM_CELL;
  const { groups: _none, activation: _of, ...images } = CONV;
  return { ...cell, ...images, ...SEQUENCE, dilationRate: NOT_DILATED };
}

/** Where Keras, 2 and 3, means something else by a value than tf.js computes. */
export const KERAS_SETTINGS: Readonly<Partial<Record<ClassName, Settings>>> = {
  UpSampling2D: {
    interpolation: only(
      ['nearest', null],
      'Keras takes bilinear samples at the centres of pixels, tf.js at their corners: use "nearest", or a Conv2DTranspose',
    ),
  },
};

/** Settings of the model itself. */
export const MODEL_SETTINGS: Settings = {
  name: TEXT,
  trainable: only([true, null], 'freezes the whole model, and nothing is left to train: leave it out, and freeze layers'),
  dtype: EVERY_LAYER['dtype']!,
  layers: PARTS,
  inputLayers: free('read as edges'),
  outputLayers: free('read as edges'),
  buildInputShape: free('the first layer says it'),
};

/** Settings of a model among the layers. */
export const NESTED_SETTINGS: Settings = {
  ...MODEL_SETTINGS,
  trainable: orNull(FLAG),
  batchInputShape: orNull(SHAPE),
  batchShape: orNull(SHAPE),
};
