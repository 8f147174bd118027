/**
 * The round takes no database and no Redis call: while PostgreSQL, Redis or the api are away, rounds are committed, and afterwards
 * everything that happened meanwhile is known, once.
 */
import { REPORT_STREAM } from '@paceline/control-plane';
import { pace, Stack, type Pace } from '@paceline/testkit';
import { Redis } from 'ioredis';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { expectComplete, expectUndisturbed, lossOf, ofRounds, reference, runOf, untilRound, untilStatus } from '../cluster/whole-runs.js';

const LONG = ofRounds(500);
const SHORT = ofRounds(20);
/** Share of a core for each worker: about 5 rounds a second. */
const SHARE = 0.05;
/** At both ends of an outage, when the fault is still being made or mended. */
const MARGIN_MS = 1_000;

let stack: Stack;
let slow: Pace | undefined;
beforeAll(async () => {
  for (const spec of [SHORT, LONG]) await reference(spec);
  stack = await Stack.start({ servers: 1, workers: 2 });
});
beforeEach(async () => void (await stack.haveWorkers(2)));
afterEach(() => slow?.end());
afterAll(() => stack?.stop());

const slowDown = (): Pace => (slow = pace(() => stack.workers.map(({ child }) => child.pid!), SHARE));

/** Rounds were committed in every fifth of the outage, by the coordinator's own clock. */
async function expectRoundsBetween(id: string, fromMs: number, toMs: number): Promise<void> {
  const times = (await lossOf(stack, id)).map(({ atMs }) => atMs);
  const from = fromMs + MARGIN_MS;
  const step = (toMs - MARGIN_MS - from) / 5;
  const counts = Array.from({ length: 5 }, (_, i) => times.filter((at) => at >= from + i * step && at < from + (i + 1) * step).length);
  expect(Math.min(...counts), `rounds in each fifth of the outage: ${counts.join(', ')}`).toBeGreaterThan(0);
}

/** Redis comes back empty: reports that nobody has read are lost, and only the journal still has them. */
async function loseWhatRedisHolds(reports: number): Promise<void> {
  const redis = new Redis(stack.redis.url);
  try {
    await stack.until(`${reports} unread reports in Redis`, 15_000, async () => {
      const unread = await redis.xlen(REPORT_STREAM);
      return unread >= reports || { unread };
    });
    await redis.flushall();
  } finally {
    redis.disconnect();
  }
}

test('20 s without the api and with a Redis that does not answer and then has lost its data', async () => {
  const { id } = await stack.client.createRun(LONG);
  await untilRound(stack, id, 5, 60_000, 2);
  const paced = slowDown();
  await stack.api.kill('SIGTERM');
  expect(stack.api.child.exitCode).toBe(0);
  stack.hangRedis();
  const from = Date.now();
  await sleep(20_000);
  expect(paced.stops, 'the run was slowed down').toBeGreaterThan(10);
  const to = Date.now();
  stack.resumeRedis();
  await loseWhatRedisHolds(5);
  await stack.startApi();
  expect((await runOf(stack, id)).status).toBe('RUNNING');
  paced.end();
  await expectComplete(stack, id, LONG);
  await expectRoundsBetween(id, from, to);
  await expectUndisturbed(stack, id);
  const next = await stack.client.createRun(SHORT);
  await expectComplete(stack, next.id, SHORT, { deadlineMs: 60_000 });
});

test('9: 30 s without PostgreSQL: the api says 503 and when to come back, training goes on, the state catches up', async () => {
  const { id } = await stack.client.createRun(LONG);
  await untilRound(stack, id, 5, 60_000, 2);
  const paced = slowDown();
  const before = (await runOf(stack, id)).progress.round;
  await stack.stopPostgres();
  const from = Date.now();
  const headers = { authorization: `Bearer ${stack.key}` };
  const rest = await fetch(`${stack.url}/api/v1/runs/${id}`, { headers });
  expect(rest.status).toBe(503);
  expect(Number(rest.headers.get('retry-after'))).toBeGreaterThan(0);
  expect(rest.headers.get('content-type')).toContain('application/problem+json');
  await expect(stack.client.run(id)).rejects.toMatchObject({ httpStatus: 503, retryAfterMs: expect.any(Number) as number });
  await expect(stack.client.createRun(SHORT)).rejects.toMatchObject({ httpStatus: 503 });
  expect((await fetch(`${stack.url}/healthz`)).status).toBe(200);
  expect((await fetch(`${stack.url}/readyz`)).status).toBe(503);
  await sleep(Math.max(0, from + 30_000 - Date.now()));
  const to = Date.now();
  await stack.startPostgres();
  await stack.until('the state to catch up', 30_000, async () => {
    const { status, progress } = await runOf(stack, id);
    return (status === 'RUNNING' && progress.round > before + 10) || { status, round: progress.round, before };
  });
  expect((await fetch(`${stack.url}/readyz`)).status).toBe(200);
  paced.end();
  await expectComplete(stack, id, LONG);
  await expectRoundsBetween(id, from, to);
  await expectUndisturbed(stack, id);
});

test('FLUSHALL while a run waits for a worker: its jobs are made again', async () => {
  await stack.haveWorkers(0);
  const redis = new Redis(stack.redis.url);
  try {
    const { id } = await stack.client.createRun(SHORT);
    await untilStatus(stack, id, ['QUEUED'], 10_000);
    await stack.until('a step task in Redis', 15_000, async () => (await redis.keys(`*step-${id}*`)).length > 0);
    await redis.flushall();
    await stack.addWorker();
    await expectComplete(stack, id, SHORT);
  } finally {
    redis.disconnect();
  }
});
