import fc from 'fast-check';
import { expect } from 'vitest';
import { Arena } from './arena.js';

/**
 * Every kernel against its reference, bit for bit. Lengths cross the unrolled loop, the vector loop and the tail; pointers
 * start at any float; values are drawn as bit patterns, so NaN, infinities, denormals and both zeros are common.
 * Guards around every array catch a kernel that writes one element too many.
 */
export const MAX_ELEMENTS = 150;
export const GUARD_FLOATS = 32;
export const GUARD = 12345.678;
export const arena = Arena.create({ initialBytes: 1 << 20, maximumBytes: 1 << 20 });
export const block = arena.alloc((MAX_ELEMENTS + 2 * GUARD_FLOATS) * 4 * 7);
export const kernels = arena.kernels;

const SPECIAL_BITS = [
  0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f7fffff, 0xff7fffff, 0x00000001, 0x80000001, 0x007fffff,
  0x00800000, 0x3f800000, 0xbf800000,
];
const wildBits = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...SPECIAL_BITS) },
  { weight: 7, arbitrary: fc.integer({ min: 0, max: 0xffffffff }) },
);
const tameValue = fc.double({ min: -10, max: 10, noNaN: true });
export const anyFloat = fc.oneof(
  wildBits.map((bits) => new Float32Array(Uint32Array.of(bits).buffer)[0]!),
  { weight: 2, arbitrary: tameValue },
  fc.float({ min: Math.fround(-1e-37), max: Math.fround(1e-37), noNaN: true }),
);

/** n, a misalignment in floats, and `count` arrays of n values. */
export const arrays = (count: number) =>
  fc.tuple(fc.integer({ min: 0, max: MAX_ELEMENTS }), fc.integer({ min: 0, max: 5 })).chain(([n, shift]) =>
    fc.record({
      n: fc.constant(n),
      shift: fc.constant(shift),
      values: fc.array(fc.array(anyFloat, { minLength: n, maxLength: n }), { minLength: count, maxLength: count }),
    }),
  );

export function place({ n, shift, values }: { n: number; shift: number; values: number[][] }) {
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
export function expectSameBits(got: Float32Array, wanted: Float32Array): void {
  const gotBits = new Uint32Array(got.slice().buffer);
  const wantedBits = new Uint32Array(wanted.slice().buffer);
  for (let i = 0; i < wanted.length; i++) {
    if (Number.isNaN(got[i]) && Number.isNaN(wanted[i])) continue;
    if (gotBits[i] !== wantedBits[i]) expect.fail(`element ${i} of ${wanted.length}: ${got[i]} is not ${wanted[i]}`);
  }
}

export function check(count: number, run: (at: ReturnType<typeof place>, n: number) => void): void {
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
