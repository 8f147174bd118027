/**
 * Gradients of 2-D pooling, images [n, h, w, c]. Windows are cut at the borders of the image. Of averages `dx` must be zero.
 * max: to the first largest value of a window, row by row, as in TensorFlow. average: dy / cells of the window inside the image.
 */

export function maxPoolGradient(
  x: usize,
  dy: usize,
  dx: usize,
  images: u32,
  h: i32,
  w: i32,
  c: u32,
  p: i32,
  q: i32,
  filterH: i32,
  filterW: i32,
  strideH: i32,
  strideW: i32,
  top: i32,
  left: i32,
): void {
  const pixel = (<usize>c) << 2;
  const row = <usize>w * pixel;
  const isTwo = filterH == 2 && filterW == 2 && strideH >= 2 && strideW >= 2;
  const isPlain = isTwo && top == 0 && left == 0 && (p - 1) * strideH + 2 <= h && (q - 1) * strideW + 2 <= w && (c & 3) == 0;
  const coversAll = isPlain && p * 2 == h && q * 2 == w;
  if (!coversAll) memory.fill(dx, 0, <usize>images * h * row);
  for (let n: u32 = 0; n < images; n++) {
    for (let i: i32 = 0; i < p; i++) {
      const y0 = max(0, i * strideH - top);
      const y1 = min(h, i * strideH - top + filterH);
      for (let j: i32 = 0; j < q; j++) {
        const x0 = max(0, j * strideW - left);
        const x1 = min(w, j * strideW - left + filterW);
        const offset = <usize>y0 * row + <usize>x0 * pixel;
        if (isPlain) maxOfFour(x + offset, dx + offset, dy, row, pixel, c);
        else maxWindow(x + offset, dx + offset, dy, row, pixel, y1 - y0, x1 - x0, c);
        dy += pixel;
      }
    }
    x += h * row;
    dx += h * row;
  }
}

/** Windows of 2 × 2 that do not overlap: every cell is written once. */
function maxOfFour(x: usize, dx: usize, dy: usize, row: usize, pixel: usize, c: u32): void {
  for (let k: u32 = 0; k < c; k += 4) {
    const x0 = v128.load(x);
    const x1 = v128.load(x + pixel);
    const x2 = v128.load(x + row);
    const x3 = v128.load(x + row + pixel);
    const gradient = v128.load(dy);
    // A cell is chosen when it is larger than all before it and no later one is larger still.
    const by1 = f32x4.gt(x1, x0);
    const best1 = v128.bitselect(x1, x0, by1);
    const by2 = f32x4.gt(x2, best1);
    const best2 = v128.bitselect(x2, best1, by2);
    const by3 = f32x4.gt(x3, best2);
    const not3 = v128.andnot(gradient, by3);
    const not2 = v128.andnot(not3, by2);
    v128.store(dx, v128.andnot(not2, by1));
    v128.store(dx + pixel, v128.and(not2, by1));
    v128.store(dx + row, v128.and(not3, by2));
    v128.store(dx + row + pixel, v128.and(gradient, by3));
    x += 16;
    dx += 16;
    dy += 16;
  }
}

function maxWindow(x: usize, dx: usize, dy: usize, row: usize, pixel: usize, rows: i32, columns: i32, c: u32): void {
  let k: u32 = 0;
  for (; k + 4 <= c; k += 4) {
    let best = v128.load(x);
    let at = i32x4.splat(0);
    let cell = 0;
    for (let i = 0; i < rows; i++) {
      let from = x + i * row;
      for (let j = 0; j < columns; j++) {
        const value = v128.load(from);
        const larger = f32x4.gt(value, best);
        best = v128.bitselect(value, best, larger);
        at = v128.bitselect(i32x4.splat(cell), at, larger);
        from += pixel;
        cell++;
      }
    }
    const gradient = v128.load(dy);
    cell = 0;
    for (let i = 0; i < rows; i++) {
      let to = dx + i * row;
      for (let j = 0; j < columns; j++) {
        v128.store(to, f32x4.add(v128.load(to), v128.and(gradient, i32x4.eq(at, i32x4.splat(cell)))));
        to += pixel;
        cell++;
      }
    }
    x += 16;
    dx += 16;
    dy += 16;
  }
  for (; k < c; k++) {
    let best = load<f32>(x);
    let at: usize = 0;
    for (let i = 0; i < rows; i++) {
      for (let j = 0; j < columns; j++) {
        const offset = i * row + j * pixel;
        const value = load<f32>(x + offset);
        if (value > best) {
          best = value;
          at = offset;
        }
      }
    }
    store<f32>(dx + at, load<f32>(dx + at) + load<f32>(dy));
    x += 4;
    dx += 4;
    dy += 4;
  }
}

export function averagePoolGradient(
  dy: usize,
  dx: usize,
  images: u32,
  h: i32,
  w: i32,
  c: u32,
  p: i32,
  q: i32,
  filterH: i32,
  filterW: i32,
  strideH: i32,
  strideW: i32,
  top: i32,
  left: i32,
): void {
  const pixel = (<usize>c) << 2;
  const row = <usize>w * pixel;
  for (let n: u32 = 0; n < images; n++) {
    for (let i: i32 = 0; i < p; i++) {
      const y0 = max(0, i * strideH - top);
      const y1 = min(h, i * strideH - top + filterH);
      for (let j: i32 = 0; j < q; j++) {
        const x0 = max(0, j * strideW - left);
        const x1 = min(w, j * strideW - left + filterW);
        const share: f32 = 1 / <f32>((y1 - y0) * (x1 - x0));
        for (let r = y0; r < y1; r++) {
          for (let s = x0; s < x1; s++) addScaled(dx + r * row + s * pixel, dy, c, share);
        }
        dy += pixel;
      }
    }
    dx += h * row;
  }
}

function addScaled(to: usize, from: usize, n: u32, factor: f32): void {
  const factors = f32x4.splat(factor);
  let lines = n >> 2;
  while (lines) {
    v128.store(to, f32x4.add(v128.load(to), f32x4.mul(v128.load(from), factors)));
    to += 16;
    from += 16;
    lines--;
  }
  let rest = n & 3;
  while (rest) {
    store<f32>(to, load<f32>(to) + load<f32>(from) * factor);
    to += 4;
    from += 4;
    rest--;
  }
}
