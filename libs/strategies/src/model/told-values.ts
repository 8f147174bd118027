/** What `fit`, `evaluate` and `predict` come to where processes may be started again: in one that was not there it is what the others came to. */
import * as tfc from '@tensorflow/tfjs-core';
import type { Course } from '../exchange.js';
import { valuesOf } from './tensors.js';
import type { FitDatasetArgs } from './tf-model.js';

export function valuesBy(course: Course, what: string, compute: () => readonly number[]): number[] {
  const bytes = course.value(what, () => new Uint8Array(Float64Array.from(compute()).buffer));
  return [...new Float64Array(bytes.slice().buffer)];
}

export function scalarOf(scalar: tfc.Scalar): number {
  const value = valuesOf(scalar)[0]!;
  scalar.dispose();
  return value;
}

/** @param evaluate asks replicas, also where what they answered is not known any more: what it comes to is told then */
export function told(course: Course, evaluate: () => tfc.Scalar[]): tfc.Scalar[] {
  const values = evaluate().map(scalarOf);
  return valuesBy(course, 'what the evaluation came to', () => values).map((value) => tfc.scalar(value));
}

/** A larger one cannot be told to a process that is started again. */
const MOST_PREDICTED_BYTES = 8 << 20;

/** The same of a prediction. */
export function toldOutputs(course: Course, outputs: tfc.Tensor | tfc.Tensor[]): tfc.Tensor | tfc.Tensor[] {
  const bytes = [outputs].flat().reduce((sum, { size }) => sum + size * 4, 0);
  if (bytes > MOST_PREDICTED_BYTES) {
    course.close(`a prediction of ${bytes} bytes, of at most ${MOST_PREDICTED_BYTES} that are kept,`);
    return outputs;
  }
  const all = [outputs].flat().map((output) => {
    const { shape } = output;
    const bytes = course.value('what was predicted', () => new Uint8Array(Float32Array.from(valuesOf(output)).buffer));
    output.dispose();
    return tfc.tensor(new Float32Array(bytes.slice().buffer), shape, 'float32');
  });
  return Array.isArray(outputs) ? all : all[0]!;
}

/** Places of numbers among the arguments of `fitLoop` after the data: tensorflow/tfjs-layers/src/engine/training.ts. */
const NAMED: Readonly<Record<number, string>> = {
  1: 'batch size',
  2: 'epochs',
  7: 'shuffle',
  9: 'first epoch',
  10: 'steps per epoch',
  11: 'validation steps',
};

/** A call of `fit` in words: it must be the same in all processes. @param more arguments of `fitLoop` */
export function fitText(model: string, rows: number, more: readonly unknown[]): string {
  const said = Object.entries(NAMED).flatMap(([place, name]) =>
    more[Number(place)] == null ? [] : [`${name} ${String(more[Number(place)])}`],
  );
  const [validation] = [more[6]].flat() as [tfc.Tensor | undefined];
  const rowsToo = validation === undefined ? [] : [`${validation.shape[0]} rows to validate with`];
  return [`fit of the model ${model} with ${rows} rows`, ...said, ...rowsToo].join(', ');
}

/** The same of `fitDataset`. What it refuses, tf.js refuses itself. */
export function fitDatasetText(model: string, args: FitDatasetArgs | undefined): string {
  const { batchesPerEpoch, epochs, initialEpoch } = args ?? {};
  const said = Object.entries({ batchesPerEpoch, epochs, initialEpoch }).flatMap(([name, value]) =>
    value == null ? [] : [`${name} ${value}`],
  );
  return [`fitDataset of the model ${model}`, ...said].join(', ');
}
