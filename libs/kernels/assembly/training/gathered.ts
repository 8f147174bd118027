/**
 * The transpose of a convolution of stride 1 whose gradient is mostly zeros: as spreadListed, but a pixel of the result is added up in registers over all that it
 * meets, where spreadListed adds to it in memory once for each cell of the filter. Same order, same bits. See sparse.ts for lists.
 */
import { gathered2, gathered4, gathered8 } from './micro-kernels';
import { listRow, WIDE, widthOf } from './sparse';

/**
 * Lists of the pixels of one image [p, q, k] for gatherListed: row by row, and in each row the last pixel first, so that those which a pixel of the input meets in the
 * order of the filter's cells stand behind each other. An entry says where its row of the filter is, from that of the cell at pixel 0: `step` bytes
 * for each channel, `cellBytes` back for each pixel.
 */
export function listPixels(dy: usize, p: u32, q: u32, k: u32, step: u32, cellBytes: u32, entries: usize, starts: usize): void {
  const pixel = (<usize>k) << 2;
  for (let i: u32 = 0; i < p; i++) {
    let from = dy + q * pixel;
    let offset = (q - 1) * cellBytes;
    for (let j: u32 = 0; j < q; j++) {
      from -= pixel;
      store<u32>(starts, <u32>entries);
      starts += 4;
      entries = listRow(from, k, 0 - offset, step, entries);
      offset -= cellBytes;
    }
    dy += q * pixel;
  }
  store<u32>(starts, <u32>entries);
}

/**
 * The transpose of a convolution of stride 1 for one image, as spreadListed into zeros, but each pixel of dx [h, w, n] is added up at once: the lists of listPixels
 * that it meets in a row of the filter are one. `table` is 12 bytes for each row of the filter.
 */
export function gatherListed(
  starts: usize,
  p: u32,
  q: u32,
  filter: usize,
  cellBytes: usize,
  filterH: u32,
  filterW: u32,
  dx: usize,
  h: u32,
  w: u32,
  n: u32,
  table: usize,
): void {
  for (let y: u32 = 0; y < h; y++) {
    const firstCell: u32 = y < p ? 0 : y - p + 1;
    const endCell = min(filterH, y + 1);
    for (let x: u32 = 0; x < w; x++) {
      // Pixels from q − 1 − right to q − 1 − left of a row of lists.
      const left = x < q ? x : q - 1;
      const right: u32 = x + 1 < filterW ? 0 : x + 1 - filterW;
      let runs: u32 = 0;
      if (right < q) {
        for (let i = firstCell; i < endCell; i++) {
          const row = starts + ((<usize>((y - i) * q)) << 2);
          const at = table + runs * 12;
          store<u32>(at, load<u32>(row + ((<usize>(q - 1 - left)) << 2)));
          store<u32>(at, load<u32>(row + ((<usize>(q - right)) << 2)), 4);
          store<u32>(at, <u32>(filter + (i * filterW + x) * cellBytes), 8);
          runs++;
        }
      }
      gatherPixel(table, runs, dx, n);
      dx += (<usize>n) << 2;
    }
  }
}

function gatherPixel(table: usize, runs: u32, dx: usize, n: u32): void {
  let j: u32 = 0;
  while (true) {
    const width = widthOf(n - j);
    if (width == WIDE) gathered8(table, runs, dx);
    else if (width == 16) gathered4(table, runs, dx);
    else gathered2(table, runs, dx);
    j += width;
    if (j >= n) return;
    const bytes = (<usize>width) << 2;
    dx += bytes;
    for (let i: u32 = 0; i < runs; i++) {
      const base = table + i * 12 + 8;
      store<u32>(base, load<u32>(base) + <u32>bytes);
    }
  }
}
