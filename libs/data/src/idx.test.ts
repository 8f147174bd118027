import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { DatasetError } from './dataset-error.js';
import { parseIdx } from './idx.js';

function idx(shape: readonly number[], values: Uint8Array, type = 8): Uint8Array {
  const bytes = new Uint8Array(4 + 4 * shape.length + values.length);
  bytes.set([0, 0, type, shape.length]);
  const view = new DataView(bytes.buffer);
  shape.forEach((size, i) => view.setUint32(4 + 4 * i, size));
  bytes.set(values, 4 + 4 * shape.length);
  return bytes;
}
const refusal = (bytes: Uint8Array, dimensions: number): DatasetError => {
  try {
    parseIdx(bytes, dimensions, 'file');
  } catch (error) {
    if (error instanceof DatasetError) return error;
    throw error;
  }
  throw new Error('it was not refused');
};

const shapes = fc.array(fc.integer({ min: 1, max: 12 }), { minLength: 1, maxLength: 4 });

describe('parseIdx', () => {
  it('reads back every well-formed array, as a view', () => {
    fc.assert(
      fc.property(shapes, fc.integer({ min: 0, max: 255 }), (shape, seed) => {
        const values = Uint8Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => (i * 31 + seed) & 255);
        const bytes = idx(shape, values);
        const parsed = parseIdx(bytes, shape.length, 'file');
        expect(parsed.shape).toEqual(shape);
        expect([...parsed.values]).toEqual([...values]);
        expect(parsed.values.buffer).toBe(bytes.buffer);
      }),
    );
  });

  it('refuses a file cut off anywhere, and one with bytes too many', () => {
    fc.assert(
      fc.property(shapes, fc.nat(), (shape, at) => {
        const bytes = idx(shape, new Uint8Array(shape.reduce((a, b) => a * b, 1)));
        expect(refusal(bytes.subarray(0, at % bytes.length), shape.length).code).toBe('DATASET_MALFORMED');
        expect(refusal(Uint8Array.from([...bytes, 0]), shape.length).message).toContain('too many');
      }),
    );
  });

  it('answers random bytes with a typed error or a true array, never with anything else', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), fc.integer({ min: 1, max: 4 }), (bytes, dimensions) => {
        try {
          const { shape, values } = parseIdx(bytes, dimensions, 'file');
          expect(shape.reduce((a, b) => a * b, 1)).toBe(values.length);
        } catch (error) {
          expect(error).toBeInstanceOf(DatasetError);
        }
      }),
      { numRuns: 500 },
    );
  });

  it.each([
    ['sizes whose product overflows', idx([0xffffffff, 0xffffffff, 0xffffffff], new Uint8Array(8)), 3, 'only 8 elements'],
    ['32 GiB in 20 bytes', idx([0x80000000, 16], new Uint8Array(8)), 2, 'only 8 elements'],
    ['255 dimensions', Uint8Array.from([0, 0, 8, 255, 1, 1, 1, 1]), 3, '255 dimensions instead of 3'],
    ['a product of zero', idx([0, 5], new Uint8Array(0)), 2, 'size 0'],
    ['another magic', Uint8Array.from([1, 0, 8, 1, 0, 0, 0, 1, 7]), 1, 'first two bytes'],
    ['gzip instead of IDX', Uint8Array.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0]), 1, 'no IDX file'],
    ['floats', idx([1], new Uint8Array(4), 0x0d), 1, 'element type 0x0d'],
    ['nothing', new Uint8Array(0), 1, 'only 0 bytes'],
  ])('refuses %s', (_, bytes, dimensions, message) => {
    expect(refusal(bytes, dimensions).message).toContain(message);
  });
});
