/**
 * TokenAndPositionEmbedding of KerasHub: a vector for each token id plus one for its place in the sequence. tf.js has Embedding alone, which
 * knows no places.
 */
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { weightParts, type WeightParts } from '../weight-config.js';
import type { Args } from '../replace-class.js';

type Shape = (number | null)[];

class TokenAndPositionEmbedding extends tfl.layers.Layer {
  static readonly className = 'TokenAndPositionEmbedding';
  private readonly vocabularySize: number;
  private readonly sequenceLength: number;
  private readonly embeddingDim: number;
  private readonly parts: WeightParts;
  private tokens!: tfl.LayerVariable;
  private positions!: tfl.LayerVariable;

  constructor(private readonly args: Args) {
    super(args);
    this.vocabularySize = args['vocabularySize'] as number;
    this.sequenceLength = args['sequenceLength'] as number;
    this.embeddingDim = args['embeddingDim'] as number;
    this.parts = weightParts({ kernelInitializer: args['embeddingsInitializer'] ?? 'randomUniform' });
  }

  override build(inputShape: Shape | Shape[]): void {
    const [, steps, ...more] = inputShape as Shape;
    if (typeof steps !== 'number' || more.length > 0)
      throw new Error(`TokenAndPositionEmbedding takes token ids [steps], not [${(inputShape as Shape).slice(1).join(', ')}]`);
    if (steps > this.sequenceLength)
      throw new Error(`the input has ${steps} steps, and sequence_length is ${this.sequenceLength}: make it ${steps} or more`);
    const { kernelInitializer } = this.parts;
    this.tokens = this.addWeight('token_embeddings', [this.vocabularySize, this.embeddingDim], 'float32', kernelInitializer);
    this.positions = this.addWeight('position_embeddings', [this.sequenceLength, this.embeddingDim], 'float32', kernelInitializer);
    this.built = true;
  }

  override computeOutputShape(inputShape: Shape | Shape[]): Shape {
    return [...(inputShape as Shape), this.embeddingDim];
  }

  override call(inputs: tf.Tensor | tf.Tensor[]): tf.Tensor {
    return tf.tidy(() => {
      const ids = Array.isArray(inputs) ? inputs[0]! : inputs;
      const [batch, steps] = ids.shape as [number, number];
      const flat = tf.cast(tf.reshape(ids, [batch * steps]), 'int32');
      const tokens = tf.reshape(tf.gather(this.tokens.read(), flat as tf.Tensor1D), [batch, steps, this.embeddingDim]);
      return tf.add(tokens, tf.slice(this.positions.read(), [0, 0], [steps, this.embeddingDim]));
    });
  }

  override getConfig(): tf.serialization.ConfigDict {
    const { vocabularySize, sequenceLength, embeddingDim } = this;
    const embeddingsInitializer = (this.args['embeddingsInitializer'] ?? 'randomUniform') as string;
    return Object.assign({}, super.getConfig(), { vocabularySize, sequenceLength, embeddingDim, embeddingsInitializer });
  }
}

export function registerTokenEmbedding(): void {
  tf.serialization.registerClass(TokenAndPositionEmbedding as never);
}
