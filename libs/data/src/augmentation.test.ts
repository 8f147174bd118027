import { describe, expect, it } from 'vitest';
import { augmentationFault, ImageAugmenter, type Augmentation } from './augmentation.js';

const NONE: Augmentation = { shiftPixels: 0, rotateDegrees: 0, zoom: 0, mirror: false };
/** Five uniform numbers: right, down, angle, size, mirrored; 0.5 is the middle. */
const drawn = (...numbers: number[]) => ({ nextFloat: () => numbers.shift()! });
const LARGEST = 1 - 2 ** -24;

/** Pixels of [height, width, channels], each another value. */
const image = (height: number, width: number, channels: number): Float32Array =>
  Float32Array.from({ length: height * width * channels }, (_, i) => (i + 1) / 1000);
const at = (pixels: Float32Array, [, width, channels]: readonly number[], row: number, column: number, channel = 0): number =>
  pixels[(row * width! + column) * channels! + channel]!;

describe('augmentation', () => {
  it.each([
    [0, 0, -2, -2],
    [LARGEST, 0.5, 2, 0],
    [0.5, LARGEST, 0, 2],
    [0.7, 0.3, 1, -1],
  ])('moves by whole pixels and changes none: %d and %d are %i to the right and %i down', (x, y, right, down) => {
    const shape = [5, 7, 3] as const;
    const [before, after] = [image(...shape), image(...shape)];
    new ImageAugmenter({ ...NONE, shiftPixels: 2 }, shape).apply(after, drawn(x, y, 0.5, 0.5, 0.5));
    for (let row = 0; row < 5; row++)
      for (let column = 0; column < 7; column++)
        for (let channel = 0; channel < 3; channel++) {
          const [r, c] = [row - down, column - right];
          const isInside = r >= 0 && r < 5 && c >= 0 && c < 7;
          expect(at(after, shape, row, column, channel)).toBe(isInside ? at(before, shape, r, c, channel) : 0);
        }
  });

  it('mirrors left and right, half of the time', () => {
    const shape = [4, 6, 1] as const;
    const augmenter = new ImageAugmenter({ ...NONE, mirror: true }, shape);
    const of = (number: number): Float32Array => {
      const pixels = image(...shape);
      augmenter.apply(pixels, drawn(0.5, 0.5, 0.5, 0.5, number));
      return pixels;
    };
    expect(of(0.5)).toEqual(image(...shape));
    const mirrored = of(0.49);
    for (let row = 0; row < 4; row++)
      for (let column = 0; column < 6; column++) expect(at(mirrored, shape, row, column)).toBe(at(image(...shape), shape, row, 5 - column));
  });

  it('turns clockwise by the angle, about the middle', () => {
    const shape = [21, 21, 1] as const;
    const pixels = new Float32Array(21 * 21);
    pixels[10 * 21 + 18] = 1; // eight to the right of the middle
    new ImageAugmenter({ ...NONE, rotateDegrees: 45 }, shape).apply(pixels, drawn(0.5, 0.5, LARGEST, 0.5, 0.5));
    const mass = pixels.reduce((sum, value) => sum + value, 0);
    const middle = (along: (i: number) => number): number => pixels.reduce((sum, value, i) => sum + value * along(i), 0) / mass;
    for (const along of [(i: number) => i % 21, (i: number) => Math.floor(i / 21)])
      expect(Math.abs(middle(along) - 10 - 8 * Math.SQRT1_2)).toBeLessThan(0.1);
  });

  it('makes larger: what lay half as far from the middle', () => {
    const shape = [9, 9, 1] as const;
    const before = image(...shape);
    const after = image(...shape);
    new ImageAugmenter({ ...NONE, zoom: 0.5 }, shape).apply(after, drawn(0.5, 0.5, 0.5, 0, 0.5)); // half the size
    expect(at(after, shape, 4, 4)).toBe(at(before, shape, 4, 4));
    expect(at(after, shape, 3, 5)).toBe(at(before, shape, 2, 6));
    expect(at(after, shape, 1, 4)).toBe(0);
    const larger = image(...shape);
    new ImageAugmenter({ ...NONE, zoom: 0.5 }, shape).apply(larger, drawn(0.5, 0.5, 0.5, LARGEST, 0.5));
    expect(at(larger, shape, 4, 7)).toBeCloseTo(at(before, shape, 4, 6), 6);
  });

  it('draws the same for one change whatever else is asked for, and stays within the values of the image', () => {
    const shape = [28, 28, 1] as const;
    const of = (options: Augmentation): Float32Array => {
      const pixels = image(...shape);
      new ImageAugmenter(options, shape).apply(pixels, drawn(0.1, 0.8, 0.9, 0.3, 0.2));
      return pixels;
    };
    let draws = 0;
    new ImageAugmenter(NONE, shape).apply(image(...shape), { nextFloat: () => (draws++, 0.5) });
    expect(draws).toBe(5);
    expect(of(NONE)).toEqual(image(...shape));
    const all = of({ shiftPixels: 3, rotateDegrees: 30, zoom: 0.4, mirror: true });
    expect(Math.min(...all)).toBeGreaterThanOrEqual(0);
    expect(Math.max(...all)).toBeLessThanOrEqual(0.784 + 1e-6);
  });

  it('is for images', () => {
    expect(() => new ImageAugmenter(NONE, [784])).toThrow('for images [height, width, channels], not for examples [784]');
    const rows = (...shapes: number[][]) => ({
      inputs: shapes.map((shape, i) => ({ name: `x${i}`, shape })),
      targets: [],
      isWeighted: false,
    });
    expect(augmentationFault(rows([8, 8, 3]))).toBeUndefined();
    expect(augmentationFault(rows([784]))).toContain('x0 [784]: leave augmentation out');
    expect(augmentationFault(rows([8, 8, 3], [4]))).toContain('as the only input');
  });
});
