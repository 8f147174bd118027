/**
 * Processes of the whole system die, stand still and leave, where test/cluster/system-deaths.test.ts is too short for it: fault rows 2 and
 * 10 with real processes, workers that leave politely, a run without restarts, a fleet that two runs share, a run that is extended.
 */
import { pace, Stack, type Pace, type TestProcess } from '@paceline/testkit';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import {
  ENDLESS,
  eventsOf,
  expectComplete,
  expectPoliteEnd,
  expectShared,
  idle,
  logged,
  ofRounds,
  reference,
  runOf,
  typesOf,
  untilRound,
  untilStatus,
} from '../cluster/whole-runs.js';

const VERY_LONG = ofRounds(500);
const LONG = ofRounds(200);
const SHORT = ofRounds(20);

let stack: Stack;
let slow: Pace | undefined;
beforeAll(async () => {
  for (const spec of [SHORT, LONG, VERY_LONG]) await reference(spec);
  stack = await Stack.start({ servers: 2, workers: 2 });
});
afterEach(() => slow?.end());
afterAll(() => stack?.stop());

/** Slows down the workers that are there now, but those that the test itself stops. */
function slowDown(share = 0.1, except?: TestProcess): Pace {
  const pids = stack.workers.filter((worker) => worker !== except).map(({ child }) => child.pid!);
  return (slow = pace(() => pids, share));
}

test('2: a worker stands still for 60 s and goes on: declared lost, its replicas computed by the other, the same weights', async () => {
  await stack.haveWorkers(2);
  const { id } = await stack.client.createRun(VERY_LONG);
  await untilRound(stack, id, 10, 60_000, 2);
  const frozen = stack.workers[0]!;
  slowDown(0.05, frozen);
  frozen.child.kill('SIGSTOP');
  const stoppedAt = performance.now();
  await stack.until('the run to notice', 10_000, async () => {
    const types = typesOf(await eventsOf(stack, id));
    return types.includes('worker.lost') || types;
  });
  const { round } = (await runOf(stack, id)).progress;
  await sleep(60_000 - (performance.now() - stoppedAt));
  const { status, progress } = await runOf(stack, id);
  expect(status).toBe('RUNNING');
  expect(progress.round, 'the other goes on without it').toBeGreaterThan(round + 10);
  frozen.child.kill('SIGCONT');
  slow!.end();
  await expectComplete(stack, id, VERY_LONG);
  await stack.until('an idle fleet', 20_000, () => idle(stack));
  expect(frozen.child.exitCode).toBeNull();
});

test('a worker is stopped politely: it gives its replicas back, exits with 0 and leaves nothing', async () => {
  await stack.haveWorkers(2);
  const { id } = await stack.client.createRun(LONG);
  await untilRound(stack, id, 10, 60_000, 2);
  const leaver = stack.workers[0]!;
  slowDown(0.1, leaver); // a stopped process would not hear the signal
  await expectPoliteEnd(stack, leaver);
  slow!.end();
  await expectComplete(stack, id, LONG);
  const types = typesOf(await eventsOf(stack, id));
  expect(types).toContain('worker.left');
  expect(types).not.toContain('worker.lost');
});

test('a server is SIGKILLed and the run has no restarts: FAILED within 15 s, naming server and round; the next run works', async () => {
  await stack.haveWorkers(2);
  while (stack.servers.length < 2) await stack.addServer();
  const { id } = await stack.client.createRun({
    ...ENDLESS,
    restarts: 0,
    strategy: { kind: 'parameter-server', mode: 'sync', servers: 2 },
  });
  const { servers } = await untilRound(stack, id, 10, 60_000, 2);
  const victim = stack.servers.find(({ ready }) => ready.id === servers[1]!.serverId)!;
  await stack.end(victim, 'SIGKILL');
  expect(victim.child.signalCode).toBe('SIGKILL');
  const run = await untilStatus(stack, id, ['FAILED'], 15_000);
  expect(run.statusReason).toMatch(/parameter server 1\b.* in round \d+.*no restarts/);
  await stack.until('an idle fleet', 20_000, () => idle(stack));
  await stack.addServer();
  const next = await stack.client.createRun(SHORT);
  await expectComplete(stack, next.id, SHORT);
});

test('10: the api is SIGKILLed right after createRun and started again: everything is placed once and the run finishes', async () => {
  await stack.haveWorkers(2);
  const { id } = await stack.client.createRun(SHORT, { idempotencyKey: 'sent-twice' });
  await stack.api.kill('SIGKILL');
  await stack.startApi();
  expect((await stack.client.createRun(SHORT, { idempotencyKey: 'sent-twice' })).id).toBe(id);
  const run = await expectComplete(stack, id, SHORT);
  expect(stack.servers.flatMap((server) => logged(server, 'placement claimed', id))).toHaveLength(1);
  const seats = stack.workers
    .flatMap((worker) => logged(worker, 'step task taken', id))
    .map(({ seat, incarnation }) => `${String(seat)}.${String(incarnation)}`);
  expect(new Set(seats).size).toBe(seats.length);
  expect(run.statusHistory.map(({ to }) => to)).toEqual([...new Set(run.statusHistory.map(({ to }) => to))]);
});

test('the api is SIGKILLed in the middle of a run: the run goes on and is complete', async () => {
  await stack.haveWorkers(2);
  const { id } = await stack.client.createRun(LONG);
  await untilRound(stack, id, 10, 60_000, 2);
  slowDown();
  await stack.api.kill('SIGKILL');
  await stack.startApi();
  expect((await runOf(stack, id)).status).toBe('RUNNING');
  slow!.end();
  await expectComplete(stack, id, LONG);
});

test('two runs share two workers: both progress and both finish', async () => {
  await stack.haveWorkers(2);
  await expectShared(stack, SHORT, 2);
});

test('a run is extended by 100 rounds after its end: the weights of a run of 200 rounds', async () => {
  await stack.haveWorkers(2);
  const { id } = await stack.client.createRun(ofRounds(100));
  await untilStatus(stack, id, ['SUCCEEDED'], 90_000);
  await stack.client.extendRun(id, { rounds: 100 });
  await expectComplete(stack, id, LONG, { attempts: 2 });
});

test('EF21: a worker that is killed costs an attempt from the checkpoint on, the last one that leaves in order charges nothing; the same weights', async () => {
  const codec = { kind: 'top-k', density: 0.02, errorFeedback: true, feedbackRule: 'ef21' } as const;
  const optimizer = { name: 'momentum', learningRate: 0.02, momentum: 0.9 } as const;
  const strategy = { kind: 'parameter-server', startWorkers: 2 } as const;
  // One restart: of both ends of an attempt the first one takes it.
  const spec = { ...ofRounds(60), codec, optimizer, strategy, restarts: 1, checkpoint: { everyRounds: 5, everySeconds: 0 } };
  await reference(spec);
  await stack.haveWorkers(2);
  const { id } = await stack.client.createRun(spec);
  const written = async () => (await eventsOf(stack, id)).filter(({ type }) => type === 'checkpoint.written');
  await untilRound(stack, id, 3, 60_000, 2);
  slowDown(0.3);
  await stack.until('a checkpoint', 60_000, async () => (await written()).length > 0);
  await stack.end(stack.workers[0]!, 'SIGKILL');
  await stack.until('the second attempt', 60_000, async () => {
    const { attempt, status, statusReason } = await runOf(stack, id);
    return attempt === 2 || { attempt, status, statusReason };
  });
  const failed = (await eventsOf(stack, id)).find(({ type }) => type === 'run.failed')!;
  const best = Number((failed.data as { round: number }).round);
  await stack.until('the second attempt to win rounds', 60_000, async () => {
    const { attempt, status, progress, statusReason } = await runOf(stack, id);
    return (attempt === 2 && status === 'RUNNING' && progress.round > best + 1) || { attempt, status, progress, statusReason };
  });
  await expectPoliteEnd(stack, stack.workers[0]!);
  await stack.until('the third attempt', 30_000, async () => {
    const { attempt, status, statusReason } = await runOf(stack, id);
    return attempt === 3 || { attempt, status, statusReason };
  });
  slow!.end();
  await stack.addWorker();
  await stack.addWorker();
  await expectComplete(stack, id, spec, { attempts: 3, deadlineMs: 120_000 });
  const causes = (await eventsOf(stack, id)).flatMap(({ type, data }) =>
    type === 'run.failed' ? [(data as { cause: string }).cause] : [],
  );
  expect(causes).toEqual(['ESTIMATE_LOST', 'WORKERS_LEFT']);
});
