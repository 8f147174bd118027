/** ManualQueue on a real Redis that answers late (CLIENT PAUSE): what it then gives is not lost until its lock ends. */
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

/** Longer than the deadline of a call (2 s). */
const PAUSE_MS = 2_600;

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
beforeEach(() => {
  name = `jobs-${randomUUID()}`;
  connection = new Redis(service.url, { maxRetriesPerRequest: null });
  queue = new Queue(name, { connection });
});
afterEach(async () => {
  await Promise.all(open.splice(0).map((each) => each.close()));
  await queue.close();
  connection.disconnect();
});

/** One that has asked before, so that its connection stands. */
async function taker(owner: string): Promise<ManualQueue<number>> {
  const each = new ManualQueue(name, z.number(), service.url, owner);
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

/** A job is there, and the question for it is answered after its deadline. */
async function askedTooLate(each: ManualQueue<number>): Promise<void> {
  await queue.add('job', 7, { jobId: 'the-job', attempts: 1 });
  await redis.call('CLIENT', 'PAUSE', PAUSE_MS, 'ALL');
  await expect(each.take()).rejects.toBeInstanceOf(RedisUnavailableError);
}

test('a job that comes after the deadline is what the next call gives, with its lock', async () => {
  const each = await taker('one');
  await askedTooLate(each);
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
  const both = await Promise.all([each.take(), each.take()]);
  expect(both.filter((held) => held !== undefined)).toHaveLength(1);
});

test('who closes while the answer is late gives the job back', async () => {
  const [each, other] = [await taker('one'), await taker('two')];
  await askedTooLate(each);
  await each.close();
  expect(await other.take()).toMatchObject({ id: 'the-job', payload: 7 });
});

test('who does not ask again gives the job back after five seconds', async () => {
  const [each, other] = [await taker('one'), await taker('two')];
  await askedTooLate(each);
  await sleep(PAUSE_MS);
  expect(await other.take()).toBeUndefined();
  await sleep(4_500);
  expect(await other.take()).toMatchObject({ id: 'the-job', payload: 7 });
  expect(await each.take()).toBeUndefined();
});
