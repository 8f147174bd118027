/**
 * Writes this server's part of a checkpoint in the background, one at a time: a newer checkpoint gives up an older one that is not
 * written yet. The coordinator hears of the file, or of why there is none.
 */
import type { Clock, GatheredResiduals } from '@paceline/exchange';
import type { Message } from '@paceline/protocol';
import { StorageError, type Checkpoints } from '@paceline/storage';
import { residualTensors } from '../residuals.js';
import type { Snapshot } from './snapshot.js';

export interface CheckpointWriterOptions {
  readonly checkpoints: Checkpoints;
  readonly runId: string;
  readonly attempt: number;
  readonly index: number;
  readonly servers: number;
  /** EF21: without what is kept of all replicas nobody could go on from a checkpoint. */
  readonly needsResiduals: boolean;
  readonly clock: Pick<Clock, 'after'>;
  /** What has not come after this long is written as zeros: a slow link costs the run residuals, and no checkpoint. */
  readonly residualsWithinMs?: number;
  tell(message: Message): void;
}

/** Half of what the coordinator waits for a checkpoint. */
const RESIDUALS_WITHIN_MS = 60_000;

export class CheckpointWriter {
  private present: Snapshot | undefined;
  private residuals: GatheredResiduals | undefined;

  constructor(private readonly options: CheckpointWriterOptions) {}

  /** @param residuals what the codec has kept of replicas, where checkpoints have it */
  start(snapshot: Snapshot, residuals?: GatheredResiduals): void {
    this.abandon();
    this.present = snapshot;
    this.residuals = residuals;
    void this.write(snapshot, residuals);
  }

  /** Gives the checkpoint up that is under way. */
  abandon(): void {
    this.present?.abandon();
    this.present = undefined;
    this.residuals?.abandon();
    this.residuals = undefined;
  }

  private async write(snapshot: Snapshot, residuals: GatheredResiduals | undefined): Promise<void> {
    const { checkpoints, runId, attempt, index, servers, needsResiduals, clock, tell } = this.options;
    const { generation, abandoned } = snapshot;
    const missing = new Set<number>();
    const own = [...snapshot.tensors()];
    const withinMs = this.options.residualsWithinMs ?? RESIDUALS_WITHIN_MS;
    const cancel = residuals && clock.after(withinMs, () => residuals.abandon());
    try {
      const id = { runId, attempt, round: generation };
      const tensors = residuals ? [...own, ...residualTensors(residuals, missing)] : own;
      const file = await checkpoints.writeShard(id, index, tensors, { servers, signal: abandoned.signal });
      const lacks = residuals ? { missing: [...missing] } : {};
      if (abandoned.signal.aborted) return;
      if (needsResiduals && missing.size > 0) tell(withoutEstimates(generation, missing, withinMs));
      // The coordinator knows the names of residuals, which are too many for a message.
      else tell({ type: 'part-written', generation, file: { ...file, tensors: own.map(({ name }) => name) }, ...lacks });
    } catch (error) {
      if (this.present !== snapshot) return; // superseded: nobody waits for it
      const cause = (abandoned.signal.reason ?? error) as Error;
      const code = cause instanceof StorageError ? cause.code : cause.name;
      tell({ type: 'part-failed', generation, code: code.slice(0, 100), message: cause.message.slice(0, 2000) });
    } finally {
      cancel?.();
      snapshot.abandon(); // what is written is let go already
      if (this.present === snapshot) this.present = undefined;
    }
  }
}

const withoutEstimates = (generation: number, missing: ReadonlySet<number>, withinMs: number): Message => ({
  type: 'part-failed',
  generation,
  code: 'CHECKPOINT_INCOMPLETE',
  message: `the estimates (EF21) of ${missing.size} replicas were lost with their workers before they were written, or did not come within ${withinMs / 1000} s`,
});
