/**
 * Dilated convolutions, which tf.js computes and cannot differentiate. A convolution with holes is one without whose filter has zeros in
 * between, so the filter is spread and everything else, gradients and kernels of all engines, is that of a plain convolution. It costs as
 * much as the larger filter. Here too: what tf.js's layers leave of their settings (causal padding of Conv1D, the dilation of DepthwiseConv2D, the pointwise
 * initializer of SeparableConv2D, its bias with channels first).
 */
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { replaceClass, type Args, type LayerClass } from '../replace-class.js';

type Shape = (number | null)[];

interface ConvInternals {
  kernelSize: number[];
  dilationRate: number | number[];
  dataFormat: string;
  padding: string;
  pointwiseInitializer: unknown;
  kernel: Readable;
  depthwiseKernel: Readable;
}
type Readable = Pick<tfl.LayerVariable, 'read'>;

/**
 * Puts rate − 1 zeros between the places of the first dimensions of a filter.
 * @param filter [height, width, …] or [width, …]; `rates` of these
 */
export function spread(filter: tf.Tensor, rates: readonly number[]): tf.Tensor {
  return tf.tidy(() => rates.reduce(spreadAlong, filter));
}

/** Dimensions before and behind the axis are merged: engines take tensors of rank 4 at most. */
function spreadAlong(filter: tf.Tensor, rate: number, axis: number): tf.Tensor {
  const places = filter.shape[axis]!;
  if (rate === 1 || places === 1) return filter;
  const [front, back] = [filter.shape.slice(0, axis), filter.shape.slice(axis + 1)];
  const [before, behind] = [front, back].map((sizes) => sizes.reduce((a, b) => a * b, 1)) as [number, number];
  const apart = tf.reshape(filter, [before, places, behind]);
  const between = tf.zeros([before, places, behind * (rate - 1)]);
  // Row-major: rate · behind numbers per place are rate places.
  const wide = tf.reshape(tf.concat([apart, between], 2), [before, places * rate, behind]);
  const size = (places - 1) * rate + 1;
  return tf.reshape(tf.slice(wide, [0, 0, 0], [before, size, behind]), [...front, size, ...back]);
}

const ratesOf = ({ dilationRate, kernelSize }: ConvInternals): number[] =>
  Array.isArray(dilationRate) ? dilationRate : kernelSize.map(() => dilationRate);

/** Runs with other values in the layer's fields, as long as `run` takes. */
function during<T>(layer: ConvInternals, values: Partial<ConvInternals>, run: () => T): T {
  const before = Object.fromEntries(Object.keys(values).map((key) => [key, layer[key as keyof ConvInternals]]));
  Object.assign(layer, values);
  try {
    return run();
  } finally {
    Object.assign(layer, before);
  }
}

type Filter = 'kernel' | 'depthwiseKernel';

function dilating(stock: LayerClass, filter: Filter): LayerClass {
  return class extends stock {
    static override readonly className = stock.className;
    override call(inputs: tf.Tensor | tf.Tensor[], kwargs: Record<string, unknown>): tf.Tensor | tf.Tensor[] {
      const layer = this as unknown as ConvInternals;
      const rates = ratesOf(layer);
      if (rates.every((rate) => rate === 1)) return super.call(inputs, kwargs);
      const weight = layer[filter];
      const plain = { dilationRate: rates.map(() => 1), [filter]: { read: () => spread(weight.read(), rates) } };
      return tf.tidy(() => during(layer, plain, () => super.call(inputs, kwargs)));
    }
  };
}

/** Causal: a step sees itself and what came before. tf.js knows the word and has no kernel for it; zeros in front of the sequence are the same. */
function causal(stock: LayerClass): LayerClass {
  return class extends stock {
    static override readonly className = stock.className;
    override computeOutputShape(inputShape: Shape | Shape[]): Shape | Shape[] {
      const layer = this as unknown as ConvInternals;
      if (layer.padding !== 'causal') return super.computeOutputShape(inputShape) as Shape;
      return during(layer, { padding: 'same' }, () => super.computeOutputShape(inputShape)) as Shape;
    }
    override call(inputs: tf.Tensor | tf.Tensor[], kwargs: Record<string, unknown>): tf.Tensor | tf.Tensor[] {
      const layer = this as unknown as ConvInternals;
      if (layer.padding !== 'causal') return super.call(inputs, kwargs);
      const rows = Array.isArray(inputs) ? inputs[0]! : inputs;
      const before = (layer.kernelSize[0]! - 1) * ratesOf(layer)[0]!;
      return tf.tidy(() => {
        const padded = tf.pad(rows, [
          [0, 0],
          [before, 0],
          [0, 0],
        ]);
        return during(layer, { padding: 'valid' }, () => super.call(padded, kwargs));
      });
    }
  };
}

/** tf.js computes the shape as if there were no dilation. */
function shapedByDilation(stock: LayerClass): LayerClass {
  return class extends stock {
    static override readonly className = stock.className;
    override computeOutputShape(inputShape: Shape | Shape[]): Shape | Shape[] {
      const layer = this as unknown as ConvInternals;
      const rates = ratesOf(layer);
      const kernelSize = layer.kernelSize.map((size, i) => (size - 1) * rates[i]! + 1);
      return during(layer, { kernelSize }, () => super.computeOutputShape(inputShape)) as Shape;
    }
  };
}

/** tf.js starts the pointwise kernel like the depthwise one, and adds the bias to the wrong dimension with channels first. */
function wholeSeparable(stock: LayerClass): LayerClass {
  return class extends stock {
    static override readonly className = stock.className;
    constructor(args: Args) {
      super(args);
      const layer = this as unknown as ConvInternals;
      layer.pointwiseInitializer = initializerOf(args['pointwiseInitializer'] ?? 'glorotUniform');
    }
    override call(inputs: tf.Tensor | tf.Tensor[], kwargs: Record<string, unknown>): tf.Tensor | tf.Tensor[] {
      const layer = this as unknown as ConvInternals;
      if (layer.dataFormat !== 'channelsFirst') return super.call(inputs, kwargs);
      const image = Array.isArray(inputs) ? inputs[0]! : inputs;
      return tf.tidy(() => {
        const turned = tf.transpose(image, [0, 2, 3, 1]);
        const output = during(layer, { dataFormat: 'channelsLast' }, () => super.call(turned, kwargs)) as tf.Tensor;
        return tf.transpose(output, [0, 3, 1, 2]);
      });
    }
  };
}

/** tf.js exports no function for it; any layer reads its initializer from a config. */
function initializerOf(config: unknown): unknown {
  const reader = tfl.layers.dense({ units: 1, kernelInitializer: config as 'zeros' }) as unknown as { readonly kernelInitializer: unknown };
  return reader.kernelInitializer;
}

export function registerDilated(): void {
  replaceClass('Conv1D', (stock) => causal(dilating(stock, 'kernel')));
  replaceClass('Conv2D', (stock) => dilating(stock, 'kernel'));
  replaceClass('DepthwiseConv2D', (stock) => shapedByDilation(dilating(stock, 'depthwiseKernel')));
  replaceClass('SeparableConv2D', (stock) => wholeSeparable(dilating(stock, 'depthwiseKernel')));
}
