/**
 * Rounds of several steps that all replicas take together (strategy tpu). A step has the next `globalBatch` examples of the round, and each replica those that it
 * would have of a round of that size: so a run sees what it would see with a round for each step.
 */
import type { GridRound } from '@paceline/spec';
import { replicaRows, type Rows } from './sampler.js';

interface Batches {
  /** Examples of a step. */
  readonly globalBatch: number;
  readonly replicas: number;
}

/** Steps of a round with so many examples. */
export const stepsIn = (count: number, { globalBatch }: Pick<Batches, 'globalBatch'>): number => Math.ceil(count / globalBatch);

/** Examples of a step, from 0, of a round with so many. */
export const stepExamples = (count: number, step: number, { globalBatch }: Pick<Batches, 'globalBatch'>): number =>
  Math.max(0, Math.min(globalBatch, count - step * globalBatch));

/** Positions in the round of what a replica has in a step. */
export function stepRows(count: number, replica: number, step: number, batches: Batches): Rows {
  const first = step * batches.globalBatch;
  const { from, to } = replicaRows(stepExamples(count, step, batches), batches.replicas, replica);
  return { from: first + from, to: first + to };
}

/** Examples of a replica in all steps of a round. */
export function executedExamples(count: number, replica: number, { globalBatch, replicas }: Batches): number {
  const of = (examples: number): number => {
    const { from, to } = replicaRows(examples, replicas, replica);
    return to - from;
  };
  return Math.floor(count / globalBatch) * of(globalBatch) + of(count % globalBatch);
}

/** Steps of the run before a round. @param examples of an epoch, without what is dropped */
export function executedBefore(
  { epoch, first }: Pick<GridRound, 'epoch' | 'first'>,
  examples: number,
  batches: Pick<Batches, 'globalBatch'>,
): number {
  return epoch * stepsIn(examples, batches) + first / batches.globalBatch;
}
