/**
 * What people are shown of a metric: what it is called, which is better, and what its number is. It stands in a file of its own, without the validator, so
 * that a page can know it too. How a metric is counted stands in libs/learning/src/metrics.
 */
import type { MeasuredName } from './metric-names.js';

export interface MetricForm {
  readonly label: string;
  /** In a column or a short line. */
  readonly short: string;
  readonly better: 'higher' | 'lower';
  /**
   * `share`: of rows, 0 to 1, shown in percent. `error` and `squared-error`: in the unit of the target and in its square, which is the scaled one where
   * targets are scaled. `number`: without a unit.
   */
  readonly unit: 'share' | 'error' | 'squared-error' | 'number';
  /** The most that it can be. */
  readonly most?: number;
}

const share = (label: string, short: string): MetricForm => ({ label, short, better: 'higher', unit: 'share', most: 1 });

/** Form of each metric, and of the loss. */
export const METRIC_FORMS: Readonly<Record<MeasuredName | 'loss', MetricForm>> = {
  loss: { label: 'Loss', short: 'loss', better: 'lower', unit: 'number' },
  accuracy: share('Accuracy', 'accuracy'),
  binaryAccuracy: share('Binary accuracy', 'binary'),
  topKCategoricalAccuracy: share('Top-k accuracy', 'topK'),
  precision: share('Precision', 'precision'),
  recall: share('Recall', 'recall'),
  f1Score: share('F1 score', 'f1'),
  auc: { label: 'AUC', short: 'auc', better: 'higher', unit: 'number', most: 1 },
  meanAbsoluteError: { label: 'Mean absolute error', short: 'mae', better: 'lower', unit: 'error' },
  meanSquaredError: { label: 'Mean squared error', short: 'mse', better: 'lower', unit: 'squared-error' },
  rootMeanSquaredError: { label: 'Root mean squared error', short: 'rmse', better: 'lower', unit: 'error' },
  meanAbsolutePercentageError: { label: 'Mean absolute percentage error', short: 'mape', better: 'lower', unit: 'number' },
  r2Score: { label: 'R²', short: 'r2', better: 'higher', unit: 'number', most: 1 },
  perplexity: { label: 'Perplexity', short: 'perplexity', better: 'lower', unit: 'number' },
  cosineSimilarity: { label: 'Cosine similarity', short: 'cosine', better: 'higher', unit: 'number', most: 1 },
  confusionMatrix: share('Confusion matrix, diagonal', 'confusion'),
};

export interface MeasureParts {
  readonly metric: keyof typeof METRIC_FORMS;
  /** The output of the model, where several are measured: `price` of `price_meanAbsoluteError`. */
  readonly output: string | undefined;
}

const NAMES = Object.keys(METRIC_FORMS) as (keyof typeof METRIC_FORMS)[];

/** Takes the name of a measure apart (`price_meanAbsoluteError`); undefined for an unknown one. */
export function measureParts(name: string): MeasureParts | undefined {
  const metric = NAMES.find((each) => name === each) ?? NAMES.find((each) => name.endsWith(`_${each}`));
  if (metric === undefined) return undefined;
  return { metric, output: name === metric ? undefined : name.slice(0, -metric.length - 1) };
}
