/** ManualQueue on a real Redis that answers late (CLIENT PAUSE until CLIENT UNPAUSE): what it then gives is not lost until its lock ends. */
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ManualQueue, RedisUnavailableError } from '@paceline/control-plane';
import { startRedis, type RunningRedis } from '@paceline/runtime';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';

/** Redis goes on when it is told to; this only says that a test hangs. */
const PAUSE_MS = 60_000;

let folder: string;
let service: RunningRedis;
let redis: Redis;
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'paceline-manual-queue-'));
  service = await startRedis({ dataDir: path.join(folder, 'redis'), temporary: true });
  redis = new Redis(service.url, { maxRetriesPerRequest: null });
});
afterAll(async () => {
  redis?.disconnect();
  await service?.stop();
  await rm(folder, { recursive: true, force: true });
});

let name: string;
let queue: Queue;
let connection: Redis;
const open: ManualQueue<number>[] = [];
/** What the queues want done after a while: a test says when that has passed. */
let timers: Set<() => void>;
beforeEach(() => {
  timers = new Set();
  name = `jobs-${randomUUID()}`;
  connection = new Redis(service.url, { maxRetriesPerRequest: null });
  queue = new Queue(name, { connection });
});
afterEach(async () => {
  await answers();
  await Promise.all(open.splice(0).map((each) => each.close()));
  await queue.close();
  connection.disconnect();
});

/** One that has asked before, so that its connection stands. */
async function taker(owner: string): Promise<ManualQueue<number>> {
  const each = new ManualQueue(name, z.number(), service.url, owner, (_, act) => {
    timers.add(act);
    return () => void timers.delete(act);
  });
  open.push(each);
  for (const deadline = Date.now() + 10_000; ;) {
    const isThere = await each.take().then(
      () => true,
      () => false,
    );
    if (isThere) return each;
    if (Date.now() > deadline) throw new Error('Redis did not answer within 10000 ms');
    await sleep(50);
  }
}

/** A job is there, and the deadline of the question for it has passed: Redis gives no job until `answers`. */
async function askedTooLate(each: ManualQueue<number>): Promise<void> {
  await queue.add('job', 7, { jobId: 'the-job', attempts: 1 });
  await redis.call('CLIENT', 'PAUSE', PAUSE_MS, 'WRITE');
  await expect(each.take()).rejects.toBeInstanceOf(RedisUnavailableError);
}

const answers = (): Promise<unknown> => redis.call('CLIENT', 'UNPAUSE');

test('a job that comes after the deadline is what the next call gives, with its lock', async () => {
  const each = await taker('one');
  await askedTooLate(each);
  await answers();
  const held = await each.take();
  expect(held).toMatchObject({ id: 'the-job', payload: 7 });
  expect(await each.take()).toBeUndefined();
  expect(await held!.keep()).toBe(true);
  expect(await held!.complete('done')).toBe(true);
  expect(await queue.getJobCounts('waiting', 'active', 'completed')).toMatchObject({ waiting: 0, active: 0, completed: 1 });
});

test('two that wait for the same answer: one has the job', async () => {
  const each = await taker('one');
  await askedTooLate(each);
  const asked = [each.take(), each.take()];
  await answers();
  const both = await Promise.all(asked);
  expect(both.filter((held) => held !== undefined)).toHaveLength(1);
});

test('who closes while the answer is late gives the job back', async () => {
  const [each, other] = [await taker('one'), await taker('two')];
  await askedTooLate(each);
  const closed = each.close();
  await answers();
  await closed;
  expect(await other.take()).toMatchObject({ id: 'the-job', payload: 7 });
});

test('who does not ask again gives the job back after five seconds', async () => {
  const [each, other] = [await taker('one'), await taker('two')];
  await askedTooLate(each);
  expect(timers.size, 'they count from when the job has come').toBe(0);
  await answers();
  await expect.poll(() => timers.size).toBe(1);
  expect(await other.take()).toBeUndefined();
  for (const pass of timers) pass();
  await expect.poll(() => other.take()).toMatchObject({ id: 'the-job', payload: 7 });
  expect(await each.take()).toBeUndefined();
});
