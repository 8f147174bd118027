/** Datasets as the workers see them: information for everybody, rows by index for the compute threads. */
import type { RunSpec } from '@paceline/spec';

export interface DatasetInfo {
  readonly name: RunSpec['dataset'];
  readonly title: string;
  readonly trainExamples: number;
  readonly evalExamples: number;
  /** Shape of one example. */
  readonly inputShape: readonly number[];
  readonly classes: number;
  readonly license: string;
  readonly source: string;
}

export interface Split {
  /** Examples. */
  readonly count: number;
  /**
   * Writes the examples `indices[from..to)` as rows 0.. into `x` (float32, pixel / 255, row-major) and their class indices
   * into `y`. The buffers may be longer and may be views over shared memory.
   * @throws RangeError for rows, examples or buffers out of range
   */
  gather(indices: Int32Array, from: number, to: number, x: Float32Array, y: Int32Array): void;
}

export interface Dataset {
  readonly info: DatasetInfo;
  readonly train: Split;
  readonly evaluation: Split;
}
