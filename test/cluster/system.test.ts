/** The whole system, from createRun to trained weights: every process real, everything seen through the api. */
import { PROTOCOL_VERSION } from '@paceline/protocol';
import { PLACEMENT_QUEUE, REPORT_STREAM, type Report } from '@paceline/control-plane';
import { pace, Stack } from '@paceline/testkit';
import { Redis } from 'ioredis';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  ENDLESS,
  eventsOf,
  examplesBefore,
  expectComplete,
  expectShared,
  expectUndisturbed,
  idle,
  logged,
  ofRounds,
  reference,
  runOf,
  tensorsSha256,
  untilRound,
  untilStatus,
} from './whole-runs.js';

/** `npm run soak` has these too. */
const IS_SOAK = process.env['PACELINE_SOAK'] === '1';

const SHORT = ofRounds(10);
/** So many that it has learned something. */
const LEARNED = ofRounds(30);
const MEDIUM = ofRounds(120);

let stack: Stack;
beforeAll(async () => {
  if (IS_SOAK) await reference(MEDIUM);
  stack = await Stack.start({ servers: 1, workers: 2 });
});
afterAll(() => stack?.stop());

test('a run from createRun to its weights', async () => {
  const followed: number[] = [];
  const { id } = await stack.client.createRun({ ...LEARNED, name: 'from end to end' });
  for await (const event of stack.client.runEvents(id)) followed.push(event.seq);
  const run = await expectComplete(stack, id, LEARNED);
  expect(run.result!.loss).toBeLessThan(1.5);
  expect(run.result!.accuracy).toBeGreaterThan(0.5);
  expect(followed, 'the subscription gives every event once and ends with the run').toEqual(
    (await eventsOf(stack, id)).map(({ seq }) => seq),
  );

  expect(stack.servers.flatMap((server) => logged(server, 'placement claimed', id))).toHaveLength(1);
  const taken = stack.workers
    .flatMap((worker) => logged(worker, 'step task taken', id))
    .map(({ seat, incarnation }) => `${String(seat)}.${String(incarnation)}`);
  expect(new Set(taken).size, 'each job is placed once').toBe(taken.length);
  expect(taken.length).toBeGreaterThanOrEqual(1);

  const response = await fetch(new URL(run.result!.weightsUrl!, stack.url), { headers: { authorization: `Bearer ${stack.key}` } });
  expect(response.status).toBe(200);
  expect(tensorsSha256(Buffer.from(await response.arrayBuffer()))).toBe(run.result!.weightsSha256);
  const listed = (await (
    await fetch(`${stack.url}/api/v1/runs/${id}`, { headers: { authorization: `Bearer ${stack.key}` } })
  ).json()) as Record<string, unknown>;
  expect(listed).toMatchObject({ id, status: 'SUCCEEDED', result: { weightsSha256: run.result!.weightsSha256 } });
});

test.runIf(IS_SOAK)('a run of local steps: progress, epochs, ledger and weights count every batch of a round', async () => {
  const strategy = { kind: 'local-update', localSteps: 4, outerOptimizer: 'nesterov' } as const;
  const input = { ...SHORT, globalBatch: 128, strategy };
  const { id } = await stack.client.createRun(input);
  const run = await expectComplete(stack, id, input);
  expect(run.progress).toMatchObject({ round: 10, totalRounds: 10 });
  expect(run.progress.epoch).toBe(0);
});

test('each process has a user of its own at Redis, who may do no more than a run needs', async () => {
  const redis = new Redis(stack.redis.url);
  const worker = new Redis(stack.redis.urlOf('worker'));
  try {
    const clients = ((await redis.client('LIST')) as string)
      .split('\n')
      .filter((line) => line.includes('name=') && !line.includes('name= '));
    const users = clients.flatMap((line) => / user=(\S+)/.exec(line)?.[1] ?? []);
    expect(new Set(users)).toEqual(new Set(['api', 'ps', 'worker']));
    // The run before has used all of it, and none of it was refused.
    const refused = (await redis.call('ACL', 'LOG')) as unknown[];
    expect(refused).toEqual([]);
    const { id } = await stack.client.createRun(SHORT);
    await stack.until('its control hash', 20_000, async () => (await redis.exists(`paceline:control:${id}`)) === 1);
    for (const [command, ...words] of [
      ['FLUSHALL'],
      ['KEYS', '*'],
      ['XRANGE', REPORT_STREAM, '-', '+'],
      ['HSET', `paceline:control:${id}`, 'action', '1:cancel'],
      ['LRANGE', `bull:${PLACEMENT_QUEUE}:wait`, '0', '-1'],
    ] as const)
      await expect(worker.call(command, ...words), command).rejects.toThrow('NOPERM');
    await expectComplete(stack, id, SHORT);
  } finally {
    redis.disconnect();
    worker.disconnect();
  }
});

test.runIf(IS_SOAK)('FLUSHALL and cut connections in the middle of a run: nothing is lost or doubled', async () => {
  const redis = new Redis(stack.redis.url);
  const paced = pace(() => stack.workers.map(({ child }) => child.pid!), 0.1);
  try {
    const { id } = await stack.client.createRun(MEDIUM);
    await untilRound(stack, id, 5, 60_000, 2);
    for (let i = 0; i < 2; i++) {
      await stack.until('something to flush', 10_000, async () => (await redis.dbsize()) > 0);
      await redis.flushall();
      await redis.client('KILL', 'TYPE', 'normal');
      await sleep(1_500);
      expect((await runOf(stack, id)).status).toBe('RUNNING');
    }
    paced.end();
    await expectComplete(stack, id, MEDIUM);
    await expectUndisturbed(stack, id);
  } finally {
    paced.end();
    redis.disconnect();
  }
});

describe('cancelRun', () => {
  test('a running run is CANCELLED within 10 s, its workers are idle again and the next run works', async () => {
    const { id } = await stack.client.createRun(ENDLESS);
    await untilRound(stack, id, 5, 60_000, 2);
    await stack.client.cancelRun(id);
    const run = await untilStatus(stack, id, ['CANCELLED'], 10_000);
    expect(run.statusReason).not.toMatch(/did not confirm/);
    expect(run.ledger.committedRounds).toBeGreaterThanOrEqual(5);
    expect(run.ledger.committedExamples).toBe(examplesBefore(run.ledger.committedRounds));
    await stack.until('an idle fleet', 10_000, () => idle(stack));
    const next = await stack.client.createRun(SHORT);
    await expectComplete(stack, next.id, SHORT);
  });

  test('cancelling twice, and a run that is over, is refused with what it is', async () => {
    const { id } = await stack.client.createRun(ENDLESS);
    await stack.client.cancelRun(id);
    await untilStatus(stack, id, ['CANCELLED'], 10_000);
    await expect(stack.client.cancelRun(id)).rejects.toMatchObject({
      code: 'CONFLICT',
      message: expect.stringContaining('CANCELLED') as string,
    });
  });
});

test.runIf(IS_SOAK)('two runs at once share one worker: both progress and both finish', { timeout: 540_000 }, async () => {
  await stack.haveWorkers(1);
  await expectShared(stack, LEARNED, 1);
});

describe('without a worker', () => {
  test('a run stays QUEUED and says what it waits for; it can be cancelled; it goes when a worker comes', async () => {
    await stack.haveWorkers(0);
    const { id } = await stack.client.createRun(SHORT);
    const cancelled = await stack.client.createRun(SHORT);
    for (const run of [id, cancelled.id]) {
      await stack.until('the reason', 15_000, async () => {
        const { status, statusReason } = await runOf(stack, run);
        return (
          (status === 'QUEUED' && /waits for a worker: none is connected; start one/.test(statusReason ?? '')) || { status, statusReason }
        );
      });
    }
    await stack.client.cancelRun(cancelled.id);
    await untilStatus(stack, cancelled.id, ['CANCELLED'], 10_000);
    expect((await runOf(stack, id)).status).toBe('QUEUED');
    await stack.addWorker();
    await expectComplete(stack, id, SHORT);
  });

  test.runIf(IS_SOAK)('a worker of another protocol version is INCOMPATIBLE, gets no run, and the reason says so', async () => {
    await stack.haveWorkers(0);
    const redis = new Redis(stack.redis.url);
    const stranger = 'worker-of-tomorrow';
    const beat = (): void => {
      const report: Report = {
        kind: 'heartbeat',
        role: 'worker',
        member: {
          id: stranger,
          host: 'elsewhere',
          pid: 4711,
          protocolVersion: PROTOCOL_VERSION + 1,
          version: '9.0.0',
          startedAtMs: Date.now(),
          fingerprint: null,
          rssBytes: 1,
          runId: null,
        },
      };
      void redis.xadd(REPORT_STREAM, '*', 'report', JSON.stringify(report));
    };
    const heart = setInterval(beat, 500);
    try {
      const { id } = await stack.client.createRun(SHORT);
      await stack.until('the reason to name the version', 15_000, async () => {
        const { status, statusReason } = await runOf(stack, id);
        const isRight = status === 'QUEUED' && statusReason?.includes(`worker ${stranger} speaks protocol ${PROTOCOL_VERSION + 1}`);
        return isRight || { status, statusReason };
      });
      expect((await stack.client.workers()).find((worker) => worker.id === stranger)).toMatchObject({
        status: 'INCOMPATIBLE',
        protocolVersion: PROTOCOL_VERSION + 1,
      });
      await stack.addWorker();
      const run = await expectComplete(stack, id, SHORT);
      expect(run.stepTasks.map(({ worker }) => worker?.id)).not.toContain(stranger);
    } finally {
      clearInterval(heart);
      redis.disconnect();
    }
  });
});
