/**
 * Max pooling of images [n, h, w, c] to [n, p, q, c] by windows that lie inside of the image and do not overlap, and the way back. `places` has a
 * byte for every pooled value: which cell of its window, row by row, was the first largest. No window has more than 255 cells.
 */
import { loadBytes, storeBytes, storeFirstLargest } from './places';

/** A NaN in a window is its largest value. With `places` 0 none are written. */
export function maxPool(
  x: usize,
  y: usize,
  places: usize,
  images: u32,
  h: u32,
  w: u32,
  c: u32,
  p: u32,
  q: u32,
  filterH: u32,
  filterW: u32,
  strideH: u32,
  strideW: u32,
): void {
  const pixel = (<usize>c) << 2;
  const row = <usize>w * pixel;
  const isTwo = filterH == 2 && filterW == 2 && (c & 3) == 0;
  for (let n: u32 = 0; n < images; n++) {
    for (let i: u32 = 0; i < p; i++) {
      let from = x + i * strideH * row;
      for (let j: u32 = 0; j < q; j++) {
        if (isTwo) largestOfFour(from, y, places, row, pixel);
        else largestOfWindow(from, y, places, row, pixel, filterH, filterW, c);
        from += strideW * pixel;
        y += pixel;
        if (places) places += c;
      }
    }
    x += h * row;
  }
}

function largestOfFour(x: usize, y: usize, places: usize, row: usize, pixel: usize): void {
  const end = x + pixel;
  while (x < end) {
    const x0 = v128.load(x);
    const x1 = v128.load(x + pixel);
    const x2 = v128.load(x + row);
    const x3 = v128.load(x + row + pixel);
    v128.store(y, f32x4.max(f32x4.max(x0, x1), f32x4.max(x2, x3)));
    if (places) {
      storeFirstLargest(places, x0, x1, x2, x3);
      places += 4;
    }
    x += 16;
    y += 16;
  }
}

function largestOfWindow(x: usize, y: usize, places: usize, row: usize, pixel: usize, rows: u32, columns: u32, c: u32): void {
  let k: u32 = 0;
  for (; k + 4 <= c; k += 4) {
    let largest = v128.load(x);
    let best = largest;
    let at = i32x4.splat(0);
    let cell: u32 = 0;
    for (let i: u32 = 0; i < rows; i++) {
      let from = x + i * row;
      for (let j: u32 = 0; j < columns; j++) {
        const value = v128.load(from);
        const isLarger = f32x4.gt(value, best);
        largest = f32x4.max(largest, value);
        best = v128.bitselect(value, best, isLarger);
        at = v128.bitselect(i32x4.splat(cell), at, isLarger);
        from += pixel;
        cell++;
      }
    }
    v128.store(y, largest);
    if (places) {
      storeBytes(places, at);
      places += 4;
    }
    x += 16;
    y += 16;
  }
  for (; k < c; k++) {
    let largest = load<f32>(x);
    let best = largest;
    let at: u32 = 0;
    let cell: u32 = 0;
    for (let i: u32 = 0; i < rows; i++) {
      for (let j: u32 = 0; j < columns; j++) {
        const value = load<f32>(x + i * row + j * pixel);
        largest = max(largest, value);
        if (value > best) {
          best = value;
          at = cell;
        }
        cell++;
      }
    }
    store<f32>(y, largest);
    if (places) {
      store<u8>(places, <u8>at);
      places++;
    }
    x += 4;
    y += 4;
  }
}

/** dx = dy in the cells that `places` names, 0 in all others. */
export function maxUnpool(
  dy: usize,
  places: usize,
  dx: usize,
  images: u32,
  h: u32,
  w: u32,
  c: u32,
  p: u32,
  q: u32,
  filterH: u32,
  filterW: u32,
  strideH: u32,
  strideW: u32,
): void {
  const pixel = (<usize>c) << 2;
  const row = <usize>w * pixel;
  const isTwo = filterH == 2 && filterW == 2 && (c & 3) == 0;
  const coversAll = strideH == filterH && strideW == filterW && p * strideH == h && q * strideW == w;
  if (!coversAll) memory.fill(dx, 0, <usize>images * h * row);
  for (let n: u32 = 0; n < images; n++) {
    for (let i: u32 = 0; i < p; i++) {
      let to = dx + i * strideH * row;
      for (let j: u32 = 0; j < q; j++) {
        if (isTwo) toFour(dy, places, to, row, pixel);
        else toWindow(dy, places, to, row, pixel, filterH, filterW, c);
        to += strideW * pixel;
        dy += pixel;
        places += c;
      }
    }
    dx += h * row;
  }
}

function toFour(dy: usize, places: usize, dx: usize, row: usize, pixel: usize): void {
  const end = dx + pixel;
  while (dx < end) {
    const gradient = v128.load(dy);
    const at = loadBytes(places);
    v128.store(dx, v128.and(gradient, i32x4.eq(at, i32x4.splat(0))));
    v128.store(dx + pixel, v128.and(gradient, i32x4.eq(at, i32x4.splat(1))));
    v128.store(dx + row, v128.and(gradient, i32x4.eq(at, i32x4.splat(2))));
    v128.store(dx + row + pixel, v128.and(gradient, i32x4.eq(at, i32x4.splat(3))));
    dx += 16;
    dy += 16;
    places += 4;
  }
}

function toWindow(dy: usize, places: usize, dx: usize, row: usize, pixel: usize, rows: u32, columns: u32, c: u32): void {
  let cell: u32 = 0;
  for (let i: u32 = 0; i < rows; i++) {
    let to = dx + i * row;
    for (let j: u32 = 0; j < columns; j++) {
      let k: u32 = 0;
      for (; k + 4 <= c; k += 4) {
        const isHere = i32x4.eq(loadBytes(places + k), i32x4.splat(cell));
        v128.store(to, v128.and(v128.load(dy + ((<usize>k) << 2)), isHere));
        to += 16;
      }
      for (; k < c; k++) {
        store<f32>(to, load<u8>(places + k) == cell ? load<f32>(dy + ((<usize>k) << 2)) : 0);
        to += 4;
      }
      cell++;
    }
  }
}
