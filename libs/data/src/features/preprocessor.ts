/**
 * The feature plan applied to rows that somebody has at hand, for predictions and for exported models: the same bits as a run gets from the
 * shards. A category that the plan does not know is all zeros in one-hot and 0 as an index; a missing number is what the plan says.
 */
import { fieldLength, type FeaturePlan } from '@paceline/spec';
import type { RowBuffers } from '../contract.js';
import { fieldsOf, type Fields, type Field, type CopiedField } from './field.js';
import type { DecodeImage } from './image.js';
import { RawCells, type RawRow } from './raw-cells.js';

export interface Preprocessed {
  /** As many as rows; fewer with windows, which are cut from the rows in their order. */
  readonly examples: number;
  /** Exactly as long as needed. Without targets, `targets` is empty and there are no weights. */
  readonly buffers: RowBuffers;
}

export class Preprocessor {
  private readonly fields: Fields;
  /** Rows that the inputs of an example span: less than the plan says, as what lies ahead is not there yet. */
  readonly inputSpan: number;

  /** @param decodeImage turns image files into pixels: `decodeImage` of this library, or what a browser has */
  constructor(
    private readonly plan: FeaturePlan,
    decodeImage: DecodeImage,
  ) {
    this.fields = fieldsOf(plan, decodeImage);
    this.inputSpan = Math.max(...plan.inputs.map(({ rows }) => rows.first + (rows.count - 1) * rows.step + 1));
  }

  /** Inputs alone, for predictions. @throws DatasetError DATASET_ROW_INVALID naming row and column */
  async inputs(rows: readonly RawRow[]): Promise<Preprocessed> {
    const examples = Math.max(0, rows.length - this.inputSpan + 1);
    const cells = new RawCells(rows, this.plan);
    const inputs = this.plan.rowFormat.inputs.map((field) => new Float32Array(examples * fieldLength(field)));
    for (const [i, field] of this.fields.inputs.entries()) await written(field, cells, examples, inputs[i]!);
    return { examples, buffers: { inputs, targets: [], weights: undefined } };
  }

  /**
   * Inputs, targets and weights as those of training; with `isEvaluation` without the weights of classes.
   * @throws DatasetError DATASET_ROW_INVALID naming row and column
   */
  async examples(rows: readonly RawRow[], { isEvaluation = false }: { readonly isEvaluation?: boolean } = {}): Promise<Preprocessed> {
    const examples = Math.max(0, rows.length - this.plan.span + 1);
    const cells = new RawCells(rows, this.plan);
    const make = (field: { readonly shape: readonly number[] }): Float32Array => new Float32Array(examples * fieldLength(field));
    const inputs = this.plan.rowFormat.inputs.map(make);
    const targets = this.plan.rowFormat.targets.map(make);
    const weight = isEvaluation ? this.fields.evaluationWeight : this.fields.trainWeight;
    const weights = weight && new Float32Array(examples);
    for (const [i, field] of this.fields.inputs.entries()) await written(field, cells, examples, inputs[i]!);
    for (const [i, field] of this.fields.targets.entries()) await written(field, cells, examples, targets[i]!, inputs);
    if (weight) await written(weight, cells, examples, weights!);
    return { examples, buffers: { inputs, targets, weights } };
  }
}

/** All rows once, and then those of each example. */
async function written(
  field: Field | CopiedField,
  cells: RawCells,
  examples: number,
  into: Float32Array,
  inputs: readonly Float32Array[] = [],
): Promise<void> {
  if (field.kind === 'copied') return into.set(inputs[field.input]!);
  const { rowWidth, rows } = field;
  if (cells.rows === examples && rows.count === 1) return field.write(cells, into, 0);
  const all = new Float32Array(cells.rows * rowWidth);
  await field.write(cells, all, 0);
  let at = 0;
  for (let example = 0; example < examples; example++) {
    for (let k = 0; k < rows.count; k++, at += rowWidth) {
      const read = (example + rows.first + k * rows.step) * rowWidth;
      into.set(all.subarray(read, read + rowWidth), at);
    }
  }
}
