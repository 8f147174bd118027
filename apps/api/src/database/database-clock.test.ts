import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ServerHealthReader } from '../fleet/server-health.js';
import { Fleet } from '../fleet/fleet.js';
import { DatabaseClock, databaseNow } from './database-clock.js';

const START_MS = 1_800_000_000_000;
const silent = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined } as never;
const address = { index: 0, serverId: 'ps-a', host: '127.0.0.1', port: 1, unixPath: null };
const member = {
  id: 'ps-a',
  host: 'h',
  pid: 1,
  version: '0',
  protocolVersion: 1,
  runId: null,
  rssBytes: 1,
  startedAtMs: 0,
  fingerprint: null,
};

/** Clocks of the machine and of PostgreSQL, an api that hears one server every second, and how long a question takes on its way there. */
class Bench {
  wallMs = START_MS;
  steadyMs = START_MS;
  databaseMs = START_MS + 300;
  tripMs = 0;
  questions = 0;
  private readonly database = {
    statement: (name: string) => {
      if (name !== 'time') return Promise.resolve([]);
      this.questions++;
      this.pass(this.tripMs);
      return Promise.resolve([{ nowMs: this.databaseMs }]);
    },
  } as never;
  readonly clock = new DatabaseClock(this.database, silent);
  readonly fleet = new Fleet(this.database, silent);
  private readonly health = new ServerHealthReader(this.fleet);

  constructor() {
    vi.spyOn(Date, 'now').mockImplementation(() => this.wallMs);
    vi.spyOn(performance, 'now').mockImplementation(() => this.steadyMs - performance.timeOrigin);
  }

  pass(ms: number): void {
    this.wallMs += ms;
    this.steadyMs += ms;
    this.databaseMs += ms;
  }

  /** Looks at the clocks every second, as the api does. @returns the longest silence of the server while silence meant something */
  async live(seconds: number): Promise<number> {
    let longestMs = 0;
    for (let i = 0; i < seconds; i++) {
      this.pass(500);
      await this.clock.look();
      this.fleet.heard();
      const { servers, isReliable } = await this.health.observe([address]);
      if (isReliable) longestMs = Math.max(longestMs, servers.get('ps-a')?.silentMs ?? Infinity);
      this.pass(500);
      this.fleet.heard();
      this.fleet.heartbeat('server', member);
    }
    return longestMs;
  }

  get errorMs(): number {
    return databaseNow() - this.databaseMs;
  }
}

let bench: Bench;
beforeEach(async () => {
  bench = new Bench();
  await bench.clock.start(() => bench.fleet.deaf());
  bench.clock.onModuleDestroy(); // the test looks
  bench.fleet.heartbeat('server', member);
  await bench.live(20);
  expect(bench.fleet.isReliable()).toBe(true);
});
afterEach(() => vi.restoreAllMocks());

test.each([-3_600_000, -8_000, 8_000, 3_600_000])('the wall clock is set by %i ms: no server seems silent', async (ms) => {
  bench.wallMs += ms;
  expect(await bench.live(60)).toBeLessThan(1_500);
  expect(bench.errorMs).toBe(0);
  expect(bench.fleet.isReliable()).toBe(true);
});

test.each(['on its way there', 'on its way back'])('a question that takes 9 s %s moves nothing', async (way) => {
  if (way === 'on its way there') bench.tripMs = 9_000;
  const measured = bench.clock.measure();
  if (way === 'on its way back') bench.pass(9_000);
  await measured;
  bench.tripMs = 0;
  expect(bench.errorMs).toBe(0);
});

test.each([-3_600_000, -8_000, 8_000, 3_600_000])(
  'the clock of PostgreSQL is set by %i ms: silence means nothing before everybody was heard again',
  async (ms) => {
    bench.databaseMs += ms;
    expect(await bench.live(60)).toBeLessThan(1_500);
    expect(bench.errorMs).toBe(0);
    expect(bench.fleet.isReliable()).toBe(true);
  },
);

test('a machine that was suspended asks for the time at once', async () => {
  const { questions } = bench;
  bench.wallMs += 600_000;
  bench.databaseMs += 600_000;
  expect(await bench.live(1)).toBeLessThan(1_500);
  expect(bench.questions).toBe(questions + 1);
  expect(bench.errorMs).toBe(0);
  expect(bench.fleet.isReliable()).toBe(false);
  expect(await bench.live(20)).toBeLessThan(1_500);
  expect(bench.fleet.isReliable()).toBe(true);
});
