import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CounterStream, naturalLogarithm, normalQuantile, philox4x32, streamKey } from './random.js';

const block = (counter: [number, number, number, number], key: [number, number]): string => {
  const out = new Uint32Array(4);
  philox4x32(...counter, key, out);
  return [...out].map((word) => word.toString(16).padStart(8, '0')).join(' ');
};
const ALL = 0xffffffff;

/** Mean, variance and the Kolmogorov–Smirnov distance to a distribution function. */
function moments(values: Float32Array, distribution: (x: number) => number) {
  const mean = values.reduce((sum, x) => sum + x, 0) / values.length;
  const variance = values.reduce((sum, x) => sum + (x - mean) ** 2, 0) / values.length;
  const distance = values
    .slice()
    .sort()
    .reduce((most, x, i) => Math.max(most, Math.abs(distribution(x) - (i + 0.5) / values.length)), 0);
  return { mean, variance, distance };
}

/** Φ by the error function's series, good to 1e-7 (Abramowitz & Stegun 7.1.26 would be 1e-7 as well). */
function phi(x: number): number {
  let term = x;
  let sum = x;
  for (let k = 1; k < 200; k++) {
    term *= (-x * x) / (2 * k);
    sum += term / (2 * k + 1);
  }
  return 0.5 + sum / Math.sqrt(2 * Math.PI);
}

describe('Philox4x32-10', () => {
  it('gives the known answers of Random123', () => {
    expect(block([0, 0, 0, 0], [0, 0])).toBe('6627e8d5 e169c58d bc57ac4c 9b00dbd8');
    expect(block([ALL, ALL, ALL, ALL], [ALL, ALL])).toBe('408f276d 41c83b0e a20bc7c6 6d5451fd');
    expect(block([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0])).toBe('d16cfe09 94fdcceb 5001e420 24126ea1');
  });
});

describe('stream keys', () => {
  it('are the same for ever: these values are part of what a seed means', () => {
    expect(streamKey()).toEqual([0x243f6a88, 0x85a308d3]);
    expect(streamKey('dropout', 42, 7, 3, 0, 'dropout_1', 0)).toEqual([3367226390, 1492941470]);
  });

  it('tell apart parts that look alike', () => {
    const names: (number | string)[][] = [
      [],
      [''],
      [0],
      ['0'],
      [1],
      ['1'],
      ['a', 'b'],
      ['ab'],
      ['a', '', 'b'],
      ['', 'ab'],
      ['abcdefgh'],
      ['abcdefgh', ''],
      ['abcdefgh\0'],
      ['ab\0'],
      [1, 2],
      [2, 1],
      [12],
      [0.5],
      [-1],
      [2 ** 40],
      [0, 0],
      ['é'],
      ['é'.normalize('NFD')],
    ];
    const keys = names.map((parts) => streamKey(...parts).join());
    expect(new Set(keys).size).toBe(names.length);
    expect(streamKey(-0)).toEqual(streamKey(0));
    expect(() => streamKey(NaN)).toThrow(RangeError);
  });

  it('do not collide for neighbouring numbers, and half of their bits change', () => {
    const keys = new Set<string>();
    let flipped = 0;
    let previous = streamKey(0, 0);
    for (let a = 0; a < 100; a++) {
      for (let b = 0; b < 100; b++) {
        const key = streamKey(a, b);
        keys.add(key.join());
        for (const i of [0, 1]) for (let x = (key[i]! ^ previous[i]!) >>> 0; x !== 0; x &= x - 1) flipped++;
        previous = key;
      }
    }
    expect(keys.size).toBe(10_000);
    expect(flipped / 10_000).toBeGreaterThan(31.5);
    expect(flipped / 10_000).toBeLessThan(32.5);
  });
});

describe('a stream', () => {
  it('gives the same numbers in order and by index, in any order of asking', () => {
    fc.assert(
      fc.property(fc.nat(ALL), fc.array(fc.integer({ min: 0, max: 500 }), { maxLength: 30 }), (seed, indices) => {
        const inOrder = new CounterStream(streamKey(seed));
        const numbers = Array.from({ length: 501 }, () => inOrder.nextUint32());
        const byIndex = new CounterStream(streamKey(seed));
        for (const index of indices) expect(byIndex.uint32At(index)).toBe(numbers[index]);
      }),
    );
  });

  it('reaches positions beyond 2^34, where the counter carries', () => {
    const stream = new CounterStream(streamKey('far'));
    const out = new Uint32Array(4);
    philox4x32(5, 3, 0, 0, streamKey('far'), out);
    expect(stream.uint32At((3 * 2 ** 32 + 5) * 4 + 2)).toBe(out[2]);
  });

  it('is uniform in [0, 1)', () => {
    const uniform = new CounterStream(streamKey('uniform'));
    const out = Float32Array.from({ length: 200_000 }, () => uniform.nextFloat());
    expect(out.every((x) => x >= 0 && x < 1)).toBe(true);
    const { mean, variance, distance } = moments(out, (x) => x);
    expect(Math.abs(mean - 0.5)).toBeLessThan(0.003);
    expect(Math.abs(variance - 1 / 12)).toBeLessThan(0.001);
    expect(distance).toBeLessThan(1.95 / Math.sqrt(out.length));
  });

  it('is normal where that is asked for', () => {
    const normal = new CounterStream(streamKey('normal'));
    const out = Float32Array.from({ length: 200_000 }, () => normal.nextNormal());
    const { mean, variance, distance } = moments(out, phi);
    expect(Math.abs(mean)).toBeLessThan(0.01);
    expect(Math.abs(variance - 1)).toBeLessThan(0.015);
    expect(distance).toBeLessThan(1.95 / Math.sqrt(out.length));
    const stream = new CounterStream(streamKey('normal'));
    expect(Math.fround(stream.normalAt(77))).toBe(out[77]);
    expect(stream.nextNormal()).toBe(stream.normalAt(0));
  });
});

describe('the normal quantile and the logarithm', () => {
  it('invert Φ', () => {
    for (const p of [0.001, 0.0227501319, 0.074, 0.08, 0.25, 0.5, 0.9, 0.95, 0.9999]) expect(phi(normalQuantile(p))).toBeCloseTo(p, 12);
    // R: qnorm(c(1e-10, 1e-20, 0.975))
    expect(normalQuantile(1e-10)).toBeCloseTo(-6.361340902404056, 12);
    expect(normalQuantile(1e-20)).toBeCloseTo(-9.262340089798408, 12);
    expect(normalQuantile(0.975)).toBeCloseTo(1.959963984540054, 14);
    expect(normalQuantile(0.3)).toBe(-normalQuantile(0.7));
  });

  it('agree with Math.log to the last digits', () => {
    fc.assert(
      fc.property(fc.double({ min: 1e-300, max: 1e300, noNaN: true }), (x) => {
        expect(Math.abs(naturalLogarithm(x) - Math.log(x))).toBeLessThanOrEqual(4e-16 * Math.max(1, Math.abs(Math.log(x))));
      }),
    );
    expect(naturalLogarithm(1)).toBe(0);
  });
});
