/** Processes of the whole system die, stand still, leave and join: what is promised for each, seen through the api. */
import { pace, Stack, type Pace, type TestProcess } from '@paceline/testkit';
import { isAlive } from '@paceline/runtime';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import {
  ENDLESS,
  eventsOf,
  expectComplete,
  idle,
  logged,
  ofRounds,
  reference,
  runOf,
  typesOf,
  untilRound,
  untilStatus,
} from './whole-runs.js';

const LONG = ofRounds(200);
const SHORT = ofRounds(20);
const SHARE = 0.1;

let stack: Stack;
let slow: Pace | undefined;
beforeAll(async () => {
  for (const spec of [SHORT, LONG]) await reference(spec);
  stack = await Stack.start({ servers: 2, workers: 2 });
});
afterEach(() => slow?.end());
afterAll(() => stack?.stop());

/** Slows down all workers but those that the test itself stops. */
const slowDown = (except: readonly TestProcess[] = []): Pace =>
  (slow = pace(() => stack.workers.filter((worker) => !except.includes(worker)).map(({ child }) => child.pid!), SHARE));

describe('workers', () => {
  test('one is SIGKILLed in the middle, another joins late: the same weights', async () => {
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

  test('one stands still for 6 s and goes on: the same weights', async () => {
    await stack.haveWorkers(2);
    const { id } = await stack.client.createRun(LONG);
    await untilRound(stack, id, 10, 60_000, 2);
    const frozen = stack.workers[0]!;
    slowDown([frozen]);
    frozen.child.kill('SIGSTOP');
    await stack.until('the run to notice', 10_000, async () => {
      const types = typesOf(await eventsOf(stack, id));
      return types.includes('worker.lost') || types.includes('worker.away') || types;
    });
    const { round } = (await runOf(stack, id)).progress;
    await sleep(3_000);
    expect((await runOf(stack, id)).progress.round, 'the others go on without it').toBeGreaterThan(round);
    frozen.child.kill('SIGCONT');
    slow!.end();
    await expectComplete(stack, id, LONG);
    await stack.until('an idle fleet', 20_000, () => idle(stack));
    expect(frozen.child.exitCode).toBeNull();
  });

  test('one is stopped politely: it gives its replicas back, exits with 0 and leaves nothing', async () => {
    await stack.haveWorkers(2);
    const { id } = await stack.client.createRun(LONG);
    await untilRound(stack, id, 10, 60_000, 2);
    const leaver = stack.workers[0]!;
    slowDown([leaver]); // a stopped process would not hear the signal
    await expectPoliteEnd(leaver, 8_000);
    slow!.end();
    await expectComplete(stack, id, LONG);
    const types = typesOf(await eventsOf(stack, id));
    expect(types).toContain('worker.left');
    expect(types).not.toContain('worker.lost');
  });
});

describe('parameter servers', () => {
  for (const index of [1, 0]) {
    test(`server ${index}${index === 0 ? ', the coordinator,' : ''} is SIGKILLed: another takes its place and the weights are the same`, async () => {
      await stack.haveWorkers(2);
      while (stack.servers.length < 2) await stack.addServer();
      const { id } = await stack.client.createRun({ ...LONG, strategy: { kind: 'parameter-server', mode: 'sync', servers: 2 } });
      const { servers } = await untilRound(stack, id, 10, 60_000, 2);
      const name = servers.find((server) => server.index === index)!.serverId;
      const victim = stack.servers.find(({ ready }) => ready.id === name)!;
      await stack.end(victim, 'SIGKILL');
      expect(victim.child.signalCode).toBe('SIGKILL');
      await stack.until('the next attempt', 15_000, async () => {
        const { attempt, status, statusReason } = await runOf(stack, id);
        return attempt === 2 || { status, statusReason };
      });
      const { statusHistory } = await runOf(stack, id);
      expect(statusHistory.find(({ to }) => to === 'RECOVERING')!.reason).toMatch(
        new RegExp(`parameter server ${index}\\b.* in round \\d+`),
      );
      await stack.addServer();
      await expectComplete(stack, id, LONG, { attempts: 2, deadlineMs: 120_000 });
      await stack.until('an idle fleet', 20_000, () => idle(stack));
    });
  }

  test('one is SIGKILLed and the run has no restarts: FAILED within 15 s, naming server and round; the next run works', async () => {
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
});

describe('the api', () => {
  test('SIGKILLed right after createRun and started again: everything is placed once and the run finishes', async () => {
    await stack.haveWorkers(2);
    const { id } = await stack.client.createRun(SHORT, { idempotencyKey: 'sent-twice' });
    await stack.api.kill('SIGKILL');
    await stack.startApi();
    expect((await stack.client.createRun(SHORT, { idempotencyKey: 'sent-twice' })).id).toBe(id);
    const run = await expectComplete(stack, id, SHORT);
    expect(stack.servers.flatMap((server) => logged(server, 'placement claimed', id))).toHaveLength(1);
    const seats = stack.workers
      .flatMap((worker) => logged(worker, 'step task taken', id))
      .map(({ seat, n }) => `${String(seat)}.${String(n)}`);
    expect(new Set(seats).size).toBe(seats.length);
    expect(run.statusHistory.map(({ to }) => to)).toEqual([...new Set(run.statusHistory.map(({ to }) => to))]);
  });

  test('SIGKILLed in the middle of a run: the run goes on and is complete', async () => {
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
});

/** SIGTERM: exit code 0 in time, and no process of it is left. */
async function expectPoliteEnd(member: TestProcess, withinMs: number): Promise<void> {
  const pid = member.child.pid!;
  const children = childrenOf(pid);
  const from = performance.now();
  await stack.end(member, 'SIGTERM');
  expect(performance.now() - from, `ms until the ${member.app} was gone`).toBeLessThan(withinMs);
  expect({ code: member.child.exitCode, signal: member.child.signalCode }).toEqual({ code: 0, signal: null });
  expect([pid, ...children].filter(isAlive)).toEqual([]);
}

function childrenOf(pid: number): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((other) => {
      try {
        const text = readFileSync(`/proc/${other}/stat`, 'latin1');
        return Number(text.slice(text.lastIndexOf(') ') + 2).split(' ')[1]) === pid;
      } catch {
        return false; // it ended while we looked
      }
    });
}

test('SIGTERM in the middle of a run, to all one after the other: each exits with 0 in time and nothing is left', async () => {
  await stack.haveWorkers(2);
  const { id } = await stack.client.createRun({ ...ENDLESS, restarts: 0 });
  const { servers } = await untilRound(stack, id, 5, 60_000, 2);
  const coordinator = stack.servers.find(({ ready }) => ready.id === servers[0]!.serverId)!;
  await expectPoliteEnd(coordinator, 8_000);
  const run = await untilStatus(stack, id, ['FAILED'], 15_000);
  expect(run.statusReason).toContain('stopped');
  for (const member of [...stack.workers, ...stack.servers]) await expectPoliteEnd(member, 8_000);
  await expectPoliteEnd(stack.api, 8_000);
});
