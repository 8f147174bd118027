/** Which cell of a window was the first largest: a byte for every pooled value. */

export function storeBytes(to: usize, four: v128): void {
  const halves = i16x8.narrow_i32x4_u(four, four);
  v128.store32_lane(to, i8x16.narrow_i16x8_u(halves, halves), 0);
}

export function loadBytes(from: usize): v128 {
  return i32x4.extend_low_i16x8_u(i16x8.extend_low_i8x16_u(v128.load32_zero(from)));
}

/** For each of four lanes which of the four was the first largest, as a byte. */
export function storeFirstLargest(places: usize, x0: v128, x1: v128, x2: v128, x3: v128): void {
  // A cell is chosen when it is larger than all before it and no later one is larger still.
  const by1 = f32x4.gt(x1, x0);
  const best1 = v128.bitselect(x1, x0, by1);
  const by2 = f32x4.gt(x2, best1);
  const best2 = v128.bitselect(x2, best1, by2);
  const by3 = f32x4.gt(x3, best2);
  const of1 = v128.and(by1, i32x4.splat(1));
  const of2 = v128.bitselect(i32x4.splat(2), of1, by2);
  storeBytes(places, v128.bitselect(i32x4.splat(3), of2, by3));
}
