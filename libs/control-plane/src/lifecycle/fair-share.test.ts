import { describe, expect, test } from 'vitest';
import { DEFAULT_TEAM_SHARE, fairShares, KEEPS_PLACES_AFTER_MS, PLACES_PER_SERVER, type PlacedRun, type Sharing } from './fair-share.js';

const sharing = (changes: Partial<Sharing> = {}): Sharing => ({
  liveServers: 1,
  teams: 2,
  teamShare: DEFAULT_TEAM_SHARE,
  limits: new Map(),
  ...changes,
});
let order = 0;
const run = (teamId: string, changes: Partial<PlacedRun> = {}): PlacedRun => ({
  runId: `${teamId}${String(++order).padStart(4, '0')}`,
  teamId,
  places: 1,
  isHolding: false,
  createdAtMs: order,
  waitsSinceMs: 0,
  ...changes,
});
const many = (count: number, teamId: string, changes: Partial<PlacedRun> = {}) => Array.from({ length: count }, () => run(teamId, changes));
const placed = (runs: readonly PlacedRun[], offered: readonly string[]) =>
  runs.map((each) => (offered.includes(each.runId) ? { ...each, isHolding: true } : each));

describe('the places of servers', () => {
  test('a team with sixty waiting runs keeps another team’s first run waiting for no longer than the next free place', () => {
    const greedy = [...many(16, 'b', { isHolding: true }), ...many(44, 'b')];
    const small = run('a');
    const full = fairShares([...greedy, small], sharing(), 0);
    expect(full.offered).toEqual([]);
    expect(full.waiting.get(small.runId)).toMatchObject({ why: 'places', ahead: 0, held: 16, places: 16, heldByOwnTeam: 0 });
    const oneFree = fairShares([...greedy.slice(1), small], sharing(), 0);
    expect(oneFree.offered).toEqual([small.runId]);
  });

  test('one team alone has all places; with others it takes three quarters of those that they leave', () => {
    const runs = many(60, 'b');
    expect(fairShares(runs, sharing({ teams: 1 }), 0).offered).toHaveLength(16);
    const first = fairShares(runs, sharing(), 0);
    expect(first.offered).toHaveLength(12);
    expect(first.waiting.get(runs[12]!.runId)).toMatchObject({ why: 'share', most: 12, heldByOwnTeam: 12, ahead: 0 });
    // Runs that never end leave room for the second and the third team.
    const second = placed([...runs, ...many(10, 'c')], first.offered);
    const withSecond = fairShares(second, sharing({ teams: 3 }), 0);
    expect(withSecond.offered).toHaveLength(3);
    const third = placed([...second, ...many(10, 'd')], withSecond.offered);
    expect(fairShares(third, sharing({ teams: 4 }), 0).offered).toHaveLength(1);
  });

  test('the oldest run of the team that holds fewest comes next, whatever the others were created before', () => {
    const old = many(20, 'b');
    const young = many(20, 'c');
    const { offered } = fairShares([...old, ...young], sharing(), 0);
    const inTurn = Array.from({ length: 8 }, (_, i) => [old[i]!.runId, young[i]!.runId]).flat();
    // The last three stay free for a third team.
    expect(offered).toEqual(inTurn.slice(0, 13));
    expect(fairShares([...old, ...young], sharing({ teamShare: 1 }), 0).offered).toEqual(inTurn);
  });

  test('a team waits for its own limit, and others pass', () => {
    const limits = new Map([['b', 2]]);
    const runs = [...many(5, 'b'), ...many(3, 'c')];
    const { offered, waiting } = fairShares(runs, sharing({ limits }), 0);
    expect(offered.filter((id) => id.startsWith('b'))).toHaveLength(2);
    expect(offered.filter((id) => id.startsWith('c'))).toHaveLength(3);
    expect(waiting.get(runs[3]!.runId)).toMatchObject({ why: 'limit', most: 2, ahead: 1 });
  });

  test('a run for which too few places are free lets others pass for a minute, then places are kept for it', () => {
    const busy = many(2 * PLACES_PER_SERVER - 1, 'b', { isHolding: true });
    const large = run('c', { places: 2 });
    const others = many(3, 'd');
    const at = (now: number) => fairShares([...busy, large, ...others], sharing({ liveServers: 2, teams: 3 }), now).offered;
    expect(at(KEEPS_PLACES_AFTER_MS)).toEqual([others[0]!.runId]);
    expect(at(KEEPS_PLACES_AFTER_MS + 1)).toEqual([]);
    const free = fairShares([...busy.slice(1), large, ...others], sharing({ liveServers: 2, teams: 3 }), KEEPS_PLACES_AFTER_MS + 1);
    expect(free.offered).toEqual([large.runId]);
  });

  test('a run that needs more servers than there are keeps nobody waiting', () => {
    const large = run('c', { places: 3 });
    const small = run('c');
    const { offered, waiting } = fairShares([large, small], sharing({ liveServers: 2 }), KEEPS_PLACES_AFTER_MS * 10);
    expect(offered).toEqual([small.runId]);
    expect(waiting.size).toBe(0);
  });

  test('the first run of a team is never too large for its share', () => {
    const runs = [...many(12, 'b', { isHolding: true }), run('c', { places: 1 })];
    expect(fairShares(runs, sharing({ teamShare: 0.1 }), 0).offered).toHaveLength(1);
  });
});

test('runs whose workers hold the shards are placed as a whole, so that no two of them wait for each other', () => {
  const gang = (runId: string, places: number, createdAtMs: number): PlacedRun => ({
    runId,
    teamId: 'a',
    places,
    isHolding: false,
    createdAtMs,
    waitsSinceMs: createdAtMs,
  });
  const workers = sharing({ liveServers: 3, placesPerProcess: 1, teamShare: 1 });
  const { offered, waiting } = fairShares([gang('first', 2, 0), gang('second', 2, 1), gang('small', 1, 2)], workers, 1_000);
  expect(offered).toEqual(['first', 'small']);
  expect(waiting.get('second')).toMatchObject({ why: 'places', places: 3, held: 3 });
});
