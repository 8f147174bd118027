/** Mean, deviation and bounds in one pass: Welford's method in double over the stored values, in the order of the rows. */
import type { HeldOut, NumberStatistics, SplitName } from '@paceline/spec';

export class NumberTally {
  private count = 0;
  private missing = 0;
  private mean = 0;
  private squares = 0;
  private minimum = Infinity;
  private maximum = -Infinity;

  /** NaN counts as missing. */
  add(values: ArrayLike<number>): void {
    let { count, missing, mean, squares, minimum, maximum } = this;
    for (let i = 0; i < values.length; i++) {
      const value = values[i]!;
      if (Number.isNaN(value)) {
        missing++;
        continue;
      }
      count++;
      const distance = value - mean;
      mean += distance / count;
      squares += distance * (value - mean);
      if (value < minimum) minimum = value;
      if (value > maximum) maximum = value;
    }
    Object.assign(this, { count, missing, mean, squares, minimum, maximum });
  }

  get bounds(): { readonly minimum: number; readonly maximum: number } {
    return this.count === 0 ? { minimum: 0, maximum: 0 } : { minimum: this.minimum, maximum: this.maximum };
  }

  result(histogram?: number[]): NumberStatistics {
    const { count, missing, mean, squares } = this;
    const statistics = { count, missing, mean, deviation: count === 0 ? 0 : Math.sqrt(Math.max(0, squares / count)), ...this.bounds };
    return histogram ? Object.assign(statistics, { histogram }) : statistics;
  }

  get missingValues(): number {
    return this.missing;
  }

  /** Without the deviation, as lengths and sizes of pictures have it. */
  sizes(): { count: number; missing: number; minimum: number; maximum: number; mean: number } {
    return { count: this.count, missing: this.missing, mean: this.mean, ...this.bounds };
  }
}

export type HeldOutName = Exclude<SplitName, 'train'>;

/** Missing values and bounds of a split that is not trained on: what it has that the training split has not is said in the manifest. */
export class HeldOutTally {
  private missing = 0;
  private minimum = Infinity;
  private maximum = -Infinity;
  private shortest = Infinity;

  /** @param areCodes a missing category is -1 */
  add(values: ArrayLike<number>, areCodes: boolean): void {
    let { missing, minimum, maximum } = this;
    for (let i = 0; i < values.length; i++) {
      const value = values[i]!;
      if (areCodes ? value < 0 : Number.isNaN(value)) missing++;
      else if (!areCodes) {
        if (value < minimum) minimum = value;
        if (value > maximum) maximum = value;
      }
    }
    Object.assign(this, { missing, minimum, maximum });
  }

  addLengths(lengths: readonly number[]): void {
    for (const length of lengths) if (length < this.shortest) this.shortest = length;
  }

  /** @param extremes which bounds matter: a number that is negative here alone (weights are not), or all, as classes of steps have them */
  beyond(
    trained: { readonly missing: number; readonly bounds: NumberTally['bounds']; readonly shortest: number },
    extremes: 'all' | 'negative' | 'none',
  ): HeldOut | undefined {
    const { missing, minimum, maximum, shortest } = this;
    const { bounds } = trained;
    const found: HeldOut = {};
    if (missing > 0 && trained.missing === 0) found.missing = missing;
    const isLow = extremes === 'all' ? minimum < bounds.minimum : extremes === 'negative' && minimum < 0 && bounds.minimum >= 0;
    if (isLow) found.minimum = minimum;
    if (extremes === 'all' && maximum > bounds.maximum) found.maximum = maximum;
    if (extremes === 'all' && shortest < trained.shortest) found.shortest = shortest;
    return Object.keys(found).length > 0 ? found : undefined;
  }
}

export const HISTOGRAM_BINS = 20;

/** Adds values to bins of equal width from minimum to maximum; the maximum is in the last bin. */
export function addToHistogram(bins: number[], values: ArrayLike<number>, { minimum, maximum }: NumberTally['bounds']): void {
  const width = maximum - minimum;
  for (let i = 0; i < values.length; i++) {
    const value = values[i]!;
    if (Number.isNaN(value)) continue;
    const bin = width === 0 ? 0 : Math.floor(((value - minimum) / width) * bins.length);
    bins[Math.min(bins.length - 1, bin)]!++;
  }
}
