/** Datasets as the workers see them: information for everybody, rows by index for the compute threads. */
import type { RowFormat } from '@paceline/spec';

export interface DatasetInfo {
  readonly name: string;
  readonly title: string;
  readonly trainExamples: number;
  readonly evalExamples: number;
  /** Format of the default features. */
  readonly format: RowFormat;
  readonly license: string;
  readonly source: string;
}

/** A built-in dataset. */
export interface Dataset {
  readonly info: DatasetInfo;
  readonly format: RowFormat;
  readonly train: InMemorySplit;
  readonly evaluation: InMemorySplit;
}

/** Where rows are written to: one buffer per field of the format, row-major, perhaps longer than needed and over shared memory. */
export interface RowBuffers {
  readonly inputs: readonly Float32Array[];
  readonly targets: readonly Float32Array[];
  /** Present exactly when the format is weighted. */
  readonly weights: Float32Array | undefined;
}

/** Examples of a split by index, as float32 fields. Rows that lie elsewhere are read first: then the answer is a promise. */
export interface RowSplit {
  /** Examples. */
  readonly count: number;
  /**
   * Writes the examples `indices[from..to)` as rows 0.. into the buffers: the same bits for the same index, on every machine.
   * @throws RangeError for rows, examples or buffers out of range; DatasetError naming the shard that cannot be read
   */
  gather(indices: Int32Array, from: number, to: number, into: RowBuffers): Promise<void> | void;
}

/** A split whose rows are there at once. */
export interface InMemorySplit extends RowSplit {
  gather(indices: Int32Array, from: number, to: number, into: RowBuffers): void;
}

/** The data of a run, opened by its loader thread. */
export interface RunRows {
  readonly format: RowFormat;
  readonly train: RowSplit;
  readonly evaluation: RowSplit;
  close(): Promise<void>;
}
