/**
 * What one team may have of the fleet at a time. `activeRuns` and `parameters` are refused when a run is created,
 * or extended after its end; `serverPlaces` and `workers` make runs wait (fair-share.ts, seating.ts), and only a run that could never be placed is refused.
 */
export interface TeamLimits {
  /** Runs that are not over. */
  readonly activeRuns: number | null;
  /** Places of parameter servers, standbys among them. */
  readonly serverPlaces: number | null;
  /** Workers in seats. */
  readonly workers: number | null;
  /** Parameters of all runs that are not over. */
  readonly parameters: number | null;
  /** Bytes of prepared datasets, and of files that wait to be imported. */
  readonly datasetBytes: number | null;
}
export type TeamLimit = keyof TeamLimits;

/** The same, in use. */
export type TeamUse = { readonly [limit in TeamLimit]: number };

export const TEAM_LIMITS: readonly TeamLimit[] = ['activeRuns', 'serverPlaces', 'workers', 'parameters', 'datasetBytes'];
export const DEFAULT_TEAM_LIMITS: TeamLimits = {
  activeRuns: 200,
  serverPlaces: null,
  workers: null,
  parameters: null,
  datasetBytes: 200e9,
};

/** Where a team has a limit of its own it counts, also when it is the larger one. */
export const limitsOf = (own: TeamLimits, byDefault: TeamLimits): TeamLimits => ({
  activeRuns: own.activeRuns ?? byDefault.activeRuns,
  serverPlaces: own.serverPlaces ?? byDefault.serverPlaces,
  workers: own.workers ?? byDefault.workers,
  parameters: own.parameters ?? byDefault.parameters,
  datasetBytes: own.datasetBytes ?? byDefault.datasetBytes,
});

export interface LimitExceeded {
  readonly limit: TeamLimit;
  readonly most: number;
  readonly used: number;
  readonly asked: number;
  readonly message: string;
}

/**
 * How many seats each run of a team may hold, all together no more than the team: what it holds stays, and what is free goes to the run
 * that holds fewest, one by one; of those with as many to the first.
 * @param runs in their order
 */
export function seatRoom(
  runs: readonly { readonly runId: string; readonly held: number; readonly wanted: number }[],
  most: number,
): Map<string, number> {
  const room = new Map(runs.map(({ runId, held }) => [runId, held]));
  for (let free = most - runs.reduce((sum, { held }) => sum + held, 0); free > 0; free--) {
    const open = runs.filter(({ runId, wanted }) => room.get(runId)! < wanted);
    if (open.length === 0) break;
    const next = open.reduce((best, run) => (room.get(run.runId)! < room.get(best.runId)! ? run : best));
    room.set(next.runId, room.get(next.runId)! + 1);
  }
  return room;
}

const WHAT: Readonly<Record<TeamLimit, string>> = {
  activeRuns: 'runs that are not over',
  serverPlaces: 'places of parameter servers',
  workers: 'workers',
  parameters: 'parameters in runs that are not over',
  datasetBytes: 'bytes of datasets',
};

const FEWER: Readonly<Record<'serverPlaces' | 'workers', string>> = {
  serverPlaces: 'Ask for fewer (strategy.servers, strategy.standby), or ask the administrator for a larger limit (setTeamLimits).',
  workers: 'Ask for fewer (strategy.workers), or ask the administrator for a larger limit (setTeamLimits).',
};

/**
 * @param asked of a run that is about to be created or to go on, `workers` of one that needs several to begin; `activeRuns` and `parameters` are 0 for one that counts already
 * @returns the first limit that it would pass
 */
export function exceeded(
  limits: TeamLimits,
  used: Pick<TeamUse, 'activeRuns' | 'parameters'>,
  asked: { readonly activeRuns: number; readonly serverPlaces: number; readonly parameters: number; readonly workers?: number },
): LimitExceeded | undefined {
  const refused = (limit: TeamLimit, inUse: number, more: number, why: string): LimitExceeded | undefined => {
    const most = limits[limit];
    if (most === null || more === 0 || inUse + more <= most) return undefined;
    return { limit, most, used: inUse, asked: more, message: `The team's limit is ${most} ${WHAT[limit]}: ${why}` };
  };
  const together = (limit: TeamLimit, inUse: number, more: number) =>
    refused(
      limit,
      inUse,
      more,
      `${inUse} are in use and ${more} more ${more === 1 ? 'is' : 'are'} asked for. Cancel runs or wait, or ask the administrator for a larger limit (setTeamLimits).`,
    );
  // What others hold now passes; a run that is larger than the limit itself would wait for ever.
  const alone = (limit: keyof typeof FEWER, more: number) => refused(limit, 0, more, `this run alone needs ${more}. ${FEWER[limit]}`);
  return (
    together('activeRuns', used.activeRuns, asked.activeRuns) ??
    together('parameters', used.parameters, asked.parameters) ??
    alone('serverPlaces', asked.serverPlaces) ??
    alone('workers', asked.workers ?? 1)
  );
}

/** @param more bytes that are about to be stored @returns why they may not */
export function exceededByBytes(limits: TeamLimits, used: number, more: number): LimitExceeded | undefined {
  const most = limits.datasetBytes;
  if (most === null || used + more <= most) return undefined;
  const message = `The team's limit is ${most} ${WHAT.datasetBytes}: ${used} are in use and ${more} more are asked for. Remove datasets (\`paceline data remove\`), or ask the administrator for a larger limit (setTeamLimits).`;
  return { limit: 'datasetBytes', most, used, asked: more, message };
}
