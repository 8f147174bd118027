/**
 * MultiHeadAttention as Keras 3 has it (Vaswani et al. 2017), which tf.js does not export. Called on [query, value], [query, value, key] or one
 * tensor that is all three. Its causal mask is an argument of the call in Keras, and a setting of the layer here: `attention-calls.ts` takes
 * the one for the other.
 */
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import type { Args } from '../replace-class.js';
import { weightParts, type WeightParts } from '../weight-config.js';

type Shape = (number | null)[];
const isShapes = (shape: Shape | Shape[]): shape is Shape[] => Array.isArray(shape[0]);
/** Query, value and key. */
const three = <T>(given: readonly T[]): [T, T, T] => [given[0]!, given[1] ?? given[0]!, given[2] ?? given[1] ?? given[0]!];

/** Query, key [batch, steps, heads · keyDim] and value [batch, steps, heads · valueDim] of one attention. */
export interface Projected {
  readonly query: tf.Tensor3D;
  readonly key: tf.Tensor3D;
  readonly value: tf.Tensor3D;
}

export interface AttentionSizes {
  readonly heads: number;
  readonly keyDim: number;
  readonly valueDim: number;
  readonly isCausal: boolean;
}

/** [batch, steps, heads · valueDim]: what the heads see, side by side. */
export type Attend = (projected: Projected, sizes: AttentionSizes) => tf.Tensor3D;
type Project = (x: tf.Tensor2D, kernel: tf.Tensor2D, bias: tf.Tensor1D | undefined) => tf.Tensor2D;

interface Weight {
  readonly kernel: tfl.LayerVariable;
  readonly bias: tfl.LayerVariable | undefined;
}

export class MultiHeadAttention extends tfl.layers.Layer {
  static readonly className = 'MultiHeadAttention';
  /** Kernels of an engine take their places. */
  attend: Attend = attendInOperations;
  project: Project = (x, kernel, bias) => (bias ? tf.add(tf.matMul(x, kernel), bias) : tf.matMul(x, kernel));
  /** Elements for one example that the gradient needs of each head. */
  scoreElements = 0;
  private readonly sizes: AttentionSizes;
  private readonly dropout: number;
  private readonly useBias: boolean;
  private readonly outputSize: number | undefined;
  private readonly parts: WeightParts;
  private weightsOf!: { readonly query: Weight; readonly key: Weight; readonly value: Weight; readonly output: Weight };

  constructor(private readonly args: Args) {
    super(args);
    const { numHeads, keyDim, valueDim, useCausalMask, dropout, useBias, outputShape } = args;
    this.sizes = {
      heads: numHeads as number,
      keyDim: keyDim as number,
      valueDim: (valueDim ?? keyDim) as number,
      isCausal: useCausalMask === true,
    };
    this.dropout = (dropout ?? 0) as number;
    this.useBias = useBias !== false;
    this.outputSize = [outputShape ?? []].flat()[0] as number | undefined;
    this.parts = weightParts(args);
  }

  override build(inputShape: Shape | Shape[]): void {
    const [query, value, key] = three(isShapes(inputShape) ? inputShape : [inputShape]);
    checkShapes(isShapes(inputShape) ? inputShape : [inputShape], query, value, key);
    const { heads, keyDim, valueDim } = this.sizes;
    this.weightsOf = {
      query: this.weight('query', [query.at(-1)!, heads, keyDim], [heads, keyDim]),
      key: this.weight('key', [key.at(-1)!, heads, keyDim], [heads, keyDim]),
      value: this.weight('value', [value.at(-1)!, heads, valueDim], [heads, valueDim]),
      output: this.weight('output', [heads, valueDim, this.outputSize ?? query.at(-1)!], [this.outputSize ?? query.at(-1)!]),
    };
    this.scoreElements = heads * query[1]! * key[1]!;
    this.built = true;
  }

  override computeOutputShape(inputShape: Shape | Shape[]): Shape {
    const query = isShapes(inputShape) ? inputShape[0]! : inputShape;
    return [...query.slice(0, -1), this.outputSize ?? query.at(-1)!];
  }

  override call(inputs: tf.Tensor | tf.Tensor[], { training }: { training?: boolean }): tf.Tensor {
    return tf.tidy(() => {
      const { query, key, value, output } = this.weightsOf;
      const [queries, values, keys] = three(Array.isArray(inputs) ? inputs : [inputs]);
      const projected = {
        query: this.projected(queries, query, 1),
        key: this.projected(keys, key, 1),
        value: this.projected(values, value, 1),
      };
      const isDropping = training === true && this.dropout > 0;
      const seen = isDropping ? attendInOperations(projected, this.sizes, this.dropout) : this.attend(projected, this.sizes);
      return this.projected(seen, output, 2);
    });
  }

  override getConfig(): tf.serialization.ConfigDict {
    const { name: _name, ...own } = this.args;
    return Object.assign({}, super.getConfig(), own) as tf.serialization.ConfigDict;
  }

  private weight(name: string, kernel: number[], bias: number[]): Weight {
    const { kernelInitializer, biasInitializer, kernelRegularizer, biasRegularizer } = this.parts;
    return {
      kernel: this.addWeight(`${name}_kernel`, kernel, 'float32', kernelInitializer, kernelRegularizer),
      bias: this.useBias ? this.addWeight(`${name}_bias`, bias, 'float32', biasInitializer, biasRegularizer) : undefined,
    };
  }

  /** A product over the last axis; the first `inner` axes of the kernel are what is summed over. */
  private projected(x: tf.Tensor, { kernel, bias }: Weight, inner: number): tf.Tensor3D {
    const [batch, steps, width] = x.shape as [number, number, number];
    const { shape } = kernel;
    const size = shape.slice(inner).reduce<number>((product, n) => product * n!, 1);
    const matrix = tf.reshape(kernel.read(), [width, size]);
    const product = this.project(tf.reshape(x, [batch * steps, width]), matrix as tf.Tensor2D, bias && tf.reshape(bias.read(), [size]));
    return tf.reshape(product, [batch, steps, size]);
  }
}

function checkShapes(given: readonly Shape[], query: Shape, value: Shape, key: Shape): void {
  if (given.length > 3) throw new Error(`MultiHeadAttention is called on query, value and perhaps key, not on ${given.length} tensors`);
  const other = given.find((shape) => shape.length !== 3 || !shape.slice(1).every((n) => typeof n === 'number'));
  if (other) throw new Error(`MultiHeadAttention takes sequences [steps, width], not [${other.slice(1).join(', ')}]`);
  if (value[1] !== key[1]) throw new Error(`key and value must have as many steps: they have ${key[1]} and ${value[1]}`);
  if (query.length !== 3) throw new Error('MultiHeadAttention needs a query');
}

/** −10⁹ where a step would look at a later one, else 0. */
function causalMask(queries: number, keys: number): tf.Tensor2D {
  const values = new Float32Array(queries * keys);
  for (let t = 0; t < queries; t++) for (let s = t + 1; s < keys; s++) values[t * keys + s] = -1e9;
  return tf.tensor2d(values, [queries, keys]);
}

/** Attention made of operations whose gradients all engines have. */
function attendInOperations({ query, key, value }: Projected, sizes: AttentionSizes, dropout = 0): tf.Tensor3D {
  const { heads, keyDim, valueDim, isCausal } = sizes;
  const [batch, steps] = query.shape;
  const split = (x: tf.Tensor3D, size: number): tf.Tensor4D => tf.transpose(tf.reshape(x, [batch, x.shape[1], heads, size]), [0, 2, 1, 3]);
  const scaled = tf.mul(split(query, keyDim), 1 / Math.sqrt(keyDim));
  const scores = tf.matMul(scaled, split(key, keyDim), false, true);
  const weights = tf.softmax(isCausal ? tf.add(scores, causalMask(steps, key.shape[1])) : scores);
  const seen = tf.matMul(dropout > 0 ? tf.dropout(weights, dropout) : weights, split(value, valueDim));
  return tf.reshape(tf.transpose(seen, [0, 2, 1, 3]), [batch, steps, heads * valueDim]);
}

export function registerAttention(): void {
  tf.serialization.registerClass(MultiHeadAttention as never);
}
