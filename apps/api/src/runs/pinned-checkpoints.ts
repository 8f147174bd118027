/**
 * Checkpoints that a run keeps for others, whatever its own spec says: with which another run is to begin that has none of its own yet, and which a name of a
 * model stands for. Its servers hear of them by the control hash, before they remove what the run itself does not need.
 */
import { Inject, Injectable, type OnModuleDestroy } from '@nestjs/common';
import { pinsText, type Pin } from '@paceline/control-plane';
import type { Logger } from '@paceline/runtime';
import { BackgroundDatabase, type Transaction } from '../database/database.js';
import { ControlHashes } from '../dispatch/control-hashes.js';
import { LOGGER } from '../logger.js';

type Reader = Pick<Transaction, '$queryRaw'>;

/** Reads what is pinned of a run. */
export async function pinnedOf(database: Reader, runId: string): Promise<Pin[]> {
  const rows = await database.$queryRaw<{ attempt: number; round: bigint }[]>`
    SELECT began."parentNumber" AS "attempt", began."parentRound" AS "round"
      FROM "Attempt" began JOIN "Run" child ON child."id" = began."runId"
     WHERE began."parentRunId" = ${runId}::uuid AND began."runId" <> ${runId}::uuid
       AND child."status" NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED')
       AND NOT EXISTS (SELECT 1 FROM "Checkpoint" own WHERE own."runId" = child."id" AND own."invalidAt" IS NULL AND own."removedAt" IS NULL)
    UNION
    SELECT kept."attempt", kept."round"::bigint
      FROM "ModelAlias" alias JOIN "Checkpoint" kept ON kept."runId" = alias."runId" AND kept."round" = alias."round"
     WHERE alias."runId" = ${runId}::uuid AND kept."removedAt" IS NULL`;
  return rows.map(({ attempt, round }) => ({ attempt, round: Number(round) }));
}

/** Runs whose servers could not be told yet, and how long after that they are told again. */
const MOST_UNTOLD = 10_000;
const AGAIN_AFTER_MS = 2_000;

@Injectable()
export class PinnedCheckpoints implements OnModuleDestroy {
  private readonly untold = new Set<string>();
  private again: NodeJS.Timeout | undefined;
  private isStopped = false;

  constructor(
    private readonly database: BackgroundDatabase,
    private readonly control: ControlHashes,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  /** Tells the servers of a run. While Redis is away they go on with what they know, and are told when it is back. */
  async tell(runId: string): Promise<void> {
    try {
      await this.control.write(runId, { pins: pinsText(await pinnedOf(this.database, runId)) });
    } catch (error) {
      this.log.warn({ run: runId, err: (error as Error).message }, 'the servers of a run could not be told which checkpoints others need');
      if (this.isStopped) return;
      if (this.untold.size < MOST_UNTOLD) this.untold.add(runId);
      this.again ??= setTimeout(() => void this.tellAgain(), AGAIN_AFTER_MS).unref();
    }
  }

  onModuleDestroy(): void {
    this.isStopped = true;
    clearTimeout(this.again);
    this.untold.clear();
  }

  private async tellAgain(): Promise<void> {
    const runs = [...this.untold];
    this.untold.clear();
    this.again = undefined;
    for (const runId of runs) await this.tell(runId);
  }
}
