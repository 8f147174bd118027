/**
 * Random changes of training images that keep their class: turned, made larger or smaller, mirrored and moved, in this order, about the middle of the image, in one
 * pass with bilinear interpolation. What comes in from outside is 0.
 *
 * What an image becomes is a function of the numbers that are drawn for it, by + − × ÷ alone, so that the bits do not depend on the machine or the
 * version of Node. Moving goes by whole pixels: alone, it changes no pixel's value.
 */
import type { Features, RowFormat, RunSpec } from '@paceline/spec';

export type Augmentation = NonNullable<RunSpec['augmentation']>;

/** Uniform numbers in [0, 1). */
export interface UniformStream {
  nextFloat(): number;
}

/** Why the examples of a run cannot be augmented; undefined where they can. */
export function augmentationFault({ inputs }: RowFormat, features?: Features): string | undefined {
  if (Object.values(features?.targets ?? {}).some(({ kind }) => kind === 'same'))
    return 'does not go with a target of kind same: the target would be the image before it was changed; leave augmentation out';
  if (inputs.length === 1 && inputs[0]!.shape.length === 3) return undefined;
  const shapes = inputs.map(({ name, shape }) => `${name} [${shape.join(', ')}]`).join(', ');
  return `needs one image [height, width, channels] as the only input; the data has ${shapes}: leave augmentation out`;
}

export class ImageAugmenter {
  private readonly height: number;
  private readonly width: number;
  private readonly channels: number;
  private readonly before: Float32Array;
  /** Tangent of half the largest angle. */
  private readonly largestTangent: number;

  /** @param shape of an image: height, width, channels */
  constructor(
    private readonly options: Augmentation,
    shape: readonly number[],
  ) {
    if (shape.length !== 3)
      throw new RangeError(`augmentation is for images [height, width, channels], not for examples [${shape.join(', ')}]`);
    const [height, width, channels] = shape as [number, number, number];
    this.height = height;
    this.width = width;
    this.channels = channels;
    this.before = new Float32Array(height * width * channels);
    this.largestTangent = tangent((options.rotateDegrees * Math.PI) / 360);
  }

  /** Changes one image, row-major, in place. Draws five numbers, whatever is asked for, so that one option does not change what another draws. */
  apply(image: Float32Array, stream: UniformStream): void {
    const { shiftPixels, zoom, mirror } = this.options;
    const signed = (): number => 2 * stream.nextFloat() - 1;
    const whole = (): number => Math.floor(stream.nextFloat() * (2 * shiftPixels + 1)) - shiftPixels;
    const [right, down, t, factor, isMirrored] = [
      whole(),
      whole(),
      signed() * this.largestTangent,
      1 + signed() * zoom,
      stream.nextFloat() < 0.5,
    ];
    // sin and cos by the tangent of half the angle: exact operations alone.
    const norm = (1 + t * t) * factor;
    const [cos, sin] = [(1 - t * t) / norm, (2 * t) / norm];
    const flip = mirror && isMirrored ? -1 : 1;
    this.resample(image, { right, down, cos, sin, flip });
  }

  /** Every pixel takes what lies at the place that it came from. */
  private resample(image: Float32Array, { right, down, cos, sin, flip }: Change): void {
    const { height, width, channels, before } = this;
    const middleRow = (height - 1) / 2;
    const middleColumn = (width - 1) / 2;
    const line = width * channels;
    before.set(image);
    let at = 0;
    for (let row = 0; row < height; row++) {
      const v = row - down - middleRow;
      for (let column = 0; column < width; column++) {
        const u = column - right - middleColumn;
        const fromRow = cos * v - sin * u + middleRow;
        const fromColumn = flip * (cos * u + sin * v) + middleColumn;
        const top = Math.floor(fromRow);
        const left = Math.floor(fromColumn);
        const lower = fromRow - top;
        const righter = fromColumn - left;
        const isInside = top >= 0 && left >= 0 && top + 1 < height && left + 1 < width;
        for (let channel = 0; channel < channels; channel++) {
          const first = top * line + left * channels + channel;
          const value = isInside
            ? between(before[first]!, before[first + channels]!, before[first + line]!, before[first + line + channels]!, lower, righter)
            : between(
                this.pixel(top, left, channel),
                this.pixel(top, left + 1, channel),
                this.pixel(top + 1, left, channel),
                this.pixel(top + 1, left + 1, channel),
                lower,
                righter,
              );
          image[at++] = value;
        }
      }
    }
  }

  private pixel(row: number, column: number, channel: number): number {
    if (row < 0 || row >= this.height || column < 0 || column >= this.width) return 0;
    return this.before[(row * this.width + column) * this.channels + channel]!;
  }
}

function between(a: number, b: number, c: number, d: number, lower: number, righter: number): number {
  return (1 - lower) * ((1 - righter) * a + righter * b) + lower * ((1 - righter) * c + righter * d);
}

interface Change {
  /** Pixels. */
  readonly right: number;
  readonly down: number;
  /** Cosine and sine of the angle, clockwise, divided by the enlargement. */
  readonly cos: number;
  readonly sin: number;
  /** −1 mirrors left and right. */
  readonly flip: 1 | -1;
}

/** tan x for |x| ≤ π/8 by Lambert's continued fraction, within 1 ulp or so: Math.tan may differ in the last bit between versions of V8. */
function tangent(x: number): number {
  let below = 15;
  for (let odd = 13; odd >= 1; odd -= 2) below = odd - (x * x) / below;
  return x / below;
}
