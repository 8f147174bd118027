/**
 * Layers that prepare rows: Rescaling, CenterCrop, CategoryEncoding. In tf.js 4.22 the last two write the shape of their
 * output into that of their input, take configs that fail when the model runs, and have no gradient. Here CenterCrop has one;
 * CategoryEncoding is held in front of all weights (`check-layer-positions.ts`), and a config that cannot work is refused while the
 * model is built.
 */
import * as tf from '@tensorflow/tfjs-core';
import { replaceClass, type Args, type LayerClass } from '../replace-class.js';

type Shape = (number | null)[];

const isShapes = (shape: Shape | Shape[]): shape is Shape[] => Array.isArray(shape[0]);

export function registerPreprocessing(): void {
  replaceClass('Rescaling', (stock) => refusing(stock, checkRescaling));
  replaceClass('CenterCrop', (stock) => croppingByPlaces(refusing(stock, checkSizes, checkCrop)));
  replaceClass('CategoryEncoding', (stock) => refusing(stock, checkEncoding, checkCategories));
}

/** tf.js's class with its configuration and the shape of its input checked, and with a copy of that shape to work on. */
function refusing(stock: LayerClass, checkArgs: (args: Args) => void, checkInput?: (shape: Shape, args: Args) => void): LayerClass {
  return class extends stock {
    static override readonly className = stock.className;
    private readonly args: Args;
    constructor(args: Args) {
      checkArgs(args);
      super(args);
      this.args = args;
    }
    override computeOutputShape(inputShape: Shape | Shape[]): Shape | Shape[] {
      const shape = [...(isShapes(inputShape) ? inputShape[0]! : inputShape)];
      checkInput?.(shape, this.args);
      return super.computeOutputShape(shape);
    }
  };
}

const isFloat32 = (value: unknown): boolean => typeof value === 'number' && Number.isFinite(Math.fround(value));

/** A list would be broadcast: the output would have another shape than the layer says. */
function checkRescaling({ scale, offset = 0 }: Args): void {
  if (!isFloat32(scale)) throw new Error('Rescaling needs a scale, one number that float32 can hold');
  if (!isFloat32(offset)) throw new Error('the offset of Rescaling is one number that float32 can hold');
}

function checkSizes({ height, width }: Args): void {
  for (const size of [height, width])
    if (!Number.isSafeInteger(size) || (size as number) < 1) throw new Error('CenterCrop needs height and width, both positive integers');
}

function checkCrop(shape: Shape, { height, width }: Args): void {
  if (shape.length !== 4) throw new Error(`CenterCrop takes images of three dimensions, not [${shape.slice(1).join(', ')}]`);
  const [, rows, columns] = shape as number[];
  if ((height as number) > rows! || (width as number) > columns!)
    throw new Error(`CenterCrop cannot take ${String(height)} × ${String(width)} from an image of ${rows} × ${columns}`);
}

/** The same pixels as tf.js takes, on every engine: by their places, which has a gradient. Of Keras 3 (`isExact`) the middle as it is. */
function croppingByPlaces(stock: LayerClass): LayerClass {
  return class extends stock {
    static override readonly className = stock.className;
    private readonly isExact: boolean;
    constructor(args: Args) {
      super(args);
      this.isExact = args['isExact'] === true;
    }
    override call(inputs: tf.Tensor | tf.Tensor[]): tf.Tensor {
      const image = Array.isArray(inputs) ? inputs[0]! : inputs;
      const { height, width } = this as unknown as { readonly height: number; readonly width: number };
      const [, rows, columns, channels] = image.shape as [number, number, number, number];
      if (this.isExact)
        return tf.slice(image, [0, Math.floor((rows - height) / 2), Math.floor((columns - width) / 2), 0], [-1, height, width, channels]);
      const left = columns === width ? 0 : Math.max(1, Math.floor((columns - width) / 2));
      return tf.tidy(() => {
        const cropped = tf.gather(image, tf.tensor1d(placesOf(rows, height, Math.floor((rows - height) / 2)), 'int32'), 1);
        return tf.gather(cropped, tf.tensor1d(placesOf(columns, width, left), 'int32'), 2);
      });
    }
  };
}

/**
 * `count` places of `size`, from about `first` on. tf.js resamples (cropAndResize, the nearest pixel of evenly spread points,
 * with the ends as fractions in float32), so that one place may come twice and its neighbour not at all.
 */
export function placesOf(size: number, count: number, first: number): number[] {
  const [from, to] = [Math.fround(first / size), Math.fround((first + count) / size)];
  const at = (i: number): number =>
    count > 1 ? from * (size - 1) + i * (((to - from) * (size - 1)) / (count - 1)) : 0.5 * (from + to) * (size - 1);
  return Array.from({ length: count }, (_, i) => Math.min(Math.round(at(i)), size - 1));
}

const MODES: ReadonlySet<unknown> = new Set(['multiHot', 'oneHot', 'count']);

function checkEncoding({ numTokens, outputMode = 'multiHot' }: Args): void {
  if (!Number.isSafeInteger(numTokens) || (numTokens as number) < 1)
    throw new Error('CategoryEncoding needs num_tokens, a positive integer');
  if (!MODES.has(outputMode)) throw new Error('the output_mode of CategoryEncoding is multi_hot, one_hot or count');
}

function checkCategories(shape: Shape, { outputMode }: Args): void {
  if (shape.length !== 2) throw new Error(`CategoryEncoding takes rows of one dimension, not [${shape.slice(1).join(', ')}]`);
  if (outputMode === 'oneHot' && shape[1] !== 1)
    throw new Error(`CategoryEncoding with one_hot takes one number per example, not ${shape[1]}`);
}
