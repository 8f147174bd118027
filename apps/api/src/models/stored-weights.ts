/** The weights of a run as one stream in the order of the layout: from its result, or from a checkpoint of a round. */
import { open } from 'node:fs/promises';
import { Injectable } from '@nestjs/common';
import { createLayout } from '@paceline/learning';
import { lineageOf, originOf } from '@paceline/control-plane';
import type { Bytes } from '@paceline/models';
import type { ModelDescription } from '@paceline/spec';
import { Checkpoints, safetensorsHeaderBytes, StorageError } from '@paceline/storage';
import { Database } from '../database/database.js';
import { NotFound } from '../graphql/result.types.js';
import { resultOf } from '../runs/run-row.js';
import type { Run } from '../runs/run.types.js';
import { Weights } from '../runs/weights.js';
import { CheckpointStore, NO_CHECKPOINT_STORE } from './checkpoint-store.js';

export interface StoredWeights {
  /** Committed rounds that they have. */
  readonly round: number;
  /** They are those of the result, which were evaluated. */
  readonly isResult: boolean;
  /** Mean training loss since the checkpoint before. */
  readonly trainingLoss: number | null;
  /** As the run says; a checkpoint has a hash of each file, which is held to it while it is read. */
  readonly sha256: string | undefined;
  stream(): Bytes;
}

@Injectable()
export class WeightsOfRounds {
  private checkpoints: Checkpoints | undefined;

  constructor(
    private readonly database: Database,
    private readonly store: CheckpointStore,
    private readonly weights: Weights,
  ) {}

  /** @param round of a kept checkpoint; by default the result, or the newest checkpoint of a run that has none */
  async find(run: Run, description: ModelDescription, round: number | undefined): Promise<StoredWeights | NotFound> {
    const result = resultOf(run.row);
    // Where early stopping has restored the best weights, the result is not of the last round.
    const resultRound = result?.weightsRound ?? result?.rounds;
    const isResult = result !== null && run.status === 'SUCCEEDED' && (round === undefined || round === resultRound);
    if (isResult) {
      const file = await this.weights.locate(run);
      if (!(file instanceof NotFound)) {
        const { path } = file;
        return { round: resultRound!, isResult, trainingLoss: null, sha256: result.weightsSha256, stream: () => dataOf(path) };
      }
    }
    const found = await this.checkpoint(run, description, isResult ? resultRound : round);
    if (found instanceof NotFound || !isResult) return found;
    // The checkpoint of that round holds what the result holds.
    return Object.assign({}, found, { isResult, sha256: result.weightsSha256 });
  }

  private async checkpoint(run: Run, description: ModelDescription, round: number | undefined): Promise<StoredWeights | NotFound> {
    const which = round === undefined ? 'usable checkpoint of this run' : `usable checkpoint of round ${round} of this run`;
    const [attempts, rows] = await Promise.all([
      this.database.attempt.findMany({ where: { runId: run.id } }),
      this.database.checkpoint.findMany({
        where: { runId: run.id, invalidAt: null, removedAt: null, ...(round === undefined ? {} : { round }) },
        orderBy: [{ round: 'desc' }, { attempt: 'desc' }],
        take: 1000,
      }),
    ]);
    const lineage = lineageOf(attempts.map(originOf), run.attempt);
    const row = rows.find((one) => lineage.some((part) => part.attempt === one.attempt && one.round <= part.toRound));
    if (!row) return new NotFound(which);
    if (!this.store.isThere) return new NotFound(`checkpoint: ${NO_CHECKPOINT_STORE}`);
    const checkpoints = (this.checkpoints ??= new Checkpoints(this.store.store));
    try {
      const of = { runId: run.id, attempt: row.attempt, round: row.round };
      const reader = await this.store.use(() => checkpoints.open(of));
      const { chunks } = createLayout(description);
      async function* stream(): AsyncGenerator<Uint8Array, void, void> {
        for (const { index } of chunks) yield await reader.tensor(`parameters/${index}`);
      }
      return { round: row.round, isResult: false, trainingLoss: row.loss, sha256: undefined, stream };
    } catch (error) {
      if (error instanceof StorageError && error.code === 'CHECKPOINT_INVALID') return new NotFound(which);
      throw error;
    }
  }
}

/** What lies behind the header of a safetensors file: the variables without gaps, in the order of the layout. */
async function* dataOf(path: string): AsyncGenerator<Uint8Array, void, void> {
  const handle = await open(path, 'r');
  try {
    const { size } = await handle.stat();
    const first = Buffer.alloc(8);
    await handle.read(first, 0, 8, 0);
    const start = 8 + safetensorsHeaderBytes(first, size);
    for await (const piece of handle.createReadStream({ start, autoClose: false })) yield piece as Buffer;
  } finally {
    await handle.close();
  }
}
