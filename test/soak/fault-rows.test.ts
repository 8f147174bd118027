/**
 * Rows of the list of faults on real processes, by their numbers. Rows 1, 2, 7, 8 and
 * 9 have tests of their own in test/cluster/system-deaths.test.ts and test/cluster/system-outages.test.ts, row 6 at every write boundary in checkpoint-kill.test.ts; all of them on the
 * simulator stand in libs/testkit/src/simulator. Each test asserts that its fault has fired.
 */
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { DataPlane, pace, Stack, type RunView, type TestProcess } from '@paceline/testkit';
import type { RunSpecInput } from '@paceline/spec';
import { expectComplete, eventsOf, ofRounds, reference, runOf, typesOf, untilRound, untilStatus } from '../cluster/whole-runs.js';
import { hasOpen, SLOW_DISK, WRITES_CHECKPOINT } from './moments.js';

let plane: DataPlane | undefined;
let stack: Stack | undefined;
afterEach(async () => {
  await Promise.all([plane?.stop(), stack?.stop()]);
  plane = undefined;
  stack = undefined;
});

const spec = (rounds: number, more: Partial<RunSpecInput> = {}): RunSpecInput => ({
  model: 'mlp',
  globalBatch: 64,
  replicas: 4,
  length: { rounds },
  seed: 21,
  ...more,
});
const hasEvent = (run: RunView, type: string): boolean => run.entries.some((entry) => entry.kind === 'event' && entry.type === type);
const holderOf = (run: RunView, workers: readonly TestProcess[]): TestProcess | undefined =>
  workers.find(({ ready }) => run.state?.seats.some(({ workerId, replicas }) => workerId === ready.id && replicas.length > 0));

test('4: the worker of one replica is killed five times in one round: a poison round, FAILED with the cause', async () => {
  plane = await DataPlane.start({ servers: 1, workers: 1 });
  // One round is so much work that each holder is killed within it.
  const run = await plane.train(spec(3, { replicas: 1, globalBatch: 60_000 }));
  const killed = new Set<string>();
  while (killed.size < 5) {
    const victim = await plane.until(run, 'a worker to hold the replica', 30_000, () =>
      holderOf(
        run,
        plane!.workers.filter(({ child, ready }) => child.signalCode === null && !killed.has(ready.id)),
      ),
    );
    expect(run.state!.round).toBe(0);
    killed.add(victim.ready.id);
    await Promise.all([victim.kill('SIGKILL'), ...(killed.size < 5 ? [plane.addWorker()] : [])]);
  }
  const failed = await plane.event(run, 'run.failed', 30_000);
  expect(failed.data).toMatchObject({ cause: 'POISON_ROUND', round: 0 });
  expect(failed.message).toContain('replica 0 of round 0 has lost its worker 5 times');
});

test('5, 6, 7: a server killed at any moment, while it writes checkpoints all the time: one common round, the same weights', async () => {
  const input = ofRounds(60);
  const wanted: RunSpecInput = {
    ...input,
    strategy: { kind: 'parameter-server', servers: 2 },
    checkpoint: { everyRounds: 1, keepLast: 2 },
  };
  await reference(input);
  stack = await Stack.start({ servers: 3, workers: 2 });
  const { id } = await stack.client.createRun(wanted);
  const checkpoints = path.join(stack.folder, 'data', 'runs', id, 'checkpoints');
  for (const [index, round] of [
    [0, 8],
    [1, 25],
    [0, 42],
  ] as const) {
    const { servers, attempt } = await untilRound(stack, id, round, 60_000);
    expect(readdirSync(checkpoints).length, 'checkpoints are being written').toBeGreaterThan(0);
    const victim = stack.servers.find(({ ready }) => ready.id === servers.find((server) => server.index === index)!.serverId)!;
    await stack.end(victim, 'SIGKILL');
    expect(victim.child.signalCode).toBe('SIGKILL');
    await stack.until('the next attempt', 20_000, async () => (await runOf(stack!, id)).attempt > attempt);
    await stack.addServer();
  }
  // Three kills, and now and then an attempt that met one of them while it was being placed.
  const { attempt: last } = await untilStatus(stack, id, ['SUCCEEDED'], 120_000);
  expect(last).toBeGreaterThanOrEqual(4);
  await expectComplete(stack, id, input, { attempts: last });
  const restored = (await eventsOf(stack, id)).filter(({ type }) => type === 'run.restored');
  expect(restored.length, typesOf(await eventsOf(stack, id)).join()).toBeGreaterThanOrEqual(3);
});

test('17: 1 → 4 → 2 → 3 workers during a run: the weights of a fixed fleet', async () => {
  plane = await DataPlane.start({ servers: 2, workers: 1 });
  const input = spec(240, { strategy: { kind: 'parameter-server', servers: 2 } });
  const fixed = await plane.finished(await plane.train(input));
  const run = await plane.train(input);
  // A worker that computes is slowed down, one that is still starting is not; one that has left a seat is too, or it would stay stopped.
  const isSeated = ({ ready }: TestProcess): boolean => run.state?.seats.some(({ workerId }) => workerId === ready.id) ?? false;
  const slowed = new Set<number>();
  const slow = pace(() => {
    for (const { child } of plane!.workers.filter(isSeated)) slowed.add(child.pid!);
    return [...slowed];
  }, 0.1);
  const seated = (count: number): Promise<unknown> =>
    plane!.until(
      run,
      `${count} workers with replicas`,
      40_000,
      () => run.state?.seats.filter(({ replicas }) => replicas.length > 0).length === count,
    );
  const seen: number[] = [];
  try {
    await seated(1);
    seen.push(1);
    await Promise.all([1, 2, 3].map(() => plane!.addWorker()));
    await seated(4);
    seen.push(4);
    for (const workers of [2, 3]) {
      await plane.control(run, 'workers', String(workers));
      await seated(workers);
      seen.push(workers);
    }
  } finally {
    slow.end();
  }
  const result = await plane.finished(run, 90_000);
  expect(seen).toEqual([1, 4, 2, 3]);
  expect(result.weightsSha256).toBe(fixed.weightsSha256);
});

test('18: pause and cancel at every phase: over or paused within ten seconds, and the checkpoint leads to the same weights', async () => {
  plane = await DataPlane.start({ servers: 1, workers: 1, serverEnv: SLOW_DISK });
  const { workers, servers } = plane;
  const input = spec(60, { checkpoint: { everyRounds: 1, keepLast: 1 } });
  const { weightsSha256: undisturbed } = await plane.finished(await plane.train(input));
  await workers.pop()!.kill('SIGTERM');
  const isIn = (from: number, to: number, run: RunView) =>
    run.state?.phase === 'training' && run.state.round >= from && run.state.round < to;
  const phases: [string, (run: RunView) => boolean][] = [
    ['before there is a worker', (run) => run.state?.phase === 'waiting'],
    ['in the first rounds', (run) => isIn(0, 30, run)],
    ['while a checkpoint is written', (run) => isIn(10, 50, run) && hasOpen(servers[0]!, WRITES_CHECKPOINT)],
    ['while it is evaluated', (run) => hasEvent(run, 'evaluation.started') && !hasEvent(run, 'run.finished')],
  ];
  for (const [what, isThere] of phases) {
    for (const action of ['pause', 'cancel'] as const) {
      if (what !== phases[0]![0] && workers.length === 0) await plane.addWorker();
      const run = await plane.train(input);
      const isSeated = ({ ready }: TestProcess): boolean => run.state?.seats.some(({ workerId }) => workerId === ready.id) ?? false;
      const slow = pace(() => workers.filter(isSeated).map(({ child }) => child.pid!), 0.1);
      try {
        await plane.until(run, what, 40_000, () => isThere(run));
        const askedMs = performance.now();
        await plane.control(run, 'action', action);
        const end = await plane.ended(run, 12_000);
        expect(performance.now() - askedMs, `${action} ${what}`).toBeLessThan(10_000);
        // After the last round there is nothing to pause.
        const isTooLate = action === 'pause' && what === 'while it is evaluated';
        const expected = isTooLate ? 'run.finished' : action === 'pause' ? 'run.paused' : 'run.cancelled';
        expect({ what, action, end: end.kind === 'event' && end.type }).toEqual({ what, action, end: expected });
      } finally {
        slow.end();
      }
      if (!hasEvent(run, 'run.paused')) continue;
      const { data } = await plane.event(run, 'run.paused');
      const round = Number(data['round']);
      if (workers.length === 0) await plane.addWorker();
      await plane.trainAgain(run, round === 0 ? null : { attempt: 1, round });
      const { weightsSha256 } = await plane.finished(run);
      expect(weightsSha256, `${what}, paused in round ${round}`).toBe(undisturbed);
      if (what === phases[0]![0]) await workers.pop()!.kill('SIGTERM');
    }
  }
}, 300_000);
