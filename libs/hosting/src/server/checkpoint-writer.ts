/**
 * Writes this server's part of a checkpoint in the background, one at a time: a newer checkpoint gives up an older one that is not
 * written yet. The coordinator hears of the file, or of why there is none.
 */
import type { GatheredResiduals } from '@paceline/exchange';
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
  tell(message: Message): void;
}

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
    const { checkpoints, runId, attempt, index, servers, needsResiduals, tell } = this.options;
    const { generation, abandoned } = snapshot;
    const missing = new Set<number>();
    const tensors = [...snapshot.tensors(), ...(residuals ? residualTensors(residuals, missing) : [])];
    try {
      const id = { runId, attempt, round: generation };
      const file = await checkpoints.writeShard(id, index, tensors, { servers, signal: abandoned.signal });
      const lacks = residuals ? { missing: [...missing] } : {};
      if (abandoned.signal.aborted) return;
      if (needsResiduals && missing.size > 0) tell(withoutEstimates(generation, missing));
      else tell({ type: 'part-written', generation, file, ...lacks });
    } catch (error) {
      if (this.present !== snapshot) return; // superseded: nobody waits for it
      const cause = (abandoned.signal.reason ?? error) as Error;
      const code = cause instanceof StorageError ? cause.code : cause.name;
      tell({ type: 'part-failed', generation, code: code.slice(0, 100), message: cause.message.slice(0, 2000) });
    } finally {
      snapshot.abandon(); // what is written is let go already
      if (this.present === snapshot) this.present = undefined;
    }
  }
}

const withoutEstimates = (generation: number, missing: ReadonlySet<number>): Message => ({
  type: 'part-failed',
  generation,
  code: 'CHECKPOINT_INCOMPLETE',
  message: `the estimates (EF21) of ${missing.size} replicas were lost with their workers before they were written`,
});
