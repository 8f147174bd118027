/** What a run that trains costs an api, in statements to PostgreSQL, and the page that shows it. */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ScriptedFleet } from './scripted-fleet.js';
import { ControlPlane } from './services.js';
import { statementsOf, statementsOfTicks } from './statements.js';

let plane: ControlPlane;
let fleet: ScriptedFleet;
let id: string;
beforeAll(async () => {
  plane = await ControlPlane.start();
  fleet = await new ScriptedFleet(plane.redis.url).ready();
  ({ id } = await fleet.training(plane));
});
afterAll(async () => {
  await fleet?.stop();
  await plane?.stop();
});

const OF_DASHBOARD = new URL('../../apps/dashboard/src/graphql/operations.graphql', import.meta.url);
/** What the page of a run asks every second. */
const PAGE = readFileSync(OF_DASHBOARD, 'utf8')
  .split(/^(?=(?:query|mutation|subscription|fragment) )/mu)
  .filter((text) => /^(?:query Run\(|fragment Progress )/.test(text))
  .join('');
/** And not of the dispatcher, which goes on meanwhile. */
const OF_PAGE =
  /"public"\.|^SELECT found|"(ApiKey|RunServer|RunEvent|LedgerRange|RunStatusChange)"|^SELECT "id", "(spec|teamId)"|^SELECT run\."id", CASE/;

// Beside those of an idle api its reports are stored, and jobs that wait are looked at.
it('a run that trains costs no more statements a tick: one for jobs, and one for the runs', async () => {
  const { seen, most } = await statementsOfTicks(plane.api, 2, 7);
  expect(seen.length, seen.join('\n')).toBeLessThanOrEqual(most);
});

it('the page of a run asks eleven statements, none of them by way of Prisma', async () => {
  const ask = () => plane.admin.gql(PAGE, { id });
  const { data, errors } = await ask(); // which also notes that the key was used
  expect(errors).toBeUndefined();
  expect(data.run).toMatchObject({ id, status: 'RUNNING', staleness: [], servers: [{ role: 'PRIMARY' }] });
  const seen = (await statementsOf(ask)).filter((text) => OF_PAGE.test(text) && !text.startsWith('SELECT COUNT'));
  expect(seen.length, seen.join('\n')).toBeLessThanOrEqual(11);
  expect(seen.filter((text) => text.includes('"public".'))).toEqual([]);
});
