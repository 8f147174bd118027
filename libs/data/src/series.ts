/** Examples of a split whose rows are several series, such as one per file: none has rows of two. */
import type { DatasetManifest } from '@paceline/spec';

export type SplitRows = Pick<DatasetManifest['splits']['train'], 'rows' | 'starts'>;

/** Rows of the longest series. */
export const longestSeries = ({ rows, starts = [] }: SplitRows): number =>
  [...starts, rows].reduce(({ longest, from }, to) => ({ longest: Math.max(longest, to - from), from: to }), { longest: 0, from: 0 })
    .longest;

export class SeriesExamples {
  readonly count: number;
  /** First example of each series that has one, and how far its row lies behind it. */
  private readonly firsts: number[] = [];
  private readonly shifts: number[] = [];

  /** @param span rows of an example */
  constructor({ rows, starts = [] }: SplitRows, span: number) {
    let count = 0;
    let from = 0;
    // An example of one row crosses nothing.
    for (const to of span === 1 ? [rows] : [...starts, rows]) {
      if (to - from >= span) {
        this.firsts.push(count);
        this.shifts.push(from - count);
        count += to - from - span + 1;
      }
      from = to;
    }
    this.count = count;
  }

  /** Whether the rows of the examples have the numbers of the examples. */
  get isPlain(): boolean {
    return this.shifts.length === 0 || (this.shifts.length === 1 && this.shifts[0] === 0);
  }

  /** The first row of an example. */
  rowOf(example: number): number {
    let low = 0;
    let high = this.firsts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.firsts[middle]! <= example) low = middle;
      else high = middle - 1;
    }
    return example + (this.shifts[low] ?? 0);
  }

  rowsOf(examples: Int32Array, from: number, to: number): Int32Array {
    const rows = new Int32Array(to - from);
    for (let i = from; i < to; i++) rows[i - from] = this.rowOf(examples[i]!);
    return rows;
  }
}
