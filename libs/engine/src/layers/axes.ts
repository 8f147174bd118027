/** Layers of tf.js that do not do what their axis or shape says: what Keras does with the same config. */
import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { withInner } from './inner-layers.js';
import { replaceClass, single, type Args, type LayerClass } from './replace-class.js';
import type { BatchNormInternals } from './normalisation/batch-norm.js';

type Shape = (number | null)[];
const fromFront = (axis: number, rank: number): number => (axis < 0 ? axis + rank : axis);

/** Layers that do what they do in tf.js. */
const LEFT = new WeakSet<object>();

/** The layers of a model that has to give the numbers of tf.js stay as they are there. Layers that do not work in tf.js are not concerned. */
export function leaveToTfjs(layers: readonly tfl.layers.Layer[]): void {
  for (const layer of layers) for (const part of withInner(layer)) LEFT.add(part);
}

/** tf.js concatenates along the last axis, whatever negative one is given. */
const concatenatingAlong = (stock: LayerClass): LayerClass =>
  class extends stock {
    static override readonly className = 'Concatenate';
    mergeFunction(inputs: tf.Tensor[]): tf.Tensor {
      const { axis } = this as unknown as { readonly axis: number };
      if (LEFT.has(this))
        return (stock.prototype as unknown as { mergeFunction(given: tf.Tensor[]): tf.Tensor }).mergeFunction.call(this, inputs);
      return tf.tidy(() => tf.concat(inputs, fromFront(axis, inputs[0]!.rank)));
    }
  };

/** tf.js computes an unknown dimension when it reshapes, but does not say it beforehand where the batch is open. */
const reshapingToKnown = (stock: LayerClass): LayerClass =>
  class extends stock {
    static override readonly className = 'Reshape';
    override computeOutputShape(given: Shape | Shape[]): Shape {
      const { targetShape, fixUnknownDimension } = this as unknown as {
        readonly targetShape: Shape;
        fixUnknownDimension(from: Shape, to: Shape): Shape;
      };
      const [batch, ...sizes] = (Array.isArray(given[0]) ? given[0] : given) as Shape;
      if (sizes.some((size) => size === null || size! < 0)) return [batch!, ...targetShape];
      return [batch!, ...fixUnknownDimension.call(this, sizes, targetShape)];
    }
  };

/** The softmax of tf.js is along the last axis alone. */
const softmaxAlong = (stock: LayerClass): LayerClass =>
  class extends stock {
    static override readonly className = 'Softmax';
    override call(inputs: tf.Tensor | tf.Tensor[], kwargs: Record<string, unknown>): tf.Tensor | tf.Tensor[] {
      const x = single(inputs);
      const { axis } = this as unknown as { readonly axis: unknown };
      if (typeof axis !== 'number' || fromFront(axis, x.rank) === x.rank - 1 || kwargs['mask']) return super.call(inputs, kwargs);
      const order = Array.from({ length: x.rank }, (_, i) => i);
      const last = fromFront(axis, x.rank);
      [order[last], order[x.rank - 1]] = [x.rank - 1, last];
      return tf.tidy(() => tf.transpose(tf.softmax(tf.transpose(x, order)), order));
    }
  };

/** It changes no step, so a mask goes through it, as in Keras. */
const passingMasks = (stock: LayerClass): LayerClass =>
  class extends stock {
    static override readonly className = 'Rescaling';
    override supportsMasking = true;
  };

/**
 * Where masks meet in a layer that adds or compares: a step counts where all count, or, in Keras 3, where one does and each tensor has a mask. Those of tf.js
 * have a dimension too many, and leave out the last one.
 */
const meetingMasks =
  (className: string) =>
  (stock: LayerClass): LayerClass =>
    class extends stock {
      static override readonly className = className;
      readonly unites: boolean;
      constructor(args: Args) {
        super(args);
        this.unites = args['unitesMasks'] === true;
      }
      override computeMask(_inputs: tf.Tensor | tf.Tensor[], mask?: tf.Tensor | tf.Tensor[]): tf.Tensor | tf.Tensor[] {
        const given = [mask].flat() as (tf.Tensor | null | undefined)[];
        const [first, ...others] = given.filter((each) => each != null);
        if (!first || (this.unites && others.length + 1 < given.length)) return null as unknown as tf.Tensor;
        return tf.tidy(() => others.reduce((met, next) => (this.unites ? tf.logicalOr(met, next) : tf.logicalAnd(met, next)), first));
      }
    };
const MEETING = ['Add', 'Average', 'Maximum', 'Minimum', 'Multiply'];

type Norm = Omit<BatchNormInternals, 'momentum' | 'call'>;

/** By the moving averages the kernels of tf.js normalise along the last axis alone. */
const normalisingAlong = (stock: LayerClass): LayerClass =>
  class extends stock {
    static override readonly className = 'BatchNormalization';
    override call(inputs: tf.Tensor | tf.Tensor[], kwargs: Record<string, unknown>): tf.Tensor | tf.Tensor[] {
      const x = single(inputs);
      const norm = this as unknown as Norm;
      const axis = fromFront(norm.axis, x.rank);
      if (kwargs['training'] === true || axis === x.rank - 1 || LEFT.has(this)) return super.call(inputs, kwargs);
      this.invokeCallHook(inputs, kwargs);
      return tf.tidy(() => {
        const along = (values: tf.Tensor): tf.Tensor =>
          tf.reshape(
            values,
            x.shape.map((size, i) => (i === axis ? size : 1)),
          );
        const inverseDeviation = tf.rsqrt(tf.add(norm.movingVariance.read(), norm.epsilon));
        const factor = norm.gamma ? tf.mul(inverseDeviation, norm.gamma.read()) : inverseDeviation;
        const y = tf.mul(tf.sub(x, along(norm.movingMean.read())), along(factor));
        return norm.beta ? tf.add(y, along(norm.beta.read())) : y;
      });
    }
  };

export function registerAxes(): void {
  replaceClass('Concatenate', concatenatingAlong);
  replaceClass('Reshape', reshapingToKnown);
  replaceClass('Softmax', softmaxAlong);
  replaceClass('Rescaling', passingMasks);
  for (const name of MEETING) replaceClass(name, meetingMasks(name));
  replaceClass('BatchNormalization', normalisingAlong);
}
