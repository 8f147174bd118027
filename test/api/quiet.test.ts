/** What an api asks of PostgreSQL by itself: little while nothing is open, and no more for a run of many rounds a second than for one of few. */
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Coordinator, ScriptedFleet } from './scripted-fleet.js';
import { LOOK_FOR_RUNS } from '../../apps/api/src/dispatch/open-work.js';
import { ControlPlane } from './services.js';
import { statementsOf, statementsOfTicks } from './statements.js';

let plane: ControlPlane;
let fleet: ScriptedFleet;
beforeAll(async () => {
  plane = await ControlPlane.start();
  fleet = await new ScriptedFleet(plane.redis.url).ready();
});
afterAll(async () => {
  await fleet?.stop();
  await plane?.stop();
});

it('an idle api sends two statements a tick, and few beside them', async () => {
  const { seen, most } = await statementsOfTicks(plane.api, 2, 5);
  expect(seen.length, seen.join('\n')).toBeLessThanOrEqual(most);
});

it('runs in hand are found without reading those that ended long ago', async () => {
  const client = new pg.Client({ connectionString: plane.postgres.url });
  await client.connect();
  try {
    await client.query('SET enable_seqscan = off'); // no index is worth its while in an empty table
    const { rows } = await client.query<{ 'QUERY PLAN': string }>(`EXPLAIN ${LOOK_FOR_RUNS}`);
    const plan = rows.map((row) => row['QUERY PLAN']).join('\n');
    expect(plan).toContain('"Run_finishedAt_idx"');
    expect(plan).not.toContain('Seq Scan on "Run"');
  } finally {
    await client.end();
  }
});

it('a report costs one statement, whether it brings two rounds or two hundred', async () => {
  const { coordinator } = await fleet.training(plane);
  await coordinator.publish(coordinator.rounds(0, 9), { round: 10 }); // looked at closely: its run has just begun
  await coordinator.acknowledged();
  coordinator.fallSilent();
  const few = await forReports(coordinator, 10, 2);
  const many = await forReports(coordinator, 30, 100);
  expect([few, many]).toEqual([0, 0].map(() => ({ stored: 10, transactions: 0 })));
});

/** Statements by which ten reports of so many rounds each are stored. */
async function forReports(coordinator: Coordinator, round: number, rounds: number) {
  const seen = await statementsOf(async () => {
    for (let i = 0; i < 10; i++) {
      const from = round + i * rounds;
      await coordinator.publish(coordinator.rounds(from, from + rounds - 1), { round: from + rounds });
      await coordinator.acknowledged();
    }
  });
  const stored = seen.filter((text) => text.startsWith('WITH run AS ( UPDATE "Run"'));
  const moved = seen.filter((text) => /^(INSERT INTO "public"."(Metric|LedgerRange|RunEvent)"|UPDATE "public"."(Run|Attempt)")/.test(text));
  return { stored: stored.length, transactions: moved.length };
}
