/** The checkpoint of another run that a new run begins with: whether it is there, and whether the new spec may go on from it. */
import { lineageOf, originOf, type RestorePoint } from '@paceline/jobs';
import { comparableConfig, configDifferences, type ConfigDifference, type RunSpec, type SpecIssue } from '@paceline/spec';
import type { Database } from '../database/database.js';
import { NotFound } from '../graphql/result.types.js';
import type { Viewer } from '../teams/authentication.js';
import { isUuid } from '../text-input.js';
import { specOf } from './run-row.js';

export interface ResumeFrom {
  readonly runId: string;
  /** Committed rounds of the checkpoint; the newest usable one by default. */
  readonly round?: number | null | undefined;
}

export async function findResumePoint(
  database: Database,
  viewer: Viewer,
  { runId, round }: ResumeFrom,
  spec: RunSpec,
  totalRounds: number,
): Promise<RestorePoint | NotFound | { issues: SpecIssue[] }> {
  const origin = isUuid(runId)
    ? await database.run.findFirst({ where: { id: runId, teamId: viewer.teamId }, include: { attempts: true } })
    : null;
  if (!origin) return new NotFound('run with this id to resume from');
  const lineage = lineageOf(origin.attempts.map(originOf), origin.attempt);
  const rows = await database.checkpoint.findMany({
    where: { runId, invalidAt: null, removedAt: null, ...(round === undefined || round === null ? {} : { round }) },
    orderBy: [{ round: 'desc' }, { attempt: 'desc' }],
  });
  const found = rows.find((row) => lineage.some((part) => part.attempt === row.attempt && row.round <= part.toRound));
  if (!found)
    return new NotFound(`usable checkpoint ${round === undefined || round === null ? '' : `of round ${round} `}in the run to resume from`);
  const issues = configDifferences(comparableConfig(specOf(origin)), comparableConfig(spec)).map(toIssue);
  if (issues.length === 0 && found.round >= totalRounds)
    issues.push({
      path: 'length',
      message: `the checkpoint has ${found.round} committed rounds, and the run is to have ${totalRounds} in all`,
    });
  return issues.length > 0 ? { issues: issues.slice(0, 20) } : { runId, attempt: found.attempt, round: found.round };
}

const toIssue = ({ path, was, is }: ConfigDifference): SpecIssue => ({
  path,
  message: `is ${show(is)}, and the checkpoint was trained with ${show(was)}`,
});

const show = (value: unknown): string => (value === undefined ? 'nothing' : JSON.stringify(value).slice(0, 200));
