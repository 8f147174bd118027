/** The checkpoint of another run that a new run begins with: whether it is there, what the new spec takes over, and whether its weights fit. */
import { lineageOf, originOf, type RestorePoint } from '@paceline/control-plane';
import {
  inheritedLength,
  inheritSpec,
  isRateOver,
  optimizerIssues,
  unpinDecay,
  variableIssues,
  type ModelDescription,
  type RoundGrid,
  type RunSpec,
  type SpecIssue,
} from '@paceline/spec';
import type { Database } from '../database/database.js';
import { InvalidInput, NotFound } from '../graphql/result.types.js';
import type { Viewer } from '../teams/authentication.js';
import { isUuid } from '../text-input.js';
import { specOf } from './run-row.js';

export interface ResumeFrom {
  readonly runId: string;
  /** Committed rounds of the checkpoint; the newest usable one by default. */
  readonly round?: number | null | undefined;
}

/** A checkpoint that is there, and the run that wrote it. */
export interface ResumePoint {
  readonly point: RestorePoint;
  readonly source: RunSpec;
  readonly model: ModelDescription;
}

/** @returns why there is none */
export async function findResumePoint(
  database: Database,
  viewer: Viewer,
  { runId, round }: ResumeFrom,
): Promise<ResumePoint | NotFound | InvalidInput> {
  const isGiven = round !== undefined && round !== null;
  if (isGiven && (round < 0 || round > 2 ** 31 - 1))
    return new InvalidInput([{ path: 'resumeFrom.round', message: 'must be the committed rounds of a checkpoint' }]);
  const origin = isUuid(runId)
    ? await database.run.findFirst({ where: { id: runId, teamId: viewer.teamId }, include: { attempts: true } })
    : null;
  if (!origin) return new NotFound('run with this id to resume from');
  const lineage = lineageOf(origin.attempts.map(originOf), origin.attempt);
  const rows = await database.checkpoint.findMany({
    where: { runId, invalidAt: null, removedAt: null, ...(isGiven ? { round } : {}) },
    orderBy: [{ round: 'desc' }, { attempt: 'desc' }],
  });
  const found = rows.find((row) => lineage.some((part) => part.attempt === row.attempt && row.round <= part.toRound));
  if (!found) return new NotFound(`usable checkpoint ${isGiven ? `of round ${round} ` : ''}in the run to resume from`);
  return {
    point: { runId, attempt: found.attempt, round: found.round },
    source: unpinned(specOf(origin), origin),
    model: origin.model as unknown as ModelDescription,
  };
}

/** The source's decay to the end of the run becomes one to the end of the new run. */
function unpinned(spec: RunSpec, { roundsPerEpoch, totalRounds }: { roundsPerEpoch: bigint; totalRounds: bigint }): RunSpec {
  const learningRate = unpinDecay(spec.learningRate, {
    globalBatch: spec.globalBatch,
    roundsPerEpoch: Number(roundsPerEpoch),
    totalRounds: Number(totalRounds),
  });
  return learningRate ? Object.assign({}, spec, { learningRate }) : spec;
}

/** What the request says over the spec of the source. */
export const inheritedFrom = ({ source }: ResumePoint, given: unknown): unknown => inheritSpec(source, given);

const saysLength = (given: unknown): boolean => given !== null && typeof given === 'object' && 'length' in given;

/** The spec with the length that the request gives it, or that follows from the source. */
export function lengthened({ source, point }: ResumePoint, given: unknown, spec: RunSpec, grid: RoundGrid): RunSpec {
  if (saysLength(given) || grid.roundsPerEpoch === 0) return spec;
  return { ...spec, length: inheritedLength(source, point.round, grid) };
}

/** What can be said without building the model. */
export function resumeIssues(
  { source, point }: ResumePoint,
  spec: RunSpec,
  length: { readonly roundsPerEpoch: number; readonly totalRounds: number },
): SpecIssue[] {
  const { totalRounds } = length;
  const issues = optimizerIssues(source, spec, point.runId);
  if (point.round >= totalRounds)
    issues.push({
      path: 'length',
      message: `the checkpoint has ${point.round} committed rounds, and the run is to have ${totalRounds} in all, those included: ask for more`,
    });
  else if (isRateOver(spec.learningRate, Object.assign({ globalBatch: spec.globalBatch }, length), point.round))
    issues.push({
      path: 'learningRate.decayRounds',
      message: `the decay is over at round ${point.round}: the rate of every round to come is 0, and nothing would be learned; give a longer decay, an endFactor or another schedule`,
    });
  return issues;
}

export const modelIssues = ({ model, point }: ResumePoint, spec: RunSpec, described: ModelDescription): SpecIssue[] =>
  variableIssues(model.variables, described.variables, spec, point.runId);
