/**
 * `evaluate`, `evaluateDataset`, `predict` and the validation of `fit`, distributed: tf.js asks the model for the loss and metrics of a batch
 * (`testFunction`), for those of all rows (`testLoop`) and for the outputs of all rows (`predictLoop`). The replicas compute the outputs; losses and metrics of
 * these are the functions of tf.js.
 *
 * Rows go to the replicas in blocks of several batches, since a small model answers for a batch in less time than it takes to wake the threads up.
 */
import * as tfc from '@tensorflow/tfjs-core';
import { ArgumentError } from '../errors.js';
import { filler, RowTensor, type Column } from './batch-columns.js';
import { isByRow, measure } from './metrics.js';
import type { TfModel, TrainFunction } from './tf-model.js';
import type { HostRows } from '../exchange.js';

/** What the replicas answer, until they are asked again. */
type Ask = (rows: HostRows) => readonly Float32Array[];

/** Inputs or outputs of a block take so much, where a batch does not take more. */
const BLOCK_FLOATS = 1 << 21;
/** The memory that a block takes in the strategy stays allocated. */
const BLOCK_ROWS = 8192;
/** As in tf.js. */
const BATCH_SIZE = 32;

const sizeOf = (shape: readonly (number | null)[]): number => shape.slice(1).reduce<number>((product, size) => product * (size ?? 1), 1);

/** Values of the rows of one output, and where the next ones go. */
class Answers {
  readonly values: readonly Float32Array[];
  private at = 0;

  constructor(
    private readonly widths: readonly number[],
    rows: number,
  ) {
    this.values = widths.map((width) => new Float32Array(rows * width));
  }

  add(answers: readonly Float32Array[], rows: number): void {
    answers.forEach((values, i) => this.values[i]!.set(values, this.at * this.widths[i]!));
    this.at += rows;
  }
}

export class Evaluation {
  /** Numbers of each output for one row. */
  private readonly widths: readonly number[];
  /** Rows that replicas get at once, where the batches are not larger. */
  private readonly blockRows: number;

  constructor(
    private readonly model: TfModel,
    private readonly ask: Ask,
  ) {
    this.widths = model.outputs.map(({ shape }) => sizeOf(shape));
    const floats = Math.max(1, ...model.inputs.map(({ shape }) => sizeOf(shape)), ...this.widths);
    this.blockRows = Math.max(1, Math.min(BLOCK_ROWS, Math.floor(BLOCK_FLOATS / floats)));
  }

  /** The test function: cumulative losses of the outputs, then the metrics, as tf.js gives them. */
  readonly test: TrainFunction = (data) => {
    const rows = data.map((tensor) => new RowTensor(tensor!));
    const count = data[0]!.shape[0]!;
    return this.score(rows, 0, count, count).map((value) => tfc.scalar(value));
  };

  /** The test loop: means over all rows. @param data inputs, targets, and perhaps the weights of rows, which the losses are multiplied by */
  testAll(data: readonly tfc.Tensor[], batchSize = BATCH_SIZE): tfc.Scalar[] {
    const rows = data.map((tensor) => new RowTensor(tensor));
    const count = data[0]!.shape[0]!;
    const text = data.findIndex(({ dtype }, i) => i >= this.model.inputs.length && dtype === 'string');
    if (text >= 0)
      throw new ArgumentError(
        `target of output ${this.model.outputNames[text - this.model.inputs.length]!}: holds string, and the model takes numbers`,
      );
    const batches = Math.max(1, Math.floor(this.blockRows / batchSize));
    let sums: number[] | undefined;
    for (let from = 0; from < count; from += batches * batchSize) {
      const to = Math.min(from + batches * batchSize, count);
      const values = this.score(rows, from, to, batchSize);
      sums = values.map((value, i) => Math.fround((sums?.[i] ?? 0) + Math.fround((to - from) * value)));
    }
    return (sums ?? []).map((sum) => tfc.scalar(sum / count));
  }

  predictAll(inputs: readonly tfc.Tensor[], batchSize = BATCH_SIZE): tfc.Tensor | tfc.Tensor[] {
    const count = inputs[0]!.shape[0]!;
    // As tf.js, which cuts what has more rows.
    const short = inputs.findIndex((tensor) => tensor.shape[0]! < count);
    if (short > 0)
      throw new ArgumentError(
        `input ${this.model.inputNames[short]!} has ${inputs[short]!.shape[0]} rows, and input ${this.model.inputNames[0]!} has ${count}: give all inputs the same number of rows`,
      );
    const rows = inputs.map((tensor) => new RowTensor(tensor));
    const outputs = this.answers(rows, 0, count, batchSize).map((values, i) => this.tensor(i, values, count));
    return outputs.length === 1 ? outputs[0]! : outputs;
  }

  private tensor(output: number, values: Float32Array, count: number): tfc.Tensor {
    return tfc.tensor(values, [count, ...(this.model.outputs[output]!.shape.slice(1) as number[])], 'float32');
  }

  private answers(rows: readonly RowTensor[], from: number, to: number, batchSize: number): readonly Float32Array[] {
    const answers = new Answers(this.widths, to - from);
    const blockRows = Math.max(this.blockRows, batchSize); // a part of a batch would be another way to wake everybody up
    for (let at = from; at < to; at += blockRows) {
      const end = Math.min(at + blockRows, to);
      const inputs = this.model.inputs.map(({ shape }, i) =>
        filler(rows[i]!.range(at, end), end - at, shape.slice(1) as number[], `input ${this.model.inputNames[i]!}`),
      );
      answers.add(this.ask({ count: end - at, inputs, rowsAtOnce: batchSize }), end - at);
    }
    return answers.values;
  }

  /** Losses and metrics of some rows: means over them, where a metric is a mean over rows, else over the batches that they make. */
  private score(rows: readonly RowTensor[], from: number, to: number, batchSize: number): number[] {
    const { model, widths } = this;
    const outputs = this.answers(rows, from, to, batchSize);
    const behind = model.inputs.length + model.outputs.length;
    const targets = rows.slice(model.inputs.length, behind);
    const weights = rows[behind];
    const step = isByRow(model) ? to - from : batchSize;
    const sums: number[] = [];
    for (let at = from; at < to; at += step) {
      const end = Math.min(at + step, to);
      const part = outputs.map((values, i) => values.subarray((at - from) * widths[i]!, (end - from) * widths[i]!));
      this.scoreBatch(
        targets.map((tensor) => tensor.range(at, end)),
        part,
        end - at,
        weights?.range(at, end),
      ).forEach((value, i) => (sums[i] = (sums[i] ?? 0) + value * (end - at)));
    }
    return sums.map((sum) => sum / (to - from));
  }

  private scoreBatch(targets: readonly Column[], outputs: readonly Float32Array[], count: number, weights: Column | undefined): number[] {
    const { model } = this;
    const read = (scalars: readonly tfc.Scalar[]): number[] => scalars.map((scalar) => scalar.dataSync()[0]!);
    let values: number[] = [];
    tfc.tidy(() => {
      const losses = model.lossFunctions.map((loss, i) => {
        const ofRows = loss(targets[i]!.tensor(), this.tensor(i, outputs[i]!, count));
        return tfc.mean<tfc.Scalar>(weights ? tfc.mul(ofRows, weights.tensor()) : ofRows);
      });
      const metrics = measure(model, {
        rows: { from: 0, to: count },
        columns: targets.map((target) => ({ target, weights: undefined })),
        targets: targets.map((target) => {
          const into = new Float32Array(target.shape.reduce((product, size) => product * size, 1));
          target.fill(into);
          return into;
        }),
        outputs,
      });
      let loss = 0;
      values = [...read(losses).map((value) => (loss = Math.fround(loss + value))), ...read(metrics)];
    });
    return values;
  }
}
