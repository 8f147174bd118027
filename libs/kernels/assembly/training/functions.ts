/**
 * exp, sigmoid and tanh of four floats, after Cephes (Moshier): the range is reduced to ±ln 2 / 2 and a polynomial of
 * degree 6 does the rest; errors are below 2 units in the last place (sigmoid 3). They are our own, so that the bits do
 * not depend on a mathematical library.
 */

// @ts-ignore: decorator
@inline
export function exp4(x: v128): v128 {
  const clamped = f32x4.max(f32x4.min(x, f32x4.splat(88.3762626647949)), f32x4.splat(-87.3365478515625));
  const n = f32x4.nearest(f32x4.mul(clamped, f32x4.splat(1.44269504088896341)));
  const high = f32x4.sub(clamped, f32x4.mul(n, f32x4.splat(0.693359375)));
  const r = f32x4.sub(high, f32x4.mul(n, f32x4.splat(-2.12194440e-4)));
  let p = f32x4.splat(1.9875691500e-4);
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(1.3981999507e-3));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(8.3334519073e-3));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(4.1665795894e-2));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(1.6666665459e-1));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(5.0000001201e-1));
  p = f32x4.add(f32x4.add(f32x4.mul(f32x4.mul(p, r), r), r), f32x4.splat(1));
  const power = i32x4.shl(i32x4.add(i32x4.trunc_sat_f32x4_s(n), i32x4.splat(127)), 23);
  return f32x4.mul(p, power);
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
  return f32x4.max(f32x4.min(line, f32x4.splat(1)), f32x4.splat(0));
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
