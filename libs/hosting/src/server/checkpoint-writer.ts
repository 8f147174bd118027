/**
 * Writes this server's part of a checkpoint in the background, one at a time: a newer checkpoint gives up an older one that is not
 * written yet. The coordinator hears of the file, or of why there is none.
 */
import type { Message } from '@paceline/protocol';
import { StorageError, type Checkpoints } from '@paceline/storage';
import type { Snapshot } from './snapshot.js';

export interface CheckpointWriterOptions {
  readonly checkpoints: Checkpoints;
  readonly runId: string;
  readonly attempt: number;
  readonly index: number;
  readonly servers: number;
  tell(message: Message): void;
}

export class CheckpointWriter {
  private present: Snapshot | undefined;

  constructor(private readonly options: CheckpointWriterOptions) {}

  start(snapshot: Snapshot): void {
    this.abandon();
    this.present = snapshot;
    void this.write(snapshot);
  }

  /** Gives the checkpoint up that is under way. */
  abandon(): void {
    this.present?.abandon();
    this.present = undefined;
  }

  private async write(snapshot: Snapshot): Promise<void> {
    const { checkpoints, runId, attempt, index, servers, tell } = this.options;
    const { generation, abandoned } = snapshot;
    try {
      const file = await checkpoints.writeShard({ runId, attempt, round: generation }, index, snapshot.tensors(), {
        servers,
        signal: abandoned.signal,
      });
      if (!abandoned.signal.aborted) tell({ type: 'part-written', generation, file });
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
