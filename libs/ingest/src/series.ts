/** Where the series of each split begin: the rows of one file are one, and no window crosses from one into the next. */
import { DATASET_LIMITS, SPLITS, type SplitName } from '@paceline/spec';

interface Series {
  rows: number;
  readonly starts: number[];
}

export class SeriesStarts {
  private readonly of = new Map<SplitName, Series>();
  private isNext = false;
  /** Whether there are more than a manifest may name. */
  isOverfull = false;

  /** What comes now is of another file. */
  begin(): void {
    this.isNext = true;
  }

  add(split: SplitName, rows: number): void {
    if (rows === 0) return;
    let series = this.of.get(split);
    if (!series) this.of.set(split, (series = { rows: 0, starts: [] }));
    if (this.isNext && series.rows > 0) {
      if (series.starts.length < DATASET_LIMITS.seriesPerSplit - 1) series.starts.push(series.rows);
      else this.isOverfull = true;
    }
    this.isNext = false;
    series.rows += rows;
  }

  /** The rows of the training are divided in their order. */
  divide(counts: Readonly<Record<SplitName, number>>): void {
    const whole = this.of.get('train');
    if (!whole) return;
    let from = 0;
    for (const split of SPLITS) {
      const to = from + counts[split];
      // A split that is none of these rows has files of its own.
      if (to > from) {
        const starts = whole.starts.filter((start) => start > from && start < to).map((start) => start - from);
        this.of.set(split, { rows: to - from, starts });
      }
      from = to;
    }
  }

  /** Undefined for a split that is one series. */
  startsOf(split: SplitName): number[] | undefined {
    const starts = this.of.get(split)?.starts ?? [];
    return starts.length > 0 ? starts : undefined;
  }
}
