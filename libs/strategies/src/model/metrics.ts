/**
 * The metrics of a training step, as tf.js reports them: its own functions on the outputs that the replicas have computed. The accuracies, which nearly
 * everybody asks for, are counted here without tf.js; the numbers are the same.
 */
import * as tfc from '@tensorflow/tfjs-core';
import type { Column } from './batch-columns.js';
import type { TfModel } from './tf-model.js';

export interface Measured {
  /** The rows of the batch that were measured. */
  readonly rows: { readonly from: number; readonly to: number };
  /** The targets and weights of the whole batch. */
  readonly columns: readonly { readonly target: Column; readonly weights: Column | undefined }[];
  /** Values of the targets and of the outputs, of the measured rows. */
  readonly targets: readonly Float32Array[];
  readonly outputs: readonly Float32Array[];
}

type Counter = (target: Float32Array, output: Float32Array, width: number) => number;

function largest(values: ArrayLike<number>, at: number, width: number): number {
  let best = 0;
  for (let c = 1; c < width; c++) if (values[at + c]! > values[at + best]!) best = c;
  return best;
}

/** Share of the rows of which it holds. */
function share(rows: number, holds: (row: number) => boolean): number {
  let sum = 0;
  for (let row = 0; row < rows; row++) if (holds(row)) sum++;
  return sum / rows;
}

const COUNTERS: Readonly<Record<string, Counter>> = {
  binaryAccuracy: (target, output) => share(output.length, (i) => (output[i]! > 0.5 ? 1 : 0) === target[i]),
  categoricalAccuracy: (target, output, width) =>
    share(output.length / width, (row) => largest(target, row * width, width) === largest(output, row * width, width)),
  sparseCategoricalAccuracy: (target, output, width) =>
    share(output.length / width, (row) => target[row] === largest(output, row * width, width)),
};

/** Whether all metrics are names: then a function of the name above is that of tf.js. */
const areNames = (metrics: unknown): boolean =>
  Array.isArray(metrics) ? metrics.every((metric) => typeof metric === 'string') : typeof metrics === 'string';

/** A ratio of counts over a batch. */
const OF_BATCHES: readonly string[] = ['precision'];

/** Whether all metrics are means over rows, as all losses are: then those of several batches are computed at once. */
export const isByRow = ({ metrics, metricsTensors }: TfModel): boolean =>
  metricsTensors.length === 0 ||
  metrics === undefined ||
  (areNames(metrics) && ![metrics].flat().some((name) => OF_BATCHES.includes(name as string)));

/** In the order of the model's `metricsNames`, without the first, the loss. */
export function measure(model: TfModel, { rows: { from, to }, columns, targets, outputs }: Measured): tfc.Scalar[] {
  const count = to - from;
  const part = (column: Column): tfc.Tensor => (column.shape[0] === count ? column.tensor() : tfc.slice(column.tensor(), from, count));
  const isNamed = areNames(model.metrics);
  const widthOf = (index: number): number => model.outputs[index]!.shape.at(-1) ?? 1;
  return model.metricsTensors.map(([metric, index], i) => {
    const isLoss = model.outputs.length > 1 && i < model.outputs.length;
    const output = outputs[index]!;
    const counter = isNamed && !isLoss ? COUNTERS[metric.name.replace(/\$\d+$/, '')] : undefined;
    if (counter) return tfc.scalar(counter(targets[index]!, output, widthOf(index)));
    return tfc.tidy(() => {
      const [, ...shape] = model.outputs[index]!.shape as number[];
      const { target, weights } = columns[index]!;
      const measured = metric(part(target), tfc.tensor(output.slice(), [count, ...shape]));
      return tfc.mean(isLoss && weights ? tfc.mul(measured, part(weights)) : measured);
    });
  });
}
