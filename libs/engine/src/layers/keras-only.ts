/**
 * Layers of Keras that tf.js has not, or has in a form that no model can call: Conv1DTranspose, Subtract, SpatialDropout2D, Normalization with its
 * statistics in the config, and Resizing at the centres of pixels.
 */
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { single, stockClass, type Args, type LayerClass } from './replace-class.js';
import { resizingMatrix, type Interpolation } from './preprocessing/resizing.js';

type Shape = (number | null)[];
type Kwargs = Record<string, unknown>;
type Activation = { apply(x: tf.Tensor): tf.Tensor };

function register(layer: unknown): void {
  tf.serialization.registerClass(layer as tf.serialization.SerializableConstructor<tf.serialization.Serializable>);
}

interface Transposed {
  kernel: Pick<tfl.LayerVariable, 'read'>;
  bias: tfl.LayerVariable | null;
  activation: Activation | null;
  readonly useBias: boolean;
  readonly filters: number;
  readonly kernelInitializer: never;
  readonly kernelRegularizer: never;
  readonly biasInitializer: never;
  readonly biasRegularizer: never;
}

/** A Conv2DTranspose over columns of one pixel. */
function conv1dTranspose(stock: LayerClass): LayerClass {
  return class extends stock {
    static override readonly className = 'Conv1DTranspose';
    private readonly size: number;
    constructor(private readonly args: Args) {
      const [size, stride] = [args['kernelSize'], args['strides'] ?? 1].map((one) => [one].flat()[0] as number) as [number, number];
      super(Object.assign({}, args, { kernelSize: [size, 1], strides: [stride, 1], dilationRate: 1 }));
      this.size = size;
      this.inputSpec = [new tfl.InputSpec({ ndim: 3 })];
    }
    override build(inputShape: Shape | Shape[]): void {
      const { filters, useBias, kernelInitializer, kernelRegularizer, biasInitializer, biasRegularizer } = this as unknown as Transposed;
      const channels = (inputShape as Shape)[2]!;
      const layer = this as unknown as Transposed;
      layer.kernel = this.addWeight('kernel', [this.size, filters, channels], 'float32', kernelInitializer, kernelRegularizer);
      if (useBias) layer.bias = this.addWeight('bias', [filters], 'float32', biasInitializer, biasRegularizer);
      this.inputSpec = [new tfl.InputSpec({ ndim: 3, axes: { 2: channels } })];
      this.built = true;
    }
    override computeOutputShape(inputShape: Shape | Shape[]): Shape {
      const [batch = null, steps = null, channels = null] = inputShape as Shape;
      const [, made = null, , filters = null] = super.computeOutputShape([batch, steps, 1, channels]) as Shape;
      return [batch, made, filters];
    }
    override call(inputs: tf.Tensor | tf.Tensor[], kwargs: Kwargs): tf.Tensor {
      const layer = this as unknown as Transposed;
      const { kernel, activation } = layer;
      return tf.tidy(() => {
        const [batch, steps, channels] = single(inputs).shape as [number, number, number];
        layer.kernel = { read: () => tf.expandDims(kernel.read(), 1) };
        layer.activation = null;
        try {
          const columns = super.call(tf.reshape(single(inputs), [batch, steps, 1, channels]), kwargs) as tf.Tensor;
          const rows = tf.squeeze(columns, [2]);
          return activation ? activation.apply(rows) : rows;
        } finally {
          Object.assign(layer, { kernel, activation });
        }
      });
    }
    override getConfig(): tf.serialization.ConfigDict {
      const { kernelSize, strides = 1 } = this.args;
      return Object.assign({}, super.getConfig(), { kernelSize, strides }) as tf.serialization.ConfigDict;
    }
  };
}

function subtract(stock: LayerClass): LayerClass {
  return class extends stock {
    static override readonly className = 'Subtract';
    override build(inputShape: Shape | Shape[]): void {
      const called = Array.isArray(inputShape[0]) ? inputShape.length : 1;
      if (called !== 2) throw new Error(`Subtract is called on two tensors, not on ${called}`);
      super.build(inputShape);
    }
    mergeFunction([from, taken]: tf.Tensor[]): tf.Tensor {
      return tf.sub(from!, taken!);
    }
  };
}

/** Drops whole channels of images. */
function spatialDropout2d(stock: LayerClass): LayerClass {
  return class extends stock {
    static override readonly className = 'SpatialDropout2D';
    private readonly dataFormat: string;
    constructor(args: Args) {
      super(args);
      this.dataFormat = (args['dataFormat'] as string | null | undefined) ?? 'channelsLast';
      this.inputSpec = [new tfl.InputSpec({ ndim: 4 })];
    }
    getNoiseShape({ shape }: tf.Tensor): number[] {
      const [batch, , , last] = shape as [number, number, number, number];
      return this.dataFormat === 'channelsFirst' ? [batch, shape[1]!, 1, 1] : [batch, 1, 1, last];
    }
    override getConfig(): tf.serialization.ConfigDict {
      return Object.assign({}, super.getConfig(), { dataFormat: this.dataFormat });
    }
  };
}

type Nested = number | readonly Nested[];
const shapeIn = (value: Nested): number[] =>
  typeof value === 'number' ? [] : [value.length, ...(value.length > 0 ? shapeIn(value[0]!) : [])];
const EPSILON = 1e-7;

function valuesOf(nested: Nested, shape: readonly number[]): Float32Array {
  const values: number[] = [];
  const visit = (one: Nested): void => (typeof one === 'number' ? void values.push(one) : one.forEach(visit));
  visit(nested);
  if (values.length !== shape.reduce((a, b) => a * b, 1))
    throw new Error('the lists of mean and variance of Normalization differ in length');
  return Float32Array.from(values);
}

/** The shape of statistics among the dimensions of the input: they belong to the axes that are kept, their last dimension to the last axis. */
function statisticsShape(inputShape: Shape, axes: readonly number[], given: readonly number[]): number[] {
  const kept = axes.map((axis) => (axis < 0 ? axis + inputShape.length : axis)).sort((a, b) => a - b);
  const shape = inputShape.map(() => 1);
  if (given.length > kept.length || kept.some((axis) => axis < 1 || axis >= shape.length))
    throw new Error(`Normalization has statistics of the shape [${given.join(', ')}] for the axes [${axes.join(', ')}]`);
  for (let i = 1; i <= given.length; i++) {
    const axis = kept.at(-i)!;
    if (given.at(-i) !== 1 && given.at(-i) !== inputShape[axis])
      throw new Error(
        `Normalization has statistics of the shape [${given.join(', ')}], and its input is [${inputShape.slice(1).join(', ')}]`,
      );
    shape[axis] = given.at(-i)!;
  }
  return shape;
}

/** (x − mean) / max(√variance, epsilon), or the inverse. */
class Normalization extends tfl.layers.Layer {
  static readonly className = 'Normalization';
  private mean!: tf.TensorBuffer<tf.Rank>;
  /** At least epsilon. */
  private deviation!: tf.TensorBuffer<tf.Rank>;

  constructor(private readonly args: Args) {
    super(args);
  }

  override build(inputShape: Shape | Shape[]): void {
    const { mean, variance, axis = -1 } = this.args as { mean?: Nested | null; variance?: Nested | null; axis?: number | number[] | null };
    if (mean == null || variance == null)
      throw new Error('Normalization needs mean and variance: adapt it and save the model as .keras or .h5, or give both');
    if (shapeIn(variance).join() !== shapeIn(mean).join()) throw new Error('mean and variance of Normalization must have the same shape');
    const shape = statisticsShape(inputShape as Shape, axis === null ? [] : [axis].flat(), shapeIn(mean));
    this.mean = tf.buffer(shape, 'float32', valuesOf(mean, shape));
    this.deviation = tf.buffer(
      shape,
      'float32',
      valuesOf(variance, shape).map((one) => Math.max(Math.sqrt(one), EPSILON)),
    );
    this.built = true;
  }

  override computeOutputShape(inputShape: Shape | Shape[]): Shape {
    return inputShape as Shape;
  }

  override call(inputs: tf.Tensor | tf.Tensor[]): tf.Tensor {
    return tf.tidy(() => {
      const [x, mean, deviation] = [single(inputs), this.mean.toTensor(), this.deviation.toTensor()];
      return this.args['invert'] === true ? tf.add(mean, tf.mul(x, deviation)) : tf.div(tf.sub(x, mean), deviation);
    });
  }

  override getConfig(): tf.serialization.ConfigDict {
    const { mean, variance, axis = -1, invert = false } = this.args;
    return Object.assign({}, super.getConfig(), { mean, variance, axis, invert }) as tf.serialization.ConfigDict;
  }
}

/** 64 MiB as float32: as much as one example may have after a layer. */
const MATRIX_ELEMENTS_MAX = 1 << 24;

/** By products with matrices, which every engine can differentiate. */
class Resizing extends tfl.layers.Layer {
  static readonly className = 'Resizing';

  constructor(private readonly args: Args) {
    super(args);
    this.inputSpec = [new tfl.InputSpec({ ndim: 4 })];
  }

  override computeOutputShape(inputShape: Shape | Shape[]): Shape {
    const shape = [...(inputShape as Shape)];
    const sizes = [this.args['height'], this.args['width']] as const;
    this.axes.forEach((axis, i) => {
      const [before, after] = [shape[axis], sizes[i] as number];
      if (typeof before !== 'number') throw new Error('Resizing takes images of one size');
      if (before * after > MATRIX_ELEMENTS_MAX)
        throw new Error(`Resizing cannot make ${after} of ${before} pixels: at most ${Math.floor(MATRIX_ELEMENTS_MAX / before)}`);
      shape[axis] = after;
    });
    return shape;
  }

  override call(inputs: tf.Tensor | tf.Tensor[]): tf.Tensor {
    const { height, width } = this.args as { height: number; width: number };
    const [rows, columns] = this.axes;
    return tf.tidy(() => this.along(this.along(single(inputs), rows, height), columns, width));
  }

  override getConfig(): tf.serialization.ConfigDict {
    const { height, width, interpolation = 'bilinear', dataFormat = 'channelsLast' } = this.args;
    return Object.assign({}, super.getConfig(), { height, width, interpolation, dataFormat }) as tf.serialization.ConfigDict;
  }

  private get axes(): readonly [number, number] {
    return this.args['dataFormat'] === 'channelsFirst' ? [2, 3] : [1, 2];
  }

  private along(image: tf.Tensor, axis: number, size: number): tf.Tensor {
    const before = image.shape[axis]!;
    const matrix = tf.tensor2d(resizingMatrix(before, size, (this.args['interpolation'] ?? 'bilinear') as Interpolation), [before, size]);
    const order = [0, 1, 2, 3].filter((one) => one !== axis);
    const turned = tf.transpose(image, [...order, axis]);
    const made = tf.matMul(tf.reshape(turned, [image.size / before, before]), matrix);
    const back = [0, 1, 2, 3].map((one) => (one === axis ? 3 : order.indexOf(one)));
    return tf.transpose(tf.reshape(made, [...turned.shape.slice(0, 3), size]), back);
  }
}

export function registerKerasOnly(): void {
  register(conv1dTranspose(stockClass('Conv2DTranspose')));
  register(subtract(stockClass('Add')));
  register(spatialDropout2d(stockClass('SpatialDropout1D')));
  register(Normalization);
  register(Resizing);
}
