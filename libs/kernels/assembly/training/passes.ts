/**
 * Single passes over tensors that training needs and the stock backend lacks or does in plain loops. Sums over many
 * rows are kept in runs of 64, which are added to the total: the error then grows with the root of the rows, not with them.
 * Counts are float32 elements unless a name says bytes.
 */

const RUN: u32 = 64;

/** dz = y > 0 ? dy : 0, the gradient of relu from its output. */
export function reluGradient(dy: usize, y: usize, dz: usize, n: u32): void {
  const zero = f32x4.splat(0);
  let lines = n >> 3;
  while (lines) {
    v128.store(dz, v128.and(v128.load(dy), f32x4.gt(v128.load(y), zero)));
    v128.store(dz, v128.and(v128.load(dy, 16), f32x4.gt(v128.load(y, 16), zero)), 16);
    dy += 32;
    y += 32;
    dz += 32;
    lines--;
  }
  let rest = n & 7;
  while (rest) {
    store<f32>(dz, load<f32>(y) > 0 ? load<f32>(dy) : 0);
    dy += 4;
    y += 4;
    dz += 4;
    rest--;
  }
}

/** y = max(x, 0) */
export function relu(x: usize, y: usize, n: u32): void {
  const zero = f32x4.splat(0);
  let lines = n >> 2;
  while (lines) {
    v128.store(y, f32x4.pmax(v128.load(x), zero));
    x += 16;
    y += 16;
    lines--;
  }
  let rest = n & 3;
  while (rest) {
    store<f32>(y, max(load<f32>(x), 0));
    x += 4;
    y += 4;
    rest--;
  }
}

/** out[j] = Σ over rows of x[row, j]; a bias' gradient. */
export function sumRows(x: usize, rows: u32, columns: u32, out: usize): void {
  memory.fill(out, 0, (<usize>columns) << 2);
  const stride = (<usize>columns) << 2;
  for (let from: u32 = 0; from < rows; from += RUN) {
    const count = min(RUN, rows - from);
    sumRun(x, stride, count, columns, out);
    x += count * stride;
  }
}

function sumRun(x: usize, stride: usize, rows: u32, columns: u32, out: usize): void {
  let j: u32 = 0;
  for (; j + 16 <= columns; j += 16) {
    let from = x + ((<usize>j) << 2);
    let s0 = f32x4.splat(0);
    let s1 = s0;
    let s2 = s0;
    let s3 = s0;
    for (let r: u32 = 0; r < rows; r++) {
      s0 = f32x4.add(s0, v128.load(from));
      s1 = f32x4.add(s1, v128.load(from, 16));
      s2 = f32x4.add(s2, v128.load(from, 32));
      s3 = f32x4.add(s3, v128.load(from, 48));
      from += stride;
    }
    const to = out + ((<usize>j) << 2);
    v128.store(to, f32x4.add(v128.load(to), s0));
    v128.store(to, f32x4.add(v128.load(to, 16), s1), 16);
    v128.store(to, f32x4.add(v128.load(to, 32), s2), 32);
    v128.store(to, f32x4.add(v128.load(to, 48), s3), 48);
  }
  for (; j < columns; j++) {
    let from = x + ((<usize>j) << 2);
    let sum: f32 = 0;
    for (let r: u32 = 0; r < rows; r++) {
      sum += load<f32>(from);
      from += stride;
    }
    const to = out + ((<usize>j) << 2);
    store<f32>(to, load<f32>(to) + sum);
  }
}

/** out[id[i], ·] += x[i, ·] for ids within [0, segments): the gradient of gather. `out` begins as it is. */
export function addSegments(x: usize, ids: usize, rows: u32, width: u32, segments: u32, out: usize): void {
  const bytes = (<usize>width) << 2;
  for (let i: u32 = 0; i < rows; i++) {
    const id = load<u32>(ids);
    ids += 4;
    if (id < segments) addInto(out + id * bytes, x, width);
    x += bytes;
  }
}

function addInto(to: usize, from: usize, n: u32): void {
  let lines = n >> 2;
  while (lines) {
    v128.store(to, f32x4.add(v128.load(to), v128.load(from)));
    to += 16;
    from += 16;
    lines--;
  }
  let rest = n & 3;
  while (rest) {
    store<f32>(to, load<f32>(to) + load<f32>(from));
    to += 4;
    from += 4;
    rest--;
  }
}

/** Rows of `bytes` bytes from one image into another: what pads, spreads and cuts images. */
export function copyRows(from: usize, fromStride: usize, to: usize, toStride: usize, rows: u32, bytes: usize): void {
  for (let r: u32 = 0; r < rows; r++) {
    memory.copy(to, from, bytes);
    from += fromStride;
    to += toStride;
  }
}

export function fillZero(to: usize, bytes: usize): void {
  memory.fill(to, 0, bytes);
}

/** to[r, ·] += from[r, ·] for `rows` rows of n floats. */
export function addRows(from: usize, fromStride: usize, to: usize, toStride: usize, rows: u32, n: u32): void {
  for (let r: u32 = 0; r < rows; r++) {
    addInto(to, from, n);
    from += fromStride;
    to += toStride;
  }
}

/**
 * Gradients of a depthwise convolution, by hand for every cell of the filter [filterH, filterW, c, multiplier]: dFilter and dx must be zero;
 * a 0 address leaves that gradient out. x [n, h, w, c], dy [n, p, q, c · multiplier].
 */
export function depthwiseGradients(
  x: usize,
  filter: usize,
  dy: usize,
  dx: usize,
  dFilter: usize,
  images: u32,
  h: i32,
  w: i32,
  c: u32,
  multiplier: u32,
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
  const outPixel = pixel * multiplier;
  for (let n: u32 = 0; n < images; n++) {
    for (let i = 0; i < filterH; i++) {
      for (let j = 0; j < filterW; j++) {
        const cell = <usize>(i * filterW + j) * outPixel;
        for (let r = 0; r < p; r++) {
          const y = r * strideH - top + i;
          if (y < 0 || y >= h) continue;
          for (let s = 0; s < q; s++) {
            const at = s * strideW - left + j;
            if (at < 0 || at >= w) continue;
            const offset = <usize>(y * w + at) * pixel;
            const from = dy + <usize>(r * q + s) * outPixel;
            if (dFilter) productsOfPixel(x + offset, from, dFilter + cell, c, multiplier);
            if (dx) sumsOfPixel(filter + cell, from, dx + offset, c, multiplier);
          }
        }
      }
    }
    x += <usize>(h * w) * pixel;
    if (dx) dx += <usize>(h * w) * pixel;
    dy += <usize>(p * q) * outPixel;
  }
}

/** to[c, m] += x[c] · dy[c, m] */
function productsOfPixel(x: usize, dy: usize, to: usize, c: u32, multiplier: u32): void {
  if (multiplier == 1) return addProducts(x, dy, to, c);
  for (let i: u32 = 0; i < c; i++) {
    const value = load<f32>(x);
    for (let m: u32 = 0; m < multiplier; m++) {
      store<f32>(to, load<f32>(to) + value * load<f32>(dy));
      to += 4;
      dy += 4;
    }
    x += 4;
  }
}

/** to[c] += Σ over m of filter[c, m] · dy[c, m] */
function sumsOfPixel(filter: usize, dy: usize, to: usize, c: u32, multiplier: u32): void {
  if (multiplier == 1) return addProducts(filter, dy, to, c);
  for (let i: u32 = 0; i < c; i++) {
    let sum: f32 = 0;
    for (let m: u32 = 0; m < multiplier; m++) {
      sum += load<f32>(filter) * load<f32>(dy);
      filter += 4;
      dy += 4;
    }
    store<f32>(to, load<f32>(to) + sum);
    to += 4;
  }
}

function addProducts(a: usize, b: usize, to: usize, n: u32): void {
  let lines = n >> 2;
  while (lines) {
    v128.store(to, f32x4.add(v128.load(to), f32x4.mul(v128.load(a), v128.load(b))));
    a += 16;
    b += 16;
    to += 16;
    lines--;
  }
  let rest = n & 3;
  while (rest) {
    store<f32>(to, load<f32>(to) + load<f32>(a) * load<f32>(b));
    a += 4;
    b += 4;
    to += 4;
    rest--;
  }
}
