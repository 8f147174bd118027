/**
 * Global pooling as Keras 3 has it: `keepdims` leaves the pooled dimensions as ones, and the mean over steps is that of the steps that a mask leaves.
 * Where a mask leaves none, Keras divides zero by zero; here the mean is zero, so that one empty text does not end a run.
 */
import * as tf from '@tensorflow/tfjs-core';
import { replaceClass, single, type Args, type LayerClass } from '../replace-class.js';

type Shape = (number | null)[];
type Kwargs = Record<string, unknown>;

/** [batch, steps, channels] or [batch, height, width, channels], with channels first where the layer says so. */
function keeping(stock: LayerClass): LayerClass {
  return class extends stock {
    static override readonly className = stock.className;
    private readonly keepdims: boolean;
    constructor(args: Args) {
      super(args);
      this.keepdims = args['keepdims'] === true;
    }
    override computeOutputShape(inputShape: Shape | Shape[]): Shape | Shape[] {
      const pooled = super.computeOutputShape(inputShape) as Shape;
      return this.keepdims ? this.kept(pooled, (inputShape as Shape).length) : pooled;
    }
    override call(inputs: tf.Tensor | tf.Tensor[], kwargs: Kwargs): tf.Tensor | tf.Tensor[] {
      const pooled = super.call(inputs, kwargs);
      if (!this.keepdims) return pooled;
      return tf.tidy(() => tf.reshape(single(pooled), this.kept(single(pooled).shape, single(inputs).rank) as number[]));
    }
    override getConfig(): tf.serialization.ConfigDict {
      return Object.assign({}, super.getConfig(), { keepdims: this.keepdims });
    }
    private kept([batch = null, channels = null]: Shape, rank: number): Shape {
      const ones = Array.from({ length: rank - 2 }, () => 1);
      const { dataFormat } = this as unknown as { readonly dataFormat?: string };
      return dataFormat === 'channelsFirst' ? [batch, channels, ...ones] : [batch, ...ones, channels];
    }
  };
}

function masked(stock: LayerClass): LayerClass {
  return class extends stock {
    static override readonly className = stock.className;
    constructor(args: Args) {
      super(args);
      this.supportsMasking = true;
    }
    override computeMask(): tf.Tensor {
      return null as never; // tf.js takes null for none, and does not say so
    }
    override call(inputs: tf.Tensor | tf.Tensor[], kwargs: Kwargs): tf.Tensor | tf.Tensor[] {
      const mask = [kwargs['mask']].flat()[0] as tf.Tensor | null | undefined;
      if (!mask) return super.call(inputs, kwargs);
      return tf.tidy(() => {
        const counts = tf.expandDims(tf.cast(mask, 'float32'), 2);
        const sums = tf.sum(tf.mul(single(inputs), counts), 1);
        return tf.div(sums, tf.maximum(tf.sum(counts, 1), 1));
      });
    }
  };
}

export function registerGlobalPooling(): void {
  replaceClass('GlobalAveragePooling1D', (stock) => keeping(masked(stock)));
  for (const name of ['GlobalAveragePooling2D', 'GlobalMaxPooling1D', 'GlobalMaxPooling2D']) replaceClass(name, keeping);
}
