/** 0 in place of a float32 below 2^-126, as formulas.mjs says. */
export const normal = (x: number): number => (Math.abs(x) < 2 ** -126 ? 0 : x);
