/**
 * Rows of the list of faults on real processes, as short as they can be: 7 and 17, by their numbers. More of them, and for longer:
 * test/soak/fault-rows.test.ts. Each test asserts that its fault has fired.
 */
import { DataPlane, pace, type RunView, type TestProcess } from '@paceline/testkit';
import type { RunSpecInput } from '@paceline/spec';
import { afterAll, beforeAll, expect, test } from 'vitest';

const spec = (rounds: number, more: Partial<RunSpecInput> = {}): RunSpecInput => ({
  model: 'mlp',
  globalBatch: 128,
  replicas: 4,
  length: { rounds },
  seed: 21,
  strategy: { kind: 'parameter-server', servers: 2 },
  ...more,
});
/** So many that the run outlasts the start of three engines, also where rounds are fast. */
const ROUNDS = 500;

let plane: DataPlane;
let undisturbed: string;
beforeAll(async () => {
  plane = await DataPlane.start({ servers: 3, workers: 3 });
  undisturbed = (await plane.finished(await plane.train(spec(ROUNDS)))).weightsSha256;
});
afterAll(() => plane?.stop());

/** One may have been killed by a test before, or by a first try. */
async function haveServers(count: number): Promise<void> {
  while (plane.servers.filter(({ child }) => child.signalCode === null).length < count) await plane.addServer();
}

const computing = (run: RunView): TestProcess[] =>
  plane.workers.filter(({ ready }) => run.state?.seats.some(({ workerId, replicas }) => workerId === ready.id && replicas.length > 0));

/** Those that compute for it are slowed down while `act` goes on; who has left a seat too, or it would stay stopped. */
async function slowly(run: RunView, act: () => Promise<void>): Promise<void> {
  const slowed = new Set<number>();
  const slow = pace(() => {
    for (const { child } of computing(run)) slowed.add(child.pid!);
    return [...slowed];
  }, 0.1);
  await act().finally(() => slow.end());
  expect(slow.stops).toBeGreaterThan(0);
}

test('7: one of two shards is lost: both go back to one common round, the same weights', async () => {
  await haveServers(3);
  const run = await plane.train(spec(ROUNDS, { checkpoint: { everyRounds: 20 } }));
  await slowly(run, async () => {
    const { data } = await plane.event(run, 'checkpoint.written', 40_000);
    const victim = plane.servers.find(({ ready }) => ready.id === run.servers[1]!.serverId)!;
    await victim.kill('SIGKILL');
    expect(victim.child.signalCode).toBe('SIGKILL');
    const failed = await plane.event(run, 'run.failed');
    expect(failed.data).toMatchObject({ cause: 'SERVER_LOST', server: 1 });
    const newest = Number(failed.data['newest']);
    expect(newest).toBeGreaterThanOrEqual(Number(data['round']));
    await plane.trainAgain(run, { attempt: 1, round: newest });
    expect((await plane.event(run, 'run.restored', 40_000)).data).toEqual({ round: newest });
  });
  expect((await plane.finished(run)).weightsSha256).toBe(undisturbed);
});

test('17: 1 → 3 → 2 workers during a run: the weights of a fixed fleet', async () => {
  await haveServers(2);
  const run = await plane.train(spec(ROUNDS));
  await plane.control(run, 'workers', '1');
  const seen: number[] = [];
  await slowly(run, async () => {
    for (const workers of [1, 3, 2]) {
      await plane.control(run, 'workers', String(workers));
      await plane.until(run, `${workers} workers with replicas`, 40_000, () => computing(run).length === workers);
      seen.push(run.state!.seats.filter(({ replicas }) => replicas.length > 0).length);
      expect(run.state!.round).toBeLessThan(ROUNDS);
    }
  });
  expect(seen).toEqual([1, 3, 2]);
  expect((await plane.finished(run)).weightsSha256).toBe(undisturbed);
});
