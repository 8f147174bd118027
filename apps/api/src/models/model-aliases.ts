/** Aliases of trained models: a small table per team. */
import { Injectable } from '@nestjs/common';
import { MODEL_ALIAS } from '@paceline/spec';
import { Database } from '../database/database.js';
import { InvalidInput, NotFound } from '../graphql/result.types.js';
import { readWholeLineage } from '../runs/stored-lineage.js';
import type { Viewer } from '../teams/authentication.js';
import { isUuid } from '../text-input.js';
import { ModelAlias } from './model-alias.types.js';
import { PinnedCheckpoints } from '../runs/pinned-checkpoints.js';

const MAX_PER_TEAM = 1000;
const ROUND_MAX = 2 ** 31 - 1;

@Injectable()
export class ModelAliases {
  constructor(
    private readonly database: Database,
    private readonly pinned: PinnedCheckpoints,
  ) {}

  async list({ teamId }: Viewer, name?: string | null): Promise<ModelAlias[]> {
    if (name && !MODEL_ALIAS.test(name)) return []; // no alias has such a name, and PostgreSQL does not take all of them
    const where = name ? { teamId, name } : { teamId };
    return (await this.database.modelAlias.findMany({ where, orderBy: { name: 'asc' }, take: MAX_PER_TEAM })).map(toAlias);
  }

  /** The same request again changes nothing. */
  async set({ teamId }: Viewer, name: string, runId: string, round: number | null): Promise<ModelAlias | InvalidInput | NotFound> {
    if (!MODEL_ALIAS.test(name))
      return new InvalidInput([{ path: 'name', message: 'must be two names with a colon between, such as flowers:best' }]);
    if (round !== null && (round < 0 || round > ROUND_MAX))
      return new InvalidInput([{ path: 'round', message: 'must be the committed rounds of a checkpoint' }]);
    const run = isUuid(runId) ? await this.database.run.findFirst({ where: { id: runId, teamId }, select: { attempt: true } }) : null;
    if (!run) return new NotFound('run with this id');
    if (round !== null && !(await this.isUsable(runId, run.attempt, round)))
      return new NotFound(`usable checkpoint of round ${round} of this run`);
    const known = await this.database.modelAlias.count({ where: { teamId, name: { not: name } } });
    if (known >= MAX_PER_TEAM) return new InvalidInput([{ path: 'name', message: `the team has ${MAX_PER_TEAM} aliases already` }]);
    const row = await this.database.modelAlias.upsert({
      where: { teamId_name: { teamId, name } },
      create: { teamId, name, runId, round },
      update: { runId, round },
    });
    await this.pinned.tell(runId);
    return toAlias(row);
  }

  /** Kept, whole, and of the weights that the run has now: a restore may have left others behind. */
  private async isUsable(runId: string, attempt: number, round: number): Promise<boolean> {
    const where = { runId, round, invalidAt: null, removedAt: null };
    const [rows, lineage] = await Promise.all([
      this.database.checkpoint.findMany({ where, select: { attempt: true } }),
      readWholeLineage(this.database, runId, attempt),
    ]);
    return rows.some((row) => lineage.some((part) => part.attempt === row.attempt && round <= part.toRound));
  }

  async remove({ teamId }: Viewer, name: string): Promise<NotFound | undefined> {
    const { count } = MODEL_ALIAS.test(name) ? await this.database.modelAlias.deleteMany({ where: { teamId, name } }) : { count: 0 };
    return count === 0 ? new NotFound('alias of this name') : undefined;
  }
}

const toAlias = ({ name, runId, round, updatedAt }: ModelAlias): ModelAlias =>
  Object.assign(new ModelAlias(), { name, runId, round, updatedAt });
