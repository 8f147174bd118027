/** The coordinator's part of a checkpoint: the manifest over what all servers have written, then the sweep of older ones. */
import type { CompletedCheckpoint, Journal, PublishedCheckpoint } from '@paceline/exchange';
import { pinsOf, type Pin, type PlacementJob } from '@paceline/control-plane';
import { createOptimizer, layoutHash, type Layout, type Schedule } from '@paceline/learning';
import { appliedByServers, comparableConfig } from '@paceline/spec';
import { configHash, MANIFEST_VERSION, StorageError, type CheckpointId, type Checkpoints, type Manifest } from '@paceline/storage';

export interface CheckpointPublisherOptions {
  readonly checkpoints: Checkpoints;
  readonly job: PlacementJob;
  readonly layout: Layout;
  readonly schedule: Schedule;
  /** The manifest of the checkpoint that the attempt began with. */
  readonly parent: Manifest | undefined;
  /** The journal that reports them to the control plane. */
  readonly journal: Pick<Journal, 'storedNumber' | 'lastNumber' | 'withdraw'>;
  nowMs(): number;
}

/** Replicas of which every server has written what the codec has kept. */
const residualsOf = ({ missing }: Pick<CompletedCheckpoint, 'missing'>, replicas: number): number[] =>
  missing ? Array.from({ length: replicas }, (_, replica) => replica).filter((replica) => !missing.has(replica)) : [];

/** A checkpoint of this attempt that the control plane has been told of, or will be. */
interface Published {
  readonly round: number;
  /** Number of the journal when it was told. */
  readonly toldAs: number;
}

export class CheckpointPublisher {
  private readonly lineage: Manifest['lineage'];
  private published: Published[] = [];
  /** What others need, as the control plane says. */
  pins: readonly Pin[];

  constructor(private readonly options: CheckpointPublisherOptions) {
    const { parent, job } = options;
    this.pins = pinsOf(job.pins);
    const own = parent && { attempt: parent.attempt, round: parent.round, ...(parent.runId === job.runId ? {} : { runId: parent.runId }) };
    this.lineage = own ? [...parent.lineage, own].slice(-1000) : [];
  }

  /** @throws StorageError */
  async publish(checkpoint: CompletedCheckpoint): Promise<PublishedCheckpoint> {
    const { checkpoints } = this.options;
    try {
      const { sha256 } = await checkpoints.publish(this.manifest(checkpoint));
      return this.recordOf(checkpoint, sha256);
    } catch (error) {
      if (!(error instanceof StorageError) || error.code !== 'ALREADY_EXISTS') throw error;
      return this.found(checkpoint.generation);
    }
  }

  /** One that a coordinator before this one has published, perhaps without being heard. @throws StorageError where there is none */
  async found(round: number): Promise<PublishedCheckpoint> {
    const { checkpoints, job } = this.options;
    const { manifest, sha256 } = await checkpoints.open({ runId: job.runId, attempt: job.attempt, round });
    return this.recordOf({ files: manifest.shards, loss: manifest.loss }, sha256);
  }

  private recordOf(checkpoint: Pick<CompletedCheckpoint, 'files' | 'loss'>, sha256: string): PublishedCheckpoint {
    return { bytes: checkpoint.files.reduce((sum, { bytes }) => sum + bytes, 0), sha256, loss: checkpoint.loss };
  }

  /** Where the generation of `round` lies that this attempt descends from, or has written. */
  idOf(round: number): { readonly attempt: number; readonly round: number } {
    const { job } = this.options;
    const own = this.lineage.filter(({ runId }) => runId === undefined || runId === job.runId);
    return { attempt: own.find((part) => round <= part.round)?.attempt ?? job.attempt, round };
  }

  /** The journal tells the control plane of the checkpoint of `round`, with its last entry at the latest; or the coordinator before has told it. */
  told(round: number, toldAs = this.options.journal.lastNumber): void {
    this.published.push({ round, toldAs });
  }

  /**
   * Removes what the run does not want to keep, but never the newest one that the control plane knows, or may know by an entry that was
   * stored and whose acknowledgement has not come: if this process dies now, the next attempt begins there.
   * @throws StorageError
   */
  async sweep(): Promise<void> {
    const { checkpoints, job } = this.options;
    const { keepLast, keepBest } = job.spec.checkpoint;
    const parents = this.lineage.map(({ runId, ...rest }) => (runId === undefined ? rest : { ...rest, runId }));
    const keep = [...(this.known() ? [] : this.lineage.slice(-1)), ...this.pins];
    await checkpoints.sweep(job.runId, { keepLast, keepBest, keep, lineage: { attempt: job.attempt, parents } }, (id) => this.mayGo(id));
  }

  /** The newest checkpoint of this attempt that the control plane knows for certain. */
  private known(): Published | undefined {
    const { storedNumber } = this.options.journal;
    return this.published.filter(({ toldAs }) => toldAs <= storedNumber).at(-1);
  }

  private mayGo({ attempt, round }: CheckpointId): boolean {
    if (attempt !== this.options.job.attempt) return true;
    // Written by a successor, of which this coordinator has not heard.
    if (round > (this.published.at(-1)?.round ?? 0)) return false;
    const told = this.published.find((each) => each.round === round);
    if (!told) return true;
    const { journal } = this.options;
    const known = this.known();
    const isOld = known !== undefined && told.toldAs <= known.toldAs && told !== known;
    // What was not told yet need not be told any more.
    const mayGo = isOld || (told !== known && journal.withdraw('checkpoint.written', (data) => data['round'] === round));
    if (mayGo) this.published = this.published.filter((each) => each !== told);
    return mayGo;
  }

  private manifest(checkpoint: CompletedCheckpoint): Manifest {
    const { job, layout, schedule, nowMs } = this.options;
    const { spec } = job;
    const { epoch, roundInEpoch } = schedule.place(checkpoint.generation);
    const config = comparableConfig(spec);
    const optimizer = createOptimizer(appliedByServers(spec).optimizer);
    return {
      version: MANIFEST_VERSION,
      runId: job.runId,
      attempt: job.attempt,
      round: checkpoint.generation,
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
      sampler: { epoch, roundInEpoch },
      ledger: { examples: checkpoint.ledger.examples, exceptions: [...checkpoint.ledger.exceptions] },
      optimizer: { name: optimizer.name, slots: optimizer.slots.map(({ name }) => name) },
      residuals: residualsOf(checkpoint, spec.replicas),
      loss: checkpoint.loss,
      reason: checkpoint.reason,
      ...(checkpoint.course === undefined ? {} : { course: checkpoint.course }),
      ...(checkpoint.isBest ? { isBest: true } : {}),
      shards: [...checkpoint.files],
    };
  }
}
