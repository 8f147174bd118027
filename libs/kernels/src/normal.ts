/** 0 in place of a float32 whose size is below 2^-126 (libs/kernels/formulas.mjs says why). */
export const normal = (x: number): number => (Math.abs(x) < 2 ** -126 ? 0 : x);
