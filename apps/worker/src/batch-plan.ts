/** Which rows a replica step sees: the sampler of libs/learning applied to a run spec, and what augmentation makes of them. Used by both threads, so it is pure. */
import { ImageAugmenter, type RowBuffers, type RowSplit } from '@paceline/data';
import {
  CounterStream,
  createSchedule,
  HeldOut,
  microBatches,
  Permutation,
  replicaRows,
  stepRows,
  streamKey,
  type Schedule,
} from '@paceline/learning';
import { fieldLength, roundsOf, stepsOfRound, type RowFormat, type RunSpec } from '@paceline/spec';

export interface BatchPlanInit {
  readonly spec: RunSpec;
  /** Examples that the run trains on. */
  readonly examples: number;
  /** More of the training split, which it measures instead. */
  readonly heldOutExamples?: number | undefined;
  readonly format: RowFormat;
}

export class BatchPlan {
  readonly schedule: Schedule;
  readonly format: RowFormat;
  readonly totalRounds: number;
  /** Rows of the largest replica step, or local step. */
  readonly maxExamples: number;
  /** Permutation of the epoch that was used last. */
  private permutation: { readonly epoch: number; readonly of: Permutation } | undefined;

  private readonly augmenter: ImageAugmenter | undefined;
  private readonly heldOut: HeldOut;

  /** @throws RangeError when the rows cannot be augmented as the spec says */
  constructor(readonly init: BatchPlanInit) {
    const { spec, examples, format, heldOutExamples = 0 } = init;
    this.heldOut = new HeldOut(spec.seed, examples + heldOutExamples, heldOutExamples);
    this.schedule = createSchedule({ ...roundsOf(spec, examples), length: spec.length });
    this.format = format;
    this.totalRounds = this.schedule.totalRounds;
    this.maxExamples = Math.ceil(spec.globalBatch / spec.replicas);
    this.augmenter = spec.augmentation && new ImageAugmenter(spec.augmentation, format.inputs[0]!.shape);
  }

  /** Steps of a round: local steps, or those that all replicas take together with tpu; else one. The last round of an epoch may have fewer than others. */
  localSteps(round: number): number {
    const { spec } = this.init;
    return Math.min(stepsOfRound(spec), Math.ceil(this.schedule.round(round).count / spec.globalBatch));
  }

  /** Positions in the round: the rows of the replica, cut into its local steps by the same rule; with tpu, of a step its part. */
  private part(round: number, replica: number, localStep: number): { from: number; to: number } {
    const { spec } = this.init;
    const { count } = this.schedule.round(round);
    if (spec.strategy.kind === 'tpu') return stepRows(count, replica, localStep, spec);
    const rows = replicaRows(count, spec.replicas, replica);
    const { from, to } = replicaRows(rows.to - rows.from, this.localSteps(round), localStep);
    return { from: rows.from + from, to: rows.from + to };
  }

  /** Examples of (round, replica, local step). */
  count(round: number, replica: number, localStep = 0): number {
    const { from, to } = this.part(round, replica, localStep);
    return to - from;
  }

  /** Row ranges, relative to the first row of the local step. */
  microBatches(round: number, replica: number, localStep = 0): { from: number; to: number }[] {
    return microBatches({ from: 0, to: this.count(round, replica, localStep) }, this.init.spec.strategy.accumulate);
  }

  /** Indices into the training split, in order. */
  rows(round: number, replica: number, localStep = 0): Int32Array {
    const { spec, examples } = this.init;
    const { epoch, first } = this.schedule.round(round);
    const { from, to } = this.part(round, replica, localStep);
    if (spec.shuffle === false) return Int32Array.from({ length: to - from }, (_, i) => this.heldOut.trainingRow(first + from + i));
    if (this.permutation?.epoch !== epoch) this.permutation = { epoch, of: new Permutation(spec.seed, epoch, examples) };
    const rows = new Int32Array(to - from);
    for (let i = 0; i < rows.length; i++) rows[i] = this.heldOut.trainingRow(this.permutation.of.at(first + from + i));
    return rows;
  }

  /** Indices of held-out examples into the training split. */
  heldOutRows(from: number, to: number): Int32Array {
    return this.heldOut.rows.slice(from, to);
  }

  /** The augmentation of an example depends on the epoch, not on its round or replica. */
  augment(round: number, rows: Int32Array, { inputs }: RowBuffers): void {
    if (!this.augmenter) return;
    const { epoch } = this.schedule.round(round);
    const length = fieldLength(this.format.inputs[0]!);
    for (const [i, row] of rows.entries()) {
      const stream = new CounterStream(streamKey('augmentation', this.init.spec.seed, epoch, row));
      this.augmenter.apply(inputs[0]!.subarray(i * length, (i + 1) * length), stream);
    }
  }
}

/** Gathers the rows of a replica step, or of one of its local steps, and augments them. `into` holds `maxExamples`. @throws DatasetError */
export async function fillBatch(
  plan: BatchPlan,
  split: RowSplit,
  { round, replica, localStep = 0 }: { readonly round: number; readonly replica: number; readonly localStep?: number },
  into: RowBuffers,
): Promise<void> {
  const rows = plan.rows(round, replica, localStep);
  await split.gather(rows, 0, rows.length, into);
  plan.augment(round, rows, into);
}
