/** Processes that stop, go, hang or come twice: each wait ends, and says what it waited for. */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { controlKey, PLACEMENT_QUEUE, placementJobId, type PlacementJob } from '@paceline/control-plane';
import type { RunSpecInput } from '@paceline/spec';
import { DataPlane, type RunView, type TestProcess } from '@paceline/testkit';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';

let plane: DataPlane;
beforeAll(async () => void (plane = await DataPlane.start({ servers: 2, workers: 1 })));
afterAll(() => plane?.stop());

/** Whatever the test before has left. */
async function haveFleet(servers: number, workers: number): Promise<void> {
  const count = async (members: TestProcess[], wanted: number, add: () => Promise<unknown>): Promise<void> => {
    members.splice(0, members.length, ...members.filter(({ child }) => child.exitCode === null && child.signalCode === null));
    while (members.length > wanted) await members.pop()!.kill('SIGKILL');
    while (members.length < wanted) await add();
  };
  await count(plane.servers, servers, () => plane.addServer());
  await count(plane.workers, workers, () => plane.addWorker());
}

const spec = (rounds: number, servers = 1): RunSpecInput => ({
  model: 'mlp',
  globalBatch: 128,
  replicas: 4,
  length: { rounds },
  seed: 7,
  strategy: { kind: 'parameter-server', mode: 'sync', servers, accumulate: 1 },
});

const eventOf = (run: RunView, type: string) => run.entries.find((entry) => entry.kind === 'event' && entry.type === type);

async function begun(run: RunView, round = 10): Promise<void> {
  await plane.until(run, `round ${round}`, 60_000, () => (run.state?.round ?? 0) >= round);
}

test('a placement that comes twice: the second server lets it go without a word, and a finished attempt is not begun again', async () => {
  await haveFleet(2, 1);
  const run = await plane.train(spec(300));
  await begun(run, 1);
  const first = run.servers[0]!;
  const queue = new Queue(PLACEMENT_QUEUE, { connection: { url: plane.redis.url } });
  try {
    const job = ((await queue.getJobs(['completed'])) as { data: PlacementJob }[]).find(({ data }) => data.runId === run.id);
    for (let i = 1; i <= 6; i++) await queue.add('placement', job!.data, { jobId: placementJobId(run.id, 1, 0, i) });
    await plane.finished(run, 60_000);
    const second = plane.servers.find((server) => server.ready.id !== first.serverId)!;
    const hasDropped = (): boolean => readFileSync(second.logFile, 'utf8').includes('placement dropped');
    const areTaken = async (): Promise<boolean> => (await queue.getJobCountByTypes('waiting', 'active')) === 0;
    // Either of the two may take one.
    for (let i = 7; i <= 12 || (!hasDropped() && i < 100); i++) {
      await queue.add('placement', job!.data, { jobId: placementJobId(run.id, 1, 0, i) });
      await expect.poll(areTaken).toBe(true);
    }
    await expect.poll(hasDropped).toBe(true);
  } finally {
    await queue.close();
  }
  expect(run.servers).toEqual([first]);
  expect(eventOf(run, 'run.failed')).toBeUndefined();
  expect(run.entries.filter((entry) => entry.kind === 'event' && entry.type === 'training.started')).toHaveLength(1);
  expect(run.state?.phase).toBe('finished');
});

test('a server that is stopped ends the attempt with its name; the worker gives its seat up', async () => {
  await haveFleet(2, 1);
  const run = await plane.train(spec(50_000, 2));
  await begun(run);
  const second = plane.servers.find((server) => server.ready.id === run.servers[1]!.serverId)!;
  second.child.kill('SIGSTOP');
  const failed = await plane.until(run, 'the failure', 20_000, () => eventOf(run, 'run.failed'));
  expect(failed).toMatchObject({
    message: expect.stringMatching(/^parameter server 1 was lost in round \d+: nothing heard for/) as string,
  });
  await plane.until(run, 'the worker to leave', 10_000, () =>
    run.reports.some(({ kind }) => kind === 'seat.left' || kind === 'seat.failed'),
  );
  await second.kill('SIGKILL');
});

test('a cancel that is there together with the start: the coordinator confirms it, nobody waits for a deadline', async () => {
  await haveFleet(1, 0);
  const first = await plane.train(spec(10));
  const servers = await plane.until(first, 'its server', 10_000, () => first.servers.length === 1 && first.servers);
  const { child } = plane.servers[0]!;
  child.kill('SIGSTOP'); // it reads both at once, as a slow one does
  const run = await plane.train(spec(10));
  const redis = new Redis(plane.redis.url);
  await redis.hset(controlKey(run.id), { start: JSON.stringify({ attempt: 1, servers }), action: '1:cancel' });
  redis.disconnect();
  child.kill('SIGCONT');
  await plane.event(run, 'run.cancelled', 5_000);
});
