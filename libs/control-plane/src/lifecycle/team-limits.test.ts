import { expect, test } from 'vitest';
import { DEFAULT_TEAM_LIMITS, exceeded, limitsOf, seatRoom, type TeamLimits } from './team-limits.js';

const none: TeamLimits = { activeRuns: null, serverPlaces: null, workers: null, parameters: null, datasetBytes: null };
const asked = { activeRuns: 1, serverPlaces: 2, parameters: 1000 };

test('a limit of the team counts before the default, also where it is the larger one', () => {
  expect(limitsOf(none, DEFAULT_TEAM_LIMITS).activeRuns).toBe(200);
  expect(limitsOf({ ...none, activeRuns: 500, workers: 0 }, DEFAULT_TEAM_LIMITS)).toMatchObject({ activeRuns: 500, workers: 0 });
});

test.each<[Partial<TeamLimits>, { activeRuns: number; parameters: number }, object | undefined]>([
  [{}, { activeRuns: 10_000, parameters: 1e12 }, undefined],
  [{ activeRuns: 3 }, { activeRuns: 2, parameters: 0 }, undefined],
  [{ activeRuns: 3 }, { activeRuns: 3, parameters: 0 }, { limit: 'activeRuns', most: 3, used: 3, asked: 1 }],
  [{ parameters: 5000 }, { activeRuns: 1, parameters: 4001 }, { limit: 'parameters', most: 5000, used: 4001, asked: 1000 }],
  [{ serverPlaces: 1 }, { activeRuns: 0, parameters: 0 }, { limit: 'serverPlaces', most: 1, used: 0, asked: 2 }],
  [{ workers: 0 }, { activeRuns: 0, parameters: 0 }, { limit: 'workers', most: 0, used: 0, asked: 1 }],
])('%j with %j in use', (limits, used, refusal) => {
  const found = exceeded({ ...none, ...limits }, used, asked);
  if (!refusal) return expect(found).toBeUndefined();
  expect(found).toMatchObject(refusal);
  expect(found!.message).toMatch(
    /^The team's limit is \d+ .*: (\d+ are in use and \d+ more (is|are) asked for\. Cancel runs|this run alone needs \d+\. Ask )/,
  );
});

test('a run that is larger than the limit by itself is told to ask for less, not to wait', () => {
  const found = exceeded({ ...none, serverPlaces: 2 }, { activeRuns: 0, parameters: 0 }, { ...asked, serverPlaces: 3 });
  expect(found!.message).toBe(
    "The team's limit is 2 places of parameter servers: this run alone needs 3. Ask for fewer (strategy.servers, strategy.standby), or ask the administrator for a larger limit (setTeamLimits).",
  );
});

test('a run that counts already asks for no more, also where the limit is smaller by now', () => {
  const counted = { activeRuns: 0, serverPlaces: 2, parameters: 0 };
  expect(exceeded({ ...none, activeRuns: 1, parameters: 10 }, { activeRuns: 3, parameters: 4000 }, counted)).toBeUndefined();
  expect(exceeded({ ...none, serverPlaces: 1 }, { activeRuns: 3, parameters: 0 }, counted)).toMatchObject({ limit: 'serverPlaces' });
});

test('the workers of a team are shared by its runs, and all together are no more than its limit', () => {
  const run = (runId: string, held: number, wanted: number) => ({ runId, held, wanted });
  expect([...seatRoom([run('a', 0, 4), run('b', 0, 1), run('c', 0, 4)], 4).values()]).toEqual([2, 1, 1]);
  expect([...seatRoom([run('a', 3, 4), run('b', 0, 4)], 4).values()]).toEqual([3, 1]);
  // A limit that became smaller takes no seat away.
  expect([...seatRoom([run('a', 3, 4), run('b', 0, 4)], 2).values()]).toEqual([3, 0]);
  expect([...seatRoom([run('a', 0, 2)], 1_000_000).values()]).toEqual([2]);
});
