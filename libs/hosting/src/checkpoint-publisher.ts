/** The coordinator's part of a checkpoint: the manifest over what all servers have written, then the sweep of older ones. */
import type { CompletedCut } from '@paceline/exchange';
import type { PlacementJob } from '@paceline/jobs';
import { createOptimizer, layoutHash, type Layout, type Schedule } from '@paceline/learning';
import { comparableConfig } from '@paceline/spec';
import { configHash, MANIFEST_VERSION, type Checkpoints, type Manifest } from '@paceline/storage';

export interface CheckpointPublisherOptions {
  readonly checkpoints: Checkpoints;
  readonly job: PlacementJob;
  readonly layout: Layout;
  readonly schedule: Schedule;
  /** The manifest of the checkpoint that the attempt began with. */
  readonly parent: Manifest | undefined;
  nowMs(): number;
}

/** A checkpoint of this attempt that the control plane may not know yet. */
interface Published {
  readonly round: number;
  /** Number of the journal when it was told. */
  readonly toldAs: number;
}

export class CheckpointPublisher {
  private readonly lineage: Manifest['lineage'];
  private readonly published: Published[] = [];

  constructor(private readonly options: CheckpointPublisherOptions) {
    const { parent, job } = options;
    const own = parent && { attempt: parent.attempt, round: parent.round, ...(parent.runId === job.runId ? {} : { runId: parent.runId }) };
    this.lineage = own ? [...parent.lineage, own].slice(-1000) : [];
  }

  /** @throws StorageError */
  async publish(cut: CompletedCut): Promise<{ bytes: number; sha256: string; loss: number | null }> {
    const { checkpoints } = this.options;
    const { sha256 } = await checkpoints.publish(this.manifest(cut));
    return { bytes: cut.files.reduce((sum, { bytes }) => sum + bytes, 0), sha256, loss: cut.loss };
  }

  /** The checkpoint of `round` was told to the control plane by the journal up to number `toldAs`. */
  told(round: number, toldAs: number): void {
    this.published.push({ round, toldAs });
  }

  /**
   * Removes what the run does not want to keep, but never the newest one that the control plane knows: if this process dies now, the
   * next attempt begins there.
   * @param acknowledged number up to which the control plane has stored the journal
   * @throws StorageError
   */
  async sweep(acknowledged: number): Promise<void> {
    const { checkpoints, job } = this.options;
    const { keepLast, keepBest } = job.spec.checkpoint;
    const parents = this.lineage.map(({ runId, ...rest }) => (runId === undefined ? rest : { ...rest, runId }));
    while (this.published.length > 1 && this.published[1]!.toldAs <= acknowledged) this.published.shift();
    const known = this.published[0];
    const keep = known && known.toldAs <= acknowledged ? [{ attempt: job.attempt, round: known.round }] : this.lineage.slice(-1);
    await checkpoints.sweep(job.runId, { keepLast, keepBest, keep, lineage: { attempt: job.attempt, parents } });
  }

  private manifest(cut: CompletedCut): Manifest {
    const { job, layout, schedule, nowMs } = this.options;
    const { spec } = job;
    const config = comparableConfig(spec);
    const optimizer = createOptimizer(spec.optimizer);
    return {
      version: MANIFEST_VERSION,
      runId: job.runId,
      attempt: job.attempt,
      round: cut.generation,
      lineage: this.lineage,
      createdAtMs: nowMs(),
      servers: job.servers,
      replicas: spec.replicas,
      layoutHash: layoutHash(layout),
      chunks: layout.chunks.length,
      configHash: configHash(spec),
      config: config as Manifest['config'],
      mode: spec.strategy.mode,
      schedule: { totalRounds: schedule.totalRounds, roundsPerEpoch: schedule.roundsPerEpoch },
      sampler: {
        epoch: Math.floor(cut.generation / schedule.roundsPerEpoch),
        roundInEpoch: cut.generation % schedule.roundsPerEpoch,
      },
      ledger: { examples: cut.ledger.examples, exceptions: [...cut.ledger.exceptions] },
      optimizer: { name: optimizer.name, slots: optimizer.slots.map(({ name }) => name) },
      residuals: [],
      loss: cut.loss,
      reason: cut.reason,
      shards: [...cut.files],
    };
  }
}
