/** The keys of the layers that transformers are made of; see `layer-settings.ts`. */
import { COUNT, FLAG, free, INITIALIZER, only, orNull, REGULARIZER, SHARE, ONE_COUNT, type Settings } from './setting.js';

const NO_CONSTRAINT = only([null], 'constraints are not supported: the servers apply the update; remove it or use a regularizer');

export const MULTI_HEAD_ATTENTION: Settings = {
  numHeads: COUNT,
  keyDim: COUNT,
  valueDim: orNull(COUNT),
  dropout: SHARE,
  useBias: FLAG,
  outputShape: orNull(ONE_COUNT),
  attentionAxes: only([null, 1, [1]], 'attention goes over the steps of [steps, width]: leave it out'),
  slidingWindow: only([null], 'a step sees all that its mask leaves: leave it out'),
  useGate: only([false, null], 'there is no gate behind the heads here: leave it out'),
  kernelInitializer: INITIALIZER,
  biasInitializer: INITIALIZER,
  kernelRegularizer: REGULARIZER,
  biasRegularizer: REGULARIZER,
  kernelConstraint: NO_CONSTRAINT,
  biasConstraint: NO_CONSTRAINT,
  seed: free("the streams of the run's seed are drawn from"),
  /** An argument of the call in Keras (`attention-calls.ts`). */
  useCausalMask: FLAG,
};

export const TOKEN_AND_POSITION_EMBEDDING: Settings = {
  vocabularySize: COUNT,
  sequenceLength: COUNT,
  embeddingDim: COUNT,
  tieWeights: only([true, null], 'there are no embeddings for the way back: leave it out, and put a Dense at the end'),
  embeddingsInitializer: INITIALIZER,
  maskZero: only([false, null], 'attention takes no masks here: use false, and leave padded positions out of the loss'),
};
