import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { anyFloat, arena, arrays, block, check, expectSameBits, GUARD, kernels, place } from './kernels.fixture.js';
import * as references from './references.js';

describe('kernels give the bits of their references', () => {
  it('add', () => {
    check(2, ([a, b], n) => {
      kernels.add(a!.pointer, b!.pointer, n);
      references.add(a!.reference, b!.reference);
    });
  });

  it('add to itself', () => {
    check(1, ([a], n) => {
      kernels.add(a!.pointer, a!.pointer, n);
      references.add(a!.reference, a!.reference);
    });
  });

  it('add keeps the signs of zero that IEEE asks for', () => {
    const [a, b] = place({
      n: 4,
      shift: 0,
      values: [
        [-0, -0, 0, 1],
        [0, -0, -0, -1],
      ],
    });
    kernels.add(a!.pointer, b!.pointer, 4);
    expect([...a!.view].map((x) => Object.is(x, -0))).toEqual([false, true, false, false]);
  });

  it('scaleInto, also in place', () => {
    fc.assert(
      fc.property(arrays(2), anyFloat, (drawn, factor) => {
        const [a, b] = place(drawn);
        kernels.scaleInto(a!.pointer, b!.pointer, drawn.n, factor);
        references.scaleInto(a!.reference, b!.reference, factor);
        expectSameBits(a!.view, a!.reference);
        kernels.scaleInto(b!.pointer, b!.pointer, drawn.n, factor);
        expectSameBits(b!.view, a!.reference);
      }),
    );
  });

  it('compensateDelay', () => {
    fc.assert(
      fc.property(arrays(3), anyFloat, anyFloat, (drawn, lambda, scale) => {
        const [grad, now, then] = place(drawn);
        kernels.compensateDelay(grad!.pointer, now!.pointer, then!.pointer, drawn.n, lambda, scale);
        references.compensateDelay(grad!.reference, now!.reference, then!.reference, lambda, scale);
        for (const { view, reference, guards } of [grad!, now!, then!]) {
          expectSameBits(view, reference);
          expect(guards().every((x) => x === Math.fround(GUARD))).toBe(true);
        }
      }),
      { numRuns: 300 },
    );
  });

  it('fill and copy', () => {
    check(3, ([a, b, c], n) => {
      kernels.fill(a!.pointer, n, 0.1);
      references.fill(a!.reference, 0.1);
      kernels.copy(b!.pointer, c!.pointer, n);
      references.copy(b!.reference, c!.reference);
    });
  });

  it('allFinite, whatever the position of the first element that is not', () => {
    check(1, ([a], n) => expect(kernels.allFinite(a!.pointer, n)).toBe(references.allFinite(a!.reference)));
    for (const bad of [NaN, Infinity, -Infinity]) {
      for (let at = 0; at < 70; at++) {
        const [a] = place({ n: 70, shift: 1, values: [Array.from({ length: 70 }, () => 3.4e38)] });
        expect(kernels.allFinite(a!.pointer, 70)).toBe(true);
        a!.view[at] = bad;
        expect(kernels.allFinite(a!.pointer, 70)).toBe(false);
      }
    }
  });

  it('addFinite, whatever the position of the first sum that is not', () => {
    check(2, ([a, b], n) => expect(kernels.addFinite(a!.pointer, b!.pointer, n)).toBe(references.addFinite(a!.reference, b!.reference)));
    for (const [x, y] of [
      [NaN, 1],
      [1, -Infinity],
      [3e38, 3e38],
      [Infinity, -Infinity],
    ] as const) {
      for (let at = 0; at < 70; at++) {
        const [a, b] = place({ n: 70, shift: 1, values: [new Array<number>(70).fill(1.7e38), new Array<number>(70).fill(1.7e38)] });
        expect(kernels.addFinite(a!.pointer, b!.pointer, 70)).toBe(true);
        [a!.view[at], b!.view[at]] = [x, y];
        a!.view.fill(1, at + 1);
        expect(kernels.addFinite(a!.pointer, b!.pointer, 70)).toBe(false);
      }
    }
  });

  it('sumOfSquares, in float64', () => {
    check(1, ([a], n) => expect(kernels.sumOfSquares(a!.pointer, n)).toBe(references.sumOfSquares(a!.reference)));
    const [a] = place({ n: 9, shift: 0, values: [[3e38, 1, 2, 3, 4, 5, 6, 7, 8]] });
    expect(kernels.sumOfSquares(a!.pointer, 9)).toBe(references.sumOfSquares(a!.reference));
    expect(kernels.sumOfSquares(a!.pointer, 9)).toBeGreaterThan(8e76);
  });

  it.each([true, false])('sgd (in place: %s)', (inPlace) => {
    check(3, ([w, out, g], n) => {
      const target = inPlace ? w! : out!;
      kernels.sgd(w!.pointer, target.pointer, g!.pointer, n, 0.1, 1 / 3);
      references.sgd(w!.reference, target.reference, g!.reference, { learningRate: 0.1, gradScale: 1 / 3 });
    });
  });

  it.each([
    [true, true],
    [true, false],
    [false, true],
    [false, false],
  ])('momentum (nesterov: %s, in place: %s)', (nesterov, inPlace) => {
    check(4, ([w, out, v, g], n) => {
      const target = inPlace ? w! : out!;
      kernels.momentum(w!.pointer, target.pointer, v!.pointer, g!.pointer, n, 0.05, 0.9, nesterov, 1 / 7);
      references.momentum(w!.reference, target.reference, v!.reference, g!.reference, {
        learningRate: 0.05,
        momentum: 0.9,
        nesterov,
        gradScale: 1 / 7,
      });
    });
  });

  it.each([true, false])('adam (in place: %s)', (inPlace) => {
    check(5, ([w, out, m, v, g], n) => {
      const target = inPlace ? w! : out!;
      kernels.adam(w!.pointer, target.pointer, m!.pointer, v!.pointer, g!.pointer, n, 0.0123, 0.9, 0.999, 1e-7, 1 / 11);
      references.adam(w!.reference, target.reference, m!.reference, v!.reference, g!.reference, {
        stepSize: 0.0123,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-7,
        gradScale: 1 / 11,
      });
    });
  });

  it.each([
    [0, false, true],
    [0, true, false],
    [0.9, false, false],
    [0.9, true, true],
  ])('rmsprop (momentum: %d, centered: %s, in place: %s)', (momentum, centered, inPlace) => {
    check(6, ([w, out, s, a, u, g], n) => {
      const target = inPlace ? w! : out!;
      const pointers = [w!, target, s!, a!, u!, g!].map(({ pointer }) => pointer) as [number, number, number, number, number, number];
      kernels.rmsprop(...pointers, n, 0.0123, 0.9, momentum, 1e-7, centered, 1 / 11);
      references.rmsprop(w!.reference, target.reference, s!.reference, a!.reference, u!.reference, g!.reference, {
        learningRate: 0.0123,
        rho: 0.9,
        momentum,
        epsilon: 1e-7,
        centered,
        gradScale: 1 / 11,
      });
    });
  });
});

describe('a range outside of the memory', () => {
  it('traps and does not wrap around', () => {
    const end = arena.bytesCapacity;
    expect(() => kernels.fill(end - 4, 2, 1)).toThrow(/out of bounds/);
    expect(() => kernels.add(end - 64, block, 32)).toThrow(/out of bounds/);
    expect(() => kernels.copy(block, end, 1)).toThrow(/out of bounds/);
  });
});

afterAll(() => {
  arena.free(block);
  expect(arena.bytesInUse).toBe(0);
});
