/**
 * The run that is placed next: the places of all parameter servers (and, for runs whose workers hold the shards, all workers, one place each) are shared by teams, not by runs. Only runs that have a place are sent to the
 * placement queue; all others wait in PostgreSQL, where their order can change.
 *
 *     waiting runs ─ the team that holds fewest places, then the oldest run ─> offered, as long as places are free
 *                                                                         └─> waits: for a place, for the team's limit, for its share
 *
 * | rule | what it prevents |
 * |---|---|
 * | the next free place goes to the team that holds fewest | a team with sixty waiting runs keeps the first run of another waiting |
 * | with several teams, one takes at most a share (¾) of the places that the others leave, and one at least | runs that never end hold all places |
 * | a team has at most as many places as its limit says | |
 * | a run for which too few places are free lets others pass for a minute; then places that become free are kept for it | small runs keep a large one waiting for ever |
 *
 * Reasons for these rules, and what was left out, are in docs/decisions/023-fair-share.md.
 */

/** Runs that one server process holds at a time, each with one place. */
export const PLACES_PER_SERVER = 16;
/** The share that one team may take of the places that other teams leave. */
export const DEFAULT_TEAM_SHARE = 0.75;
/** A run that needs more places than are free lets others pass for so long. */
export const KEEPS_PLACES_AFTER_MS = 60_000;

/** A run with a live attempt. */
export interface PlacedRun {
  readonly runId: string;
  readonly teamId: string;
  /** One on each of so many server processes. */
  readonly places: number;
  /** It has its places: they are offered, taken, or in use. */
  readonly isHolding: boolean;
  readonly createdAtMs: number;
  /** Since when its attempt waits. */
  readonly waitsSinceMs: number;
}

export interface Sharing {
  /** Processes that have places: servers, or workers. */
  readonly liveServers: number;
  /** Runs that one of them holds at a time. Left out: `PLACES_PER_SERVER`. */
  readonly placesPerProcess?: number;
  /** Teams that there are, with and without runs. */
  readonly teams: number;
  /** In (0, 1]. */
  readonly teamShare: number;
  /** Places that a team may hold, where that is limited. */
  readonly limits: ReadonlyMap<string, number>;
}

/** Why a run has no place yet. */
export interface PlaceWait {
  /** Waiting runs that are placed before it, of all teams; with `limit` and `share` those of its own team. */
  readonly ahead: number;
  readonly places: number;
  readonly held: number;
  readonly heldByOwnTeam: number;
  readonly why: 'places' | 'limit' | 'share';
  /** Places that its team may hold, with `limit` and `share`. */
  readonly most: number;
}

export interface FairShares {
  /** Runs that are to be sent now. */
  readonly offered: readonly string[];
  readonly waiting: ReadonlyMap<string, PlaceWait>;
}

interface Team {
  readonly id: string;
  held: number;
  /** Runs that wait, oldest first. */
  readonly queue: PlacedRun[];
  blockedBy: 'limit' | 'share' | undefined;
  most: number;
}

export function fairShares(runs: readonly PlacedRun[], sharing: Sharing, now: number): FairShares {
  const places = sharing.liveServers * (sharing.placesPerProcess ?? PLACES_PER_SERVER);
  // A run that needs more processes than there are waits for those, and keeps nobody waiting.
  const inLine = runs.filter((run) => !run.isHolding && run.places <= sharing.liveServers);
  const offered = offer(teamsOf(runs, inLine), sharing, places, now);
  const placed = new Set(offered);
  const withPlaces = runs.map((run) => (placed.has(run.runId) ? { ...run, isHolding: true } : run));
  const left = inLine.filter(({ runId }) => !placed.has(runId));
  return { offered, waiting: left.length === 0 ? new Map() : waitsOf(withPlaces, left, sharing, places) };
}

function teamsOf(runs: readonly PlacedRun[], inLine: readonly PlacedRun[]): Team[] {
  const teams = new Map<string, Team>();
  const team = (id: string): Team => {
    let found = teams.get(id);
    if (!found) teams.set(id, (found = { id, held: 0, queue: [], blockedBy: undefined, most: Infinity }));
    return found;
  };
  for (const { teamId, places, isHolding } of runs) if (isHolding) team(teamId).held += places;
  const byAge = [...inLine].sort((a, b) => a.createdAtMs - b.createdAtMs || (a.runId < b.runId ? -1 : 1));
  for (const run of byAge) team(run.teamId).queue.push(run);
  return [...teams.values()];
}

/** The team whose turn it is: that which holds fewest places, then that with the oldest run. */
function nextTeam(teams: readonly Team[]): Team | undefined {
  let next: Team | undefined;
  for (const team of teams) {
    if (team.queue.length === 0 || team.blockedBy) continue;
    if (!next || team.held < next.held || (team.held === next.held && isOlder(team.queue[0]!, next.queue[0]!))) next = team;
  }
  return next;
}

const isOlder = (a: PlacedRun, b: PlacedRun): boolean =>
  a.createdAtMs < b.createdAtMs || (a.createdAtMs === b.createdAtMs && a.runId < b.runId);

function offer(teams: readonly Team[], sharing: Sharing, places: number, now: number): string[] {
  const offered: string[] = [];
  let held = teams.reduce((sum, team) => sum + team.held, 0);
  for (let team = nextTeam(teams); team && held < places; team = nextTeam(teams)) {
    const run = team.queue.shift()!;
    if (blocks(team, run.places, sharing, places, held)) continue;
    if (held + run.places > places) {
      if (now - run.waitsSinceMs > KEEPS_PLACES_AFTER_MS) break;
      continue;
    }
    offered.push(run.runId);
    team.held += run.places;
    held += run.places;
  }
  return offered;
}

/** Whether the team may not hold so many more; notes why. */
function blocks(team: Team, more: number, { limits, teams, teamShare }: Sharing, places: number, held: number): boolean {
  const limit = limits.get(team.id) ?? Infinity;
  const leftByOthers = places - (held - team.held);
  const share = teams > 1 && teamShare < 1 ? Math.floor(teamShare * leftByOthers) : Infinity;
  if (team.held + more > limit) [team.blockedBy, team.most] = ['limit', limit];
  // The first run of a team is never too large for its share.
  else if (team.held > 0 && team.held + more > share) [team.blockedBy, team.most] = ['share', share];
  return team.blockedBy !== undefined;
}

/** What is said of those that are left: the order in which they would be placed if places became free one after the other. */
function waitsOf(runs: readonly PlacedRun[], left: readonly PlacedRun[], sharing: Sharing, places: number): Map<string, PlaceWait> {
  const waits = new Map<string, PlaceWait>();
  const teams = teamsOf(runs, left);
  const held = teams.reduce((sum, team) => sum + team.held, 0);
  const present = new Map(teams.map(({ id, held: own }) => [id, own]));
  for (const team of teams) {
    const [first] = team.queue;
    if (!first || !blocks(team, first.places, sharing, places, held)) continue;
    for (const [ahead, { runId }] of team.queue.entries())
      waits.set(runId, { ahead, places, held, heldByOwnTeam: team.held, why: team.blockedBy!, most: team.most });
  }
  let ahead = 0;
  for (let team = nextTeam(teams); team; team = nextTeam(teams)) {
    const { runId, places: more } = team.queue.shift()!;
    waits.set(runId, { ahead: ahead++, places, held, heldByOwnTeam: present.get(team.id)!, why: 'places', most: Infinity });
    team.held += more;
  }
  return waits;
}
