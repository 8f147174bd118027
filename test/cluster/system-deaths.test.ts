/**
 * Processes of the whole system die, leave and join: what is promised for each, seen through the api. More of it is in test/soak. What people
 * ask of a run has the same stack, and so have runs whose workers hold the parameters.
 */
import { pace, Stack, type Pace } from '@paceline/testkit';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import {
  ENDLESS,
  eventsOf,
  expectComplete,
  expectPoliteEnd,
  idle,
  ofRounds,
  reference,
  runOf,
  typesOf,
  untilRound,
  untilStatus,
} from './whole-runs.js';
import type { RunSpecInput } from '@paceline/spec';
import { mirrored } from './system-mirrored.js';
import { requests } from './system-requests.js';
import { standbys, WITH_STANDBYS } from './system-standby.js';

/** Both workers are there from the first round on: on a fast machine one would be done before the other comes. */
const LONG: RunSpecInput = { ...ofRounds(120), strategy: { kind: 'parameter-server', startWorkers: 2 } };
const SHARE = 0.05;

let stack: Stack;
let slow: Pace | undefined;
beforeAll(async () => {
  await reference(WITH_STANDBYS);
  stack = await Stack.start({ servers: 3, workers: 2 });
});
afterEach(() => slow?.end());
afterAll(() => stack?.stop());

/** Slows down the workers that are there now: who comes later starts at its own speed. */
function slowDown(): Pace {
  const pids = stack.workers.map(({ child }) => child.pid!);
  return (slow = pace(() => pids, SHARE));
}

standbys(() => stack); // first: it needs a third server, and leaves two
requests(() => stack);
mirrored(() => stack);

test('a worker is SIGKILLed in the middle, another joins late: the same weights', async () => {
  await stack.haveWorkers(2);
  const { id } = await stack.client.createRun(LONG);
  await untilRound(stack, id, 10, 60_000, 2);
  slowDown();
  const [victim] = stack.workers;
  await stack.end(victim!, 'SIGKILL');
  expect(victim!.child.signalCode).toBe('SIGKILL');
  await stack.until('its loss in the events', 15_000, async () => {
    const events = await eventsOf(stack, id);
    return (
      events.some(({ type, data }) => type === 'worker.lost' && (data as { workerId: string }).workerId === victim!.ready.id) ||
      typesOf(events)
    );
  });
  const late = await stack.addWorker();
  await stack.until('the late one to hold replicas', 30_000, async () => {
    const { stepTasks, status } = await runOf(stack, id);
    return stepTasks.some(({ worker, replicas }) => worker?.id === late.ready.id && replicas.length > 0) || { status, stepTasks };
  });
  slow!.end();
  await expectComplete(stack, id, LONG);
  expect((await stack.client.workers()).find((worker) => worker.id === victim!.ready.id)?.status ?? 'LOST').toBe('LOST');
});

test('server 0, the coordinator, is SIGKILLed: another takes its place and the weights are the same', async () => {
  await stack.haveWorkers(2);
  const { id } = await stack.client.createRun({ ...LONG, strategy: { kind: 'parameter-server', mode: 'sync', servers: 2 } });
  const { servers } = await untilRound(stack, id, 10, 60_000, 2);
  const name = servers.find((server) => server.index === 0)!.serverId;
  const victim = stack.servers.find(({ ready }) => ready.id === name)!;
  await stack.end(victim, 'SIGKILL');
  expect(victim.child.signalCode).toBe('SIGKILL');
  await stack.until('the next attempt', 15_000, async () => {
    const { attempt, status, statusReason } = await runOf(stack, id);
    return attempt === 2 || { status, statusReason };
  });
  const { statusHistory } = await runOf(stack, id);
  expect(statusHistory.find(({ to }) => to === 'RECOVERING')!.reason).toMatch(/parameter server 0\b.* in round \d+/);
  await stack.addServer();
  await expectComplete(stack, id, LONG, { attempts: 2, deadlineMs: 120_000 });
  await stack.until('an idle fleet', 20_000, () => idle(stack));
});

test('SIGTERM in the middle of a run, to all one after the other: each exits with 0 and nothing is left', async () => {
  await stack.haveWorkers(2);
  const { id } = await stack.client.createRun({ ...ENDLESS, restarts: 0 });
  const { servers } = await untilRound(stack, id, 5, 60_000, 2);
  const coordinator = stack.servers.find(({ ready }) => ready.id === servers[0]!.serverId)!;
  await expectPoliteEnd(stack, coordinator);
  const run = await untilStatus(stack, id, ['FAILED'], 15_000);
  expect(run.statusReason).toContain('stopped');
  for (const member of [...stack.workers, ...stack.servers]) await expectPoliteEnd(stack, member);
  await expectPoliteEnd(stack, stack.api);
});
