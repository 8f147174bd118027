export { ChunkPieces } from './chunk-pieces.js';
export { type ClipRules, judgeRound, type RoundVerdict } from './clip.js';
export { createWeightsDigest } from './digest.js';
export { LEARNING_ERRORS, LearningError } from './errors.js';
export { HeldOut } from './held-out.js';
export { createInitialValues, initialValues, type InitialValues } from './initializers.js';
export { beyondResidualBounds, RESIDUAL_BOUNDS, residualBoundsMessage, type ResidualBounds } from './residual-bounds.js';
export { createLayout, layoutOfPart, type Layout, type LayoutVariable, shardChunks } from './layout.js';
export { LeafReduction } from './leaf-reduction.js';
export { measureIssues } from './metrics/measure-issues.js';
export { createMetricPlan, type MetricPlan, MetricUnfitError, metricsOfBoth } from './metrics/metric-plan.js';
export { addMetricSums } from './metrics/metric-sums.js';
export { ALL_SUMS_MAX, METRICS } from './metrics/metric-table.js';
export { averageShares, createOptimizer, type Optimizer, type OptimizerUpdate, rateOf } from './optimizers.js';
export { CounterStream, streamKey } from './random.js';
export { type RowGroup, rowGroups, workerDescription, type WorkerLayout, workerLayout } from './row-groups.js';
export { createSchedule, fillPermutation, microBatches, Permutation, permutedIndex, replicaRows, type Schedule } from './sampler.js';
export { applyAsyncUpdate, type AsyncUpdateOptions, stateChange } from './async-update.js';
export { exchangeOf } from './fragments.js';
export { executedBefore, executedExamples, stepExamples, stepRows, stepsIn } from './execution-rows.js';
export { type LocalStep, LocalUpdates } from './local-updates.js';
export { measures, SharedUpdates } from './shared-updates.js';
export { maximalNodes, type Node, ReductionTree, split, validNode } from './tree.js';
export { layoutHash } from './layout-hash.js';
export { judgeTrust } from './trust.js';
export {
  NOTHING_WATCHED,
  shownNumber,
  type StoppingRule,
  type StoppingState,
  stopReason,
  watchForStop,
} from './validation/early-stopping.js';
export { FULL_RATE, judgePlateau, type PlateauRule, type PlateauState } from './validation/plateau.js';
