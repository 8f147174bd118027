/** Which rows a replica step sees: the sampler of libs/learning applied to a run spec. Used by both threads, so it is pure. */
import type { Split } from '@paceline/data';
import { createSchedule, microBatches, Permutation, replicaRows, type Schedule } from '@paceline/learning';
import type { RunSpec } from '@paceline/spec';

export interface BatchPlanInit {
  readonly spec: RunSpec;
  readonly examples: number;
  readonly exampleLength: number;
}

export class BatchPlan {
  readonly schedule: Schedule;
  readonly exampleLength: number;
  readonly totalRounds: number;
  /** Rows of the largest replica step. */
  readonly maxExamples: number;
  /** Of the epoch that was asked for last. */
  private permutation: { readonly epoch: number; readonly of: Permutation } | undefined;

  constructor(readonly init: BatchPlanInit) {
    const { spec, examples, exampleLength } = init;
    this.schedule = createSchedule({ examples, globalBatch: spec.globalBatch, dropRemainder: spec.dropRemainder, length: spec.length });
    this.exampleLength = exampleLength;
    this.totalRounds = this.schedule.totalRounds;
    this.maxExamples = Math.ceil(spec.globalBatch / spec.replicas);
  }

  /** Examples of (round, replica). */
  count(round: number, replica: number): number {
    const { from, to } = replicaRows(this.schedule.round(round).count, this.init.spec.replicas, replica);
    return to - from;
  }

  /** Row ranges, relative to the first row of the replica. */
  microBatches(round: number, replica: number): { from: number; to: number }[] {
    return microBatches({ from: 0, to: this.count(round, replica) }, this.init.spec.strategy.accumulate);
  }

  /** Indices into the training split, in order. */
  rows(round: number, replica: number): Int32Array {
    const { spec, examples } = this.init;
    const { epoch, first, count } = this.schedule.round(round);
    const { from, to } = replicaRows(count, spec.replicas, replica);
    if (this.permutation?.epoch !== epoch) this.permutation = { epoch, of: new Permutation(spec.seed, epoch, examples) };
    const rows = new Int32Array(to - from);
    for (let i = 0; i < rows.length; i++) rows[i] = this.permutation.of.at(first + from + i);
    return rows;
  }
}

/** Gathers the rows of a replica step. `x` holds maxExamples × exampleLength, `y` maxExamples. */
export function fillBatch(plan: BatchPlan, split: Split, round: number, replica: number, x: Float32Array, y: Int32Array): void {
  const rows = plan.rows(round, replica);
  split.gather(rows, 0, rows.length, x, y);
}
