/** Which rows a replica step sees: the sampler of libs/learning applied to a run spec, and what augmentation makes of them. Used by both threads, so it is pure. */
import { datasetInfo, ImageAugmenter, type Split } from '@paceline/data';
import { CounterStream, createSchedule, microBatches, Permutation, replicaRows, streamKey, type Schedule } from '@paceline/learning';
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

  private readonly augmenter: ImageAugmenter | undefined;

  constructor(readonly init: BatchPlanInit) {
    const { spec, examples, exampleLength } = init;
    this.schedule = createSchedule({ examples, globalBatch: spec.globalBatch, dropRemainder: spec.dropRemainder, length: spec.length });
    this.exampleLength = exampleLength;
    this.totalRounds = this.schedule.totalRounds;
    this.maxExamples = Math.ceil(spec.globalBatch / spec.replicas);
    this.augmenter = spec.augmentation && new ImageAugmenter(spec.augmentation, datasetInfo(spec.dataset).inputShape);
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

  /** What an example becomes in an epoch does not depend on the round or the replica that it falls into. */
  augment(round: number, rows: Int32Array, x: Float32Array): void {
    if (!this.augmenter) return;
    const { epoch } = this.schedule.round(round);
    for (const [i, row] of rows.entries()) {
      const stream = new CounterStream(streamKey('augmentation', this.init.spec.seed, epoch, row));
      this.augmenter.apply(x.subarray(i * this.exampleLength, (i + 1) * this.exampleLength), stream);
    }
  }
}

/** Gathers the rows of a replica step and augments them. `x` holds maxExamples × exampleLength, `y` maxExamples. */
export function fillBatch(plan: BatchPlan, split: Split, round: number, replica: number, x: Float32Array, y: Int32Array): void {
  const rows = plan.rows(round, replica);
  split.gather(rows, 0, rows.length, x, y);
  plan.augment(round, rows, x);
}
