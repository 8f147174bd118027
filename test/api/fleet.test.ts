/** What several apis know of one fleet, by way of PostgreSQL: ages and goodbyes, whatever their clocks say. */
import { REPORT_STREAM } from '@paceline/control-plane';
import { createLogger } from '@paceline/runtime';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import { DatabaseClock, databaseDate, databaseNow } from '../../apps/api/src/database/database-clock.js';
import { BackgroundDatabase } from '../../apps/api/src/database/database.js';
import { Fleet } from '../../apps/api/src/fleet/fleet.js';
import { ReportsConsumer } from '../../apps/api/src/reports/consumer.js';
import { ControlPlane, until } from './services.js';

let plane: ControlPlane;
let database: BackgroundDatabase;
beforeAll(async () => {
  plane = await ControlPlane.start();
  database = plane.api.app.get(BackgroundDatabase);
});
afterAll(() => plane?.stop());
const fleets: Fleet[] = [];
afterEach(async () => {
  vi.restoreAllMocks();
  for (const fleet of fleets.splice(0)) await fleet.onModuleDestroy();
});

const log = createLogger('test');
/** The part of a fleet that one api has. */
function fleetOfApi(): Fleet {
  const fleet = new Fleet(database, log);
  fleets.push(fleet);
  return fleet;
}
const member = (id: string, startedAtMs = 1_700_000_000_000) => ({
  id,
  host: 'h',
  pid: 1,
  version: '0.1.0',
  protocolVersion: 1,
  rssBytes: 1,
  startedAtMs,
  runId: null,
  fingerprint: null,
});
/** Calls as on a machine whose clock is so much ahead. */
async function ahead<T>(ms: number, act: () => T | Promise<T>): Promise<T> {
  const [{ now }, steady] = [Date, performance.now.bind(performance)];
  vi.spyOn(Date, 'now').mockImplementation(() => now() + ms);
  vi.spyOn(performance, 'now').mockImplementation(() => steady() + ms);
  try {
    return await act();
  } finally {
    vi.restoreAllMocks();
  }
}
/** On a machine that is busy PostgreSQL may not answer at once. */
async function rowAt(fleet: Fleet, id: string, tries = 10): Promise<Awaited<ReturnType<Fleet['members']>>[number] | undefined> {
  try {
    return (await fleet.members('server')).find((row) => row.id === id);
  } catch (error) {
    if (tries === 1) throw error;
    return rowAt(fleet, id, tries - 1);
  }
}

it.each([0, 3_600_000, -3_600_000])('an api whose clock is %i ms ahead knows how long ago another one heard a server', async (ms) => {
  const [mine, other] = [fleetOfApi(), fleetOfApi()];
  const id = `ps-${ms}`;
  const clock = plane.api.app.get(DatabaseClock);
  const sinceMs = performance.now();
  await ahead(ms, async () => {
    await clock.measure(); // a process of its own has a clock of its own
    other.heartbeat('server', member(id));
    await other.onModuleDestroy();
  });
  await clock.measure();
  const row = (await rowAt(mine, id))!;
  const agoMs = databaseNow() - row.lastSeenMs;
  expect(agoMs).toBeGreaterThan(-50);
  const passedMs = performance.now() - sinceMs;
  expect(agoMs).toBeLessThan(passedMs + 100);
  if (passedMs < 4_000) expect(mine.isAlive(row)).toBe(true);
});

it('the time of the database counts, whatever that of the machine is', async () => {
  const clock = plane.api.app.get(DatabaseClock);
  const { now } = Date;
  expect(Math.abs(databaseNow() - now())).toBeLessThan(2_000);
  try {
    await ahead(3_600_000, async () => {
      await clock.measure();
      expect(Math.abs(databaseNow() - now())).toBeLessThan(2_000);
    });
    expect(databaseDate().getTime() - now()).toBeLessThan(-3_500_000);
  } finally {
    await clock.measure();
  }
});

it('a goodbye that another api has read is known, and a heartbeat that is read late does not undo it', async () => {
  const [mine, other] = [fleetOfApi(), fleetOfApi()];
  mine.heartbeat('server', member('ps-left'));
  await mine.onModuleDestroy();
  expect(await rowAt(other, 'ps-left')).toMatchObject({ hasLeft: false });
  mine.heartbeat('server', member('ps-left')); // written when the goodbye is there already
  other.goodbye('server', 'ps-left');
  await other.onModuleDestroy();
  await mine.onModuleDestroy();
  expect(await rowAt(fleetOfApi(), 'ps-left')).toMatchObject({ hasLeft: true });
  await until('the goodbye', async () => (await rowAt(mine, 'ps-left'))?.hasLeft === true);
  mine.heartbeat('server', member('ps-left'));
  await mine.onModuleDestroy();
  const third = fleetOfApi();
  expect(await rowAt(third, 'ps-left')).toMatchObject({ hasLeft: true });
  // Another process of that name is another one.
  mine.heartbeat('server', member('ps-left', 1_800_000_000_000));
  await mine.onModuleDestroy();
  expect(await rowAt(fleetOfApi(), 'ps-left')).toMatchObject({ hasLeft: false });
});

it('readers of reports that are gone are forgotten, and those with something left are not', async () => {
  const redis = new Redis(plane.redis.url);
  const [stream, group] = [REPORT_STREAM, 'paceline-api'];
  await until('the group', async () => ((await redis.xinfo('GROUPS', stream).catch(() => [])) as unknown[]).length > 0);
  for (const name of ['gone', 'holds']) await redis.xgroup('CREATECONSUMER', stream, group, name);
  const consumer = plane.api.app.get(ReportsConsumer);
  await consumer.onModuleDestroy(); // it would read what the other one is to hold
  await redis.xadd(stream, '*', 'report', '{}');
  await redis.xreadgroup('GROUP', group, 'holds', 'COUNT', 1, 'STREAMS', stream, '>');
  expect(await consumer.forgetOthers()).toBe(0); // they have asked a moment ago
  expect(await consumer.forgetOthers(0)).toBe(1);
  const names = ((await redis.xinfo('CONSUMERS', stream, group)) as string[][]).map((fields) => fields[1]);
  expect(names).toContain('holds');
  expect(names).not.toContain('gone');
  redis.disconnect();
});
