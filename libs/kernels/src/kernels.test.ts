import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { Arena } from './arena.js';
import * as references from './references.js';

/**
 * Every kernel against its reference, bit for bit. Lengths cross the unrolled loop, the vector loop and the tail; pointers
 * start at any float; values are drawn as bit patterns, so NaN, infinities, denormals and both zeros are common.
 * Guards around every array catch a kernel that writes one element too many.
 */
const MAX_ELEMENTS = 150;
const GUARD_FLOATS = 32;
const GUARD = 12345.678;
const arena = Arena.create({ initialBytes: 1 << 20, maximumBytes: 1 << 20 });
const block = arena.alloc((MAX_ELEMENTS + 2 * GUARD_FLOATS) * 4 * 5);
const kernels = arena.kernels;

const SPECIAL_BITS = [
  0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f7fffff, 0xff7fffff, 0x00000001, 0x80000001, 0x007fffff,
  0x00800000, 0x3f800000, 0xbf800000,
];
const wildBits = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...SPECIAL_BITS) },
  { weight: 7, arbitrary: fc.integer({ min: 0, max: 0xffffffff }) },
);
const tameValue = fc.double({ min: -10, max: 10, noNaN: true });
const value = fc.oneof(
  wildBits.map((bits) => new Float32Array(Uint32Array.of(bits).buffer)[0]!),
  { weight: 2, arbitrary: tameValue },
  fc.float({ min: Math.fround(-1e-37), max: Math.fround(1e-37), noNaN: true }),
);

/** n, a misalignment in floats, and `count` arrays of n values. */
const arrays = (count: number) =>
  fc.tuple(fc.integer({ min: 0, max: MAX_ELEMENTS }), fc.integer({ min: 0, max: 5 })).chain(([n, shift]) =>
    fc.record({
      n: fc.constant(n),
      shift: fc.constant(shift),
      values: fc.array(fc.array(value, { minLength: n, maxLength: n }), { minLength: count, maxLength: count }),
    }),
  );

function place({ n, shift, values }: { n: number; shift: number; values: number[][] }) {
  const stride = MAX_ELEMENTS + 2 * GUARD_FLOATS;
  return values.map((list, i) => {
    const whole = arena.f32(block + i * stride * 4, stride).fill(GUARD);
    const pointer = block + (i * stride + GUARD_FLOATS / 2 + shift) * 4;
    const view = arena.f32(pointer, n);
    view.set(list);
    return {
      pointer,
      view,
      reference: Float32Array.from(view),
      guards: () => whole.filter((_, at) => at < GUARD_FLOATS / 2 + shift || at >= GUARD_FLOATS / 2 + shift + n),
    };
  });
}

/** Equal bits; any NaN equals any NaN (WebAssembly leaves the payload open). */
function expectSameBits(got: Float32Array, wanted: Float32Array): void {
  const gotBits = new Uint32Array(got.slice().buffer);
  const wantedBits = new Uint32Array(wanted.slice().buffer);
  for (let i = 0; i < wanted.length; i++) {
    if (Number.isNaN(got[i]) && Number.isNaN(wanted[i])) continue;
    if (gotBits[i] !== wantedBits[i]) expect.fail(`element ${i} of ${wanted.length}: ${got[i]} is not ${wanted[i]}`);
  }
}

function check(count: number, run: (at: ReturnType<typeof place>, n: number) => void): void {
  fc.assert(
    fc.property(arrays(count), (drawn) => {
      const at = place(drawn);
      run(at, drawn.n);
      for (const { view, reference, guards } of at) {
        expectSameBits(view, reference);
        expect(guards().every((x) => x === Math.fround(GUARD))).toBe(true);
      }
    }),
    { numRuns: 300 },
  );
}

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
      fc.property(arrays(2), value, (drawn, factor) => {
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
      fc.property(arrays(3), value, value, (drawn, lambda, scale) => {
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
