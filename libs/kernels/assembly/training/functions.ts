/**
 * exp, sigmoid and tanh of four floats, after Cephes (Moshier): the range is reduced to ±ln 2 / 2 and a polynomial of
 * degree 6 does the rest; errors are a few units in the last place. They are our own, so that the bits do
 * not depend on a mathematical library. pmin and pmax are one instruction where min and max are six, and keep a NaN that stands first.
 */

/** 1.5 · 2²³: added to a small number it leaves the nearest integer in the lowest bits. */
const ROUNDING: f32 = 12582912;

// @ts-ignore: decorator
@inline
export function exp4(x: v128): v128 {
  const clamped = f32x4.pmax(f32x4.pmin(x, f32x4.splat(88)), f32x4.splat(-87));
  const shifted = f32x4.add(f32x4.mul(clamped, f32x4.splat(1.44269504088896341)), f32x4.splat(ROUNDING));
  const n = f32x4.sub(shifted, f32x4.splat(ROUNDING));
  const high = f32x4.sub(clamped, f32x4.mul(n, f32x4.splat(0.693359375)));
  const r = f32x4.sub(high, f32x4.mul(n, f32x4.splat(-2.12194440e-4)));
  let p = f32x4.splat(1.9875691500e-4);
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(1.3981999507e-3));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(8.3334519073e-3));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(4.1665795894e-2));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(1.6666665459e-1));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(5.0000001201e-1));
  p = f32x4.add(f32x4.add(f32x4.mul(f32x4.mul(p, r), r), r), f32x4.splat(1));
  // p is between 0.7 and 1.5: 2ⁿ goes into its exponent.
  return i32x4.add(p, i32x4.shl(shifted, 23));
}

// @ts-ignore: decorator
@inline
export function sigmoid4(x: v128): v128 {
  const one = f32x4.splat(1);
  return f32x4.div(one, f32x4.add(one, exp4(f32x4.neg(x))));
}

/** Keras' hard_sigmoid of tf.js: 0.2·x + 0.5, cut to [0, 1]. */
// @ts-ignore: decorator
@inline
export function hardSigmoid4(x: v128): v128 {
  const line = f32x4.add(f32x4.mul(x, f32x4.splat(0.2)), f32x4.splat(0.5));
  return f32x4.pmax(f32x4.pmin(line, f32x4.splat(1)), f32x4.splat(0));
}

/** The derivative of hard_sigmoid from its output. */
// @ts-ignore: decorator
@inline
export function hardSigmoidSlope4(y: v128): v128 {
  const inside = v128.and(f32x4.gt(y, f32x4.splat(0)), f32x4.lt(y, f32x4.splat(1)));
  return v128.and(f32x4.splat(0.2), inside);
}

// @ts-ignore: decorator
@inline
export function tanh4(x: v128): v128 {
  const magnitude = f32x4.abs(x);
  // Near zero the quotient would lose digits.
  const square = f32x4.mul(x, x);
  let p = f32x4.splat(-5.70498872745e-3);
  p = f32x4.add(f32x4.mul(p, square), f32x4.splat(2.06390887954e-2));
  p = f32x4.add(f32x4.mul(p, square), f32x4.splat(-5.37397155531e-2));
  p = f32x4.add(f32x4.mul(p, square), f32x4.splat(1.33314422036e-1));
  p = f32x4.add(f32x4.mul(p, square), f32x4.splat(-3.33332819422e-1));
  const small = f32x4.add(f32x4.mul(f32x4.mul(p, square), x), x);
  const one = f32x4.splat(1);
  const grown = exp4(f32x4.add(magnitude, magnitude));
  const quotient = f32x4.sub(one, f32x4.div(f32x4.splat(2), f32x4.add(grown, one)));
  const signed = v128.or(quotient, v128.and(x, f32x4.splat(-0.0)));
  return v128.bitselect(small, signed, f32x4.lt(magnitude, f32x4.splat(0.625)));
}
