/**
 * Where the rows of a batch come from: tensors that hold the batch alone (fitDataset, trainOnBatch), or, in fit, rows of the tensors that the user
 * has given. tf.js gathers the rows of each batch by a kernel that computes the place of every single number, which takes longer than a training
 * step here. So fit hands the numbers of the rows around, and rows are copied straight into the memory of the trainer.
 */
import * as tfc from '@tensorflow/tfjs-core';
import { ArgumentError } from '../errors.js';
import { isOnHeap, valuesOf } from './tensors.js';

/** One input, target or weight of a batch. */
export interface Column {
  /** With the batch. */
  readonly shape: readonly number[];
  readonly dtype: tfc.DataType;
  /** Weights that rows have of their own: a row counts with them at every output. */
  readonly isOfRows?: boolean | undefined;
  /** Copies the values. */
  fill(into: Float32Array): void;
  /** The column as a tensor, for metrics: it is disposed with the tidy around. */
  tensor(): tfc.Tensor;
}

export const columnOf = (tensor: tfc.Tensor): Column => ({
  shape: tensor.shape,
  dtype: tensor.dtype,
  fill: (into) => into.set(valuesOf(tensor)),
  tensor: () => tensor,
});

/** A tensor whose rows are examples. */
export class RowTensor {
  /** What the backend has copied, once; a view of the heap is taken anew each time. */
  private copied: ArrayLike<number> | undefined;

  constructor(
    readonly tensor: tfc.Tensor,
    private readonly isOfRows?: boolean,
  ) {}

  /** @param rows their numbers */
  column(rows: Int32Array): Column {
    const { tensor } = this;
    const [, ...shape] = tensor.shape;
    return {
      shape: [rows.length, ...shape],
      dtype: tensor.dtype,
      isOfRows: this.isOfRows,
      fill: (into) => this.gather(rows, into),
      tensor: () => tfc.gather(tensor, tfc.tensor1d(rows, 'int32')),
    };
  }

  /** Rows [from, to). */
  range(from: number, to: number): Column {
    const { tensor } = this;
    const [rows, ...shape] = tensor.shape as [number, ...number[]];
    const width = tensor.size / rows;
    const isWhole = from === 0 && to === rows;
    return {
      shape: [to - from, ...shape],
      dtype: tensor.dtype,
      fill: (into) => {
        const values = this.values() as Float32Array;
        into.set(isWhole ? values : values.subarray(from * width, to * width));
      },
      tensor: () => (isWhole ? tensor : tfc.slice(tensor, from, to - from)),
    };
  }

  private gather(rows: ArrayLike<number>, into: Float32Array): void {
    const values = this.values() as Float32Array;
    const width = into.length / rows.length;
    if (width === 1) for (let i = 0; i < rows.length; i++) into[i] = values[rows[i]!]!;
    else for (let i = 0; i < rows.length; i++) into.set(values.subarray(rows[i]! * width, (rows[i]! + 1) * width), i * width);
  }

  private values(): ArrayLike<number> {
    return isOnHeap() ? valuesOf(this.tensor) : (this.copied ??= valuesOf(this.tensor));
  }
}

/** `[3, 1]` and `[3]` lie alike in memory, and labels come in both forms. */
const withoutOnes = (shape: readonly number[]): readonly number[] => shape.slice(0, shape.findLastIndex((side) => side !== 1) + 1);

/** Fills the column, if it is a batch of `count` examples of that shape. @throws ArgumentError */
export function filler(column: Column, count: number, shape: readonly number[], what: string): (into: Float32Array) => void {
  const [examples, ...given] = column.shape;
  if (examples !== count || String(withoutOnes(given)) !== String(withoutOnes(shape)))
    throw new ArgumentError(
      `${what}: a batch of ${count} examples has the shape [${[count, ...shape].join(', ')}], not [${column.shape.join(', ')}]`,
    );
  if (column.dtype === 'string' || column.dtype === 'complex64')
    throw new ArgumentError(`${what}: holds ${column.dtype}, and the model takes numbers`);
  return (into) => column.fill(into);
}
