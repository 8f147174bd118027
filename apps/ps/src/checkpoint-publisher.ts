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

export class CheckpointPublisher {
  private readonly lineage: Manifest['lineage'];

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

  /** Removes what the run does not want to keep. @throws StorageError */
  async sweep(): Promise<void> {
    const { checkpoints, job } = this.options;
    const { keepLast, keepBest } = job.spec.checkpoint;
    const parents = this.lineage.map(({ runId, ...rest }) => (runId === undefined ? rest : { ...rest, runId }));
    await checkpoints.sweep(job.runId, { keepLast, keepBest, lineage: { attempt: job.attempt, parents } });
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
