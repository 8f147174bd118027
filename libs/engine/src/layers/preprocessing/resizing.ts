/** How a row of pixels becomes one of another length, sampled at the centres of pixels as TensorFlow and Keras 3 do. */
export type Interpolation = 'nearest' | 'bilinear';

/** Row-major [before, after]: how much of each pixel is in each new one. */
export function resizingMatrix(before: number, after: number, interpolation: Interpolation): Float32Array {
  const matrix = new Float32Array(before * after);
  const add = (pixel: number, at: number, share: number): void => {
    matrix[Math.min(Math.max(pixel, 0), before - 1) * after + at]! += share;
  };
  for (let at = 0; at < after; at++) {
    const centre = ((at + 0.5) * before) / after;
    if (interpolation === 'nearest') add(Math.floor(centre), at, 1);
    else {
      const left = Math.floor(centre - 0.5);
      const share = centre - 0.5 - left;
      add(left, at, 1 - share);
      add(left + 1, at, share);
    }
  }
  return matrix;
}
