export * from './clip.js';
export * from './digest.js';
export * from './errors.js';
export { HeldOut } from './held-out.js';
export { computeFans, createInitialValues, initialValues, INITIALIZERS, type InitialValues } from './initializers.js';
export * from './layout.js';
export { LeafReduction } from './leaf-reduction.js';
export { createMetricPlan, MetricUnfitError, type MeasuredPart, type MetricPlan, type PlannedMetric } from './metrics/metric-plan.js';
export { addMetricSums, type MetricBlock } from './metrics/metric-sums.js';
export {
  ALL_SUMS_MAX,
  METRICS,
  METRIC_SUMS_MAX,
  metricTarget,
  type Metric,
  type MetricOptions,
  type MetricTarget,
} from './metrics/metric-table.js';
export * from './optimizers.js';
export { CounterStream, normalQuantile, streamKey, type StreamKey } from './random.js';
export * from './sampler.js';
export * from './token-update.js';
export * from './tree.js';
export * from './layout-hash.js';
export * from './trust.js';
export * from './validation/early-stopping.js';
export * from './validation/plateau.js';
