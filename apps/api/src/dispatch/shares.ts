/** Reads from PostgreSQL which runs hold places of servers and which wait for one, for `fairShares` (libs/control-plane) to decide about. */
import { Injectable } from '@nestjs/common';
import {
  DEFAULT_TEAM_LIMITS,
  DEFAULT_TEAM_SHARE,
  fairShares,
  hasLiveAttempt,
  RUN_STATUSES,
  seatLimit,
  seatRoom,
  type FairShares,
  workersNeeded,
  type PlacedRun,
} from '@paceline/control-plane';
import { BackgroundDatabase, type Transaction } from '../database/database.js';
import { Settings } from '../environment.js';
import { Fleet, type FleetRole } from '../fleet/fleet.js';
import { shortSpecOf } from '../runs/run-row.js';
import { databaseNow } from '../database/database-clock.js';

export const LIVE_STATUSES = RUN_STATUSES.filter(hasLiveAttempt);
/** The oldest runs that are looked at; all others wait behind them. */
const MAX_RUNS = 5_000;
/** Runs that lose a server together hear of it within seconds of each other. */
const LOST_TOGETHER_S = 60;

export interface HeldPlaces {
  /** Runs that have their places. */
  readonly holding: ReadonlySet<string>;
  /** The attempt of each run that was looked at: one that has begun since holds nothing yet. */
  readonly attempts: ReadonlyMap<string, number>;
}

@Injectable()
export class Shares {
  constructor(
    private readonly database: BackgroundDatabase,
    private readonly fleet: Fleet,
    private readonly settings: Settings,
  ) {}

  /** @throws when PostgreSQL is away */
  async read(): Promise<FairShares & HeldPlaces> {
    const runs = await this.liveRuns();
    const attempts = new Map(runs.map(({ runId, attempt }) => [runId, attempt]));
    if (runs.every(({ isHolding }) => isHolding))
      return { offered: [], waiting: new Map(), holding: new Set(runs.map(({ runId }) => runId)), attempts };
    const [liveServers, liveWorkers, teams, limited] = await Promise.all([
      this.live('server'),
      this.live('worker'),
      this.database.team.count(),
      this.database.team.findMany({
        where: { OR: [{ maxServerPlaces: { not: null } }, { maxWorkers: { not: null } }] },
        select: { id: true, maxServerPlaces: true, maxWorkers: true },
      }),
    ]);
    const { serverPlaces, workers } = this.settings.teamLimits ?? DEFAULT_TEAM_LIMITS;
    const limitsBy = (byDefault: number | null, own: (team: (typeof limited)[number]) => number | null): Map<string, number> => {
      const limits = new Map(byDefault === null ? [] : runs.map(({ teamId }) => [teamId, byDefault]));
      for (const team of limited) if (own(team) !== null) limits.set(team.id, own(team)!);
      return limits;
    };
    const teamShare = this.settings.teamShare ?? DEFAULT_TEAM_SHARE;
    const now = databaseNow();
    // Before the first process is heard of, jobs for one wait in the queue already.
    const onServers = fairShares(
      runs.filter(({ isOnWorkers }) => !isOnWorkers),
      { liveServers: Math.max(1, liveServers), teams, teamShare, limits: limitsBy(serverPlaces, (team) => team.maxServerPlaces) },
      now,
    );
    // A worker holds one run at a time, so their places are few: no share of them is kept for teams that ask for none.
    const onWorkers = fairShares(
      runs.filter(({ isOnWorkers }) => isOnWorkers),
      {
        liveServers: Math.max(1, liveWorkers),
        placesPerProcess: 1,
        teams,
        teamShare: 1,
        limits: limitsBy(workers, (team) => team.maxWorkers),
      },
      now,
    );
    return {
      offered: [...onServers.offered, ...onWorkers.offered],
      waiting: new Map([...onServers.waiting, ...onWorkers.waiting]),
      holding: new Set(runs.flatMap((run) => (run.isHolding ? [run.runId] : []))),
      attempts,
    };
  }

  /** Processes that hold shards. */
  private async live(role: FleetRole): Promise<number> {
    const { fleet } = this;
    return (await fleet.list(role)).filter((row) => fleet.isAlive(row) && fleet.isCompatible(row) && fleet.holdsShards(row)).length;
  }

  /** By a setting of the installation, whatever its row says. */
  get isEveryTeamLimited(): boolean {
    return (this.settings.teamLimits ?? DEFAULT_TEAM_LIMITS).workers !== null;
  }

  /** Seats that each run of a team with a limit may hold. @throws when PostgreSQL is away */
  async seatRoom(): Promise<ReadonlyMap<string, number>> {
    const byDefault = (this.settings.teamLimits ?? DEFAULT_TEAM_LIMITS).workers;
    const limited = byDefault === null ? { team: { maxWorkers: { not: null } } } : {};
    const rows = await this.database.run.findMany({
      where: { status: { in: LIVE_STATUSES }, ...limited },
      select: {
        id: true,
        teamId: true,
        shortSpec: true,
        workersWanted: true,
        team: { select: { maxWorkers: true } },
        _count: { select: { stepTasks: { where: { state: 'HELD' } } } },
      },
      orderBy: { createdAt: 'asc' },
      take: MAX_RUNS,
    });
    const room = new Map<string, number>();
    for (const teamId of new Set(rows.map((row) => row.teamId))) {
      const own = rows.filter((row) => row.teamId === teamId);
      const runs = own.map(({ id, shortSpec, workersWanted, _count }) => {
        const { replicas } = shortSpecOf({ shortSpec });
        return { runId: id, held: _count.stepTasks, wanted: seatLimit({ replicas, workersWanted }) };
      });
      for (const [runId, seats] of seatRoom(runs, own[0]!.team.maxWorkers ?? byDefault!)) room.set(runId, seats);
    }
    return room;
  }

  /** A run holds its places from the moment that the first of its placements is sent. */
  private async liveRuns(): Promise<(PlacedRun & { readonly isOnWorkers: boolean; readonly attempt: number })[]> {
    const rows = await this.database.run.findMany({
      where: { status: { in: LIVE_STATUSES } },
      select: { id: true, teamId: true, attempt: true, serverCount: true, createdAt: true, statusChangedAt: true },
      orderBy: { createdAt: 'asc' },
      take: MAX_RUNS,
    });
    // Read after the runs. In the other order, a run that was made between the two reads had no placements yet, and so seemed to hold its places: it was sent beyond the share of its team.
    const placements = await this.database.outbox.groupBy({
      by: ['runId', 'attempt'],
      where: { kind: 'placement', run: { status: 'QUEUED' } },
      _count: { id: true, sentAt: true },
    });
    const unsent = new Set(placements.flatMap(({ runId, attempt, _count }) => (_count.sentAt === 0 ? [`${runId}/${attempt}`] : [])));
    // Runs without servers have their shards on workers; most runs have servers.
    const onWorkers = rows.filter(({ serverCount }) => serverCount === 0).map(({ id }) => id);
    const specs =
      onWorkers.length === 0
        ? []
        : await this.database.run.findMany({ where: { id: { in: onWorkers } }, select: { id: true, shortSpec: true } });
    const workers = new Map(specs.map((row) => [row.id, workersNeeded(shortSpecOf(row))]));
    return rows.map(({ id, teamId, attempt, serverCount, createdAt, statusChangedAt }) => ({
      runId: id,
      attempt,
      teamId,
      places: workers.get(id) ?? serverCount,
      isOnWorkers: serverCount === 0,
      isHolding: !unsent.has(`${id}/${attempt}`),
      createdAtMs: createdAt.getTime(),
      waitsSinceMs: statusChangedAt.getTime(),
    }));
  }
}

/** Seats that all runs of the team of this run hold. @throws when PostgreSQL is away */
export const seatsOfTeam = (database: Transaction, runId: string): Promise<number> =>
  database.stepTask.count({ where: { state: 'HELD', run: { team: { runs: { some: { id: runId } } }, status: { in: LIVE_STATUSES } } } });

/** Runs that have a part on each of the servers, or lost it with the server just now. @throws when PostgreSQL is away */
export async function runsOn(database: Transaction, serverIds: readonly string[]): Promise<ReadonlyMap<string, number>> {
  if (serverIds.length === 0) return new Map();
  const rows = await database.$queryRaw<{ serverId: string; runs: number }[]>`
    SELECT place."serverId", count(DISTINCT place."runId")::int AS "runs"
      FROM "RunServer" place JOIN "Attempt" attempt ON attempt."runId" = place."runId" AND attempt."number" = place."attempt"
     WHERE place."serverId" = ANY(${[...new Set(serverIds)]}::text[])
       AND (attempt."endedAt" IS NULL OR (attempt."endedAt" > now() - make_interval(secs => ${LOST_TOGETHER_S}) AND attempt."endCause" IN ('SERVER_LOST', 'STOPPED')))
     GROUP BY place."serverId"`;
  return new Map(rows.map(({ serverId, runs }) => [serverId, runs]));
}
