/**
 * ReLU and ELU with the settings of Keras, and ThresholdedReLU with a gradient. Of tf.js's own, the first knows max_value alone, the second
 * alpha 1 alone, the third cannot be differentiated. What Keras computes for ReLU: max_value from max_value on, x from the threshold on, negative_slope · (x − threshold) below.
 */
import * as tf from '@tensorflow/tfjs-core';
import { replaceClass, single, type Args, type LayerClass } from '../replace-class.js';

interface Rectifier {
  readonly threshold: number;
  readonly slope: number;
  readonly max: number;
}

/** One pass each way over masks of numbers: a comparison has no gradient that tf.js could follow. */
function rectify(input: tf.Tensor, { threshold, slope, max }: Rectifier, isPassed: (x: tf.Tensor) => tf.Tensor): tf.Tensor {
  const op = tf.customGrad((x, save) => {
    const tensor = x as tf.Tensor;
    const passed = tf.cast(isPassed(tensor), 'float32');
    const rest = tf.sub(1, passed);
    const below = slope === 0 ? undefined : tf.mul(rest, tf.mul(slope, tf.sub(tensor, threshold)));
    const whole = below ? tf.add(tf.mul(passed, tensor), below) : tf.mul(passed, tensor);
    const slopes = slope === 0 ? passed : tf.add(passed, tf.mul(rest, slope));
    const isBounded = Number.isFinite(max);
    const value = isBounded ? tf.minimum(whole, max) : whole;
    const gradient = isBounded ? tf.mul(slopes, tf.cast(tf.less(whole, max), 'float32')) : slopes;
    (save as tf.GradSaveFunc)([gradient]);
    return { value, gradFunc: (dy, saved) => tf.mul(dy, saved[0]!) };
  });
  return op(input);
}

function withSlopeAndThreshold(stock: LayerClass): LayerClass {
  return class extends stock {
    static override readonly className = 'ReLU';
    private readonly negativeSlope: number;
    private readonly threshold: number;
    constructor(args: Args) {
      super(args);
      this.negativeSlope = (args['negativeSlope'] as number | null | undefined) ?? 0;
      this.threshold = (args['threshold'] as number | null | undefined) ?? 0;
    }
    override call(inputs: tf.Tensor | tf.Tensor[], kwargs: Record<string, unknown>): tf.Tensor | tf.Tensor[] {
      const { negativeSlope: slope, threshold } = this;
      if (slope === 0 && threshold === 0) return super.call(inputs, kwargs);
      const max = (this as unknown as { readonly maxValue?: number | null }).maxValue ?? Infinity;
      return tf.tidy(() => rectify(single(inputs), { threshold, slope, max }, (x) => tf.greaterEqual(x, threshold)));
    }
    override getConfig(): tf.serialization.ConfigDict {
      return { ...super.getConfig(), negativeSlope: this.negativeSlope, threshold: this.threshold };
    }
  };
}

function withGradient(stock: LayerClass): LayerClass {
  return class extends stock {
    static override readonly className = 'ThresholdedReLU';
    override call(inputs: tf.Tensor | tf.Tensor[]): tf.Tensor {
      const { theta } = this as unknown as { readonly theta: number };
      return tf.tidy(() => rectify(single(inputs), { threshold: 0, slope: 0, max: Infinity }, (x) => tf.greater(x, theta)));
    }
  };
}

function withAlpha(stock: LayerClass): LayerClass {
  return class extends stock {
    static override readonly className = 'ELU';
    private readonly alpha: number;
    constructor(args: Args) {
      super({ ...args, alpha: 1 });
      this.alpha = (args['alpha'] as number | null | undefined) ?? 1;
    }
    override call(inputs: tf.Tensor | tf.Tensor[], kwargs: Record<string, unknown>): tf.Tensor | tf.Tensor[] {
      if (this.alpha === 1) return super.call(inputs, kwargs);
      const x = single(inputs);
      return tf.tidy(() => tf.add(tf.relu(x), tf.mul(this.alpha, tf.elu(tf.minimum(x, 0)))));
    }
  };
}

/** In Keras masks pass, in tf.js they end here. */
function passingMasks(stock: LayerClass): LayerClass {
  return class extends stock {
    static override readonly className = stock.className;
    constructor(args: Args) {
      super(args);
      this.supportsMasking = true;
    }
  };
}

export function registerRectifiers(): void {
  replaceClass('ReLU', withSlopeAndThreshold);
  replaceClass('ELU', (stock) => passingMasks(withAlpha(stock)));
  replaceClass('LeakyReLU', passingMasks);
  replaceClass('ThresholdedReLU', withGradient);
}
