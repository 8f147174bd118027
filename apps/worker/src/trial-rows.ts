/** The rows that engines are measured with: those that the run begins with, so that zeros and augmentation are those of its data. */
import { openDataset } from '@paceline/data';
import { trialExamples, trialRows, type TrialRows } from '@paceline/engine';
import type { RunSpec } from '@paceline/spec';
import { BatchPlan } from './batch-plan.js';

/** @throws DatasetError */
export async function rowsOfRun(spec: RunSpec): Promise<TrialRows> {
  const { info, train } = await openDataset(spec.dataset);
  const exampleLength = info.inputShape.reduce((a, b) => a * b, 1);
  const plan = new BatchPlan({ spec, examples: train.count, exampleLength });
  const rows = plan.rows(0, 0).subarray(0, trialExamples(spec));
  const x = new Float32Array(rows.length * exampleLength);
  const y = new Int32Array(rows.length);
  train.gather(rows, 0, rows.length, x, y);
  plan.augment(0, rows, x);
  return trialRows({ x, y, count: rows.length });
}
