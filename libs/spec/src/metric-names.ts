/** Names of metrics, and the other names that Keras, tf.js and scikit-learn have for them. What each one is made of stands in libs/learning/src/metrics. */

import { z } from 'zod';

/** Metrics by our names. The other names are compared without their case, `_` and `-`. */
export const METRIC_ALIASES = {
  accuracy: ['acc', 'categoricalAccuracy', 'sparseCategoricalAccuracy'],
  binaryAccuracy: [],
  topKCategoricalAccuracy: ['topK', 'topKAccuracy', 'sparseTopKCategoricalAccuracy'],
  precision: [],
  recall: ['sensitivity'],
  f1Score: ['f1'],
  auc: ['auroc', 'rocAuc'],
  meanAbsoluteError: ['mae'],
  meanSquaredError: ['mse'],
  rootMeanSquaredError: ['rmse'],
  meanAbsolutePercentageError: ['mape'],
  r2Score: ['r2'],
  perplexity: [],
  cosineSimilarity: [],
  confusionMatrix: ['confusion'],
} as const satisfies Readonly<Record<string, readonly string[]>>;

export type MeasuredName = keyof typeof METRIC_ALIASES;
export const MEASURED_NAMES = Object.keys(METRIC_ALIASES) as [MeasuredName, ...MeasuredName[]];

const plain = (name: string): string => name.replace(/[_-]/g, '').toLowerCase();
const BY_NAME: ReadonlyMap<string, MeasuredName> = new Map(
  MEASURED_NAMES.flatMap((name) => [name, ...METRIC_ALIASES[name]].map((spelt): [string, MeasuredName] => [plain(spelt), name])),
);

/** Our name of a metric by any of its names; undefined for one that is not known. */
export const measuredName = (name: string): MeasuredName | undefined => BY_NAME.get(plain(name));

export const metricOptionsSchema = z.strictObject({
  topK: z.int().min(1).max(100_000).describe('topKCategoricalAccuracy: among how many largest outputs; 5 where left out.').optional(),
  threshold: z
    .number()
    .min(0)
    .max(1)
    .describe(
      'binaryAccuracy, and precision, recall and f1Score of single outputs and of values: the probability above which it is yes; 0.5 where left out.',
    )
    .optional(),
  average: z
    .enum(['micro', 'macro', 'weighted'])
    .describe('precision, recall and f1Score of classes. Left out: of class 1 where there are two, else macro.')
    .optional(),
  aucThresholds: z.int().min(3).max(1000).describe('auc: thresholds that it is made of; 200 where left out.').optional(),
  aucCurve: z.enum(['ROC', 'PR']).describe('auc: of which curve; ROC where left out.').optional(),
  weighted: z.boolean().describe('Metrics count examples by their weights, as weighted_metrics of Keras.').optional(),
});
export type MetricOptionsSpec = z.output<typeof metricOptionsSchema>;
