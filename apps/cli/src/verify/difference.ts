/** How far two rows of numbers are from one another. */

export interface Difference {
  /** Largest difference of two numbers. */
  readonly absolute: number;
  /** The same over the largest number of what was recorded. */
  readonly relative: number;
}

export const NONE: Difference = { absolute: 0, relative: 0 };

/** What is no number differs without end, unless both are the same. */
export function differenceOf(got: ArrayLike<number>, recorded: ArrayLike<number>): Difference {
  let absolute = got.length === recorded.length ? 0 : Number.POSITIVE_INFINITY;
  let largest = 0;
  for (let i = 0; i < recorded.length; i++) {
    const [is, was] = [got[i]!, recorded[i]!];
    const distance = Object.is(is, was) ? 0 : Math.abs(is - was);
    absolute = Math.max(absolute, Number.isNaN(distance) ? Number.POSITIVE_INFINITY : distance);
    largest = Math.max(largest, Math.abs(was));
  }
  return { absolute, relative: absolute === 0 ? 0 : absolute / largest };
}

export const larger = (a: Difference, b: Difference): Difference => ({
  absolute: Math.max(a.absolute, b.absolute),
  relative: Math.max(a.relative, b.relative),
});
