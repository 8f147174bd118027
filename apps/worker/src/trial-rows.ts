/** The rows that engines are measured with: those that the run begins with, so that zeros and augmentation are those of its data. */
import { openDataset } from '@paceline/data';
import { trialExamples, trialRows, type TrialRows } from '@paceline/engine';
import type { RunSpec } from '@paceline/spec';
import { BatchPlan, fillBatch } from './batch-plan.js';

/** @throws DatasetError */
export async function rowsOfRun(spec: RunSpec): Promise<TrialRows> {
  const { info, train } = await openDataset(spec.dataset);
  const exampleLength = info.inputShape.reduce((a, b) => a * b, 1);
  const plan = new BatchPlan({ spec, examples: train.count, exampleLength });
  const x = new Float32Array(plan.maxExamples * exampleLength);
  const y = new Int32Array(plan.maxExamples);
  fillBatch(plan, train, 0, 0, x, y);
  return trialRows({ x, y, count: Math.min(trialExamples(spec), plan.count(0, 0)) });
}
