/** Checkpoints, pauses and restores on real processes: the weights are those of a run that nothing happened to. */
import { readFile, readdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { DataPlane, type RunView } from '@paceline/testkit';
import type { RunSpecInput } from '@paceline/spec';

const base: RunSpecInput = {
  model: 'mlp-dropout',
  globalBatch: 60,
  replicas: 4,
  length: { rounds: 40 },
  seed: 11,
  optimizer: { name: 'adam' },
  checkpoint: { everyRounds: 8 },
};
const withServers = (servers: number): RunSpecInput => ({ ...base, strategy: { kind: 'parameter-server', servers } });

/** So many that a request that follows some rounds finds more to come. */
const LONG_ROUNDS = 300;
const long: RunSpecInput = { ...withServers(2), length: { rounds: LONG_ROUNDS }, checkpoint: { everyRounds: LONG_ROUNDS } };

let plane: DataPlane;
let reference: string;
let longReference: string;
beforeAll(async () => {
  plane = await DataPlane.start({ servers: 3, workers: 2 });
  const undisturbed = async (input: RunSpecInput): Promise<string> =>
    (await plane.finished(await plane.train({ ...input, checkpoint: { final: true, everySeconds: 0 } }))).weightsSha256;
  reference = await undisturbed(base);
  longReference = await undisturbed(long);
});
afterAll(() => plane?.stop());

const written = (run: RunView): number[] =>
  run.entries.flatMap((e) => (e.kind === 'event' && e.type === 'checkpoint.written' ? [Number(e.data['round'])] : []));

test('checkpoints come with the rounds, the newest and the best are kept, and any of them leads to the same weights', async () => {
  const run = await plane.train(withServers(2));
  expect((await plane.finished(run)).weightsSha256).toBe(reference);
  expect(written(run)).toEqual([8, 16, 24, 32, 40]);
  // The last go when the run is over and all that it wrote is known.
  const kept = async (): Promise<string[]> => (await readdir(path.join(plane.folder, 'data', 'runs', run.id, 'checkpoints'))).sort();
  await expect.poll(kept, { timeout: 30_000 }).toEqual(['a1-r24', 'a1-r32', 'a1-r40']);
  for (const [round, servers] of [
    [24, 1],
    [32, 3],
  ] as const) {
    await plane.trainAgain(run, { attempt: round === 24 ? 1 : run.attempt, round }, servers);
    const again = await plane.finished(run);
    expect(again.weightsSha256, `from round ${round} on ${servers} server(s)`).toBe(reference);
    expect(again.trainedExamples).toBe(40 * 60);
    if (round === 24) expect(written(run)).toEqual([32, 40]);
  }
});

test('a pause ends on a checkpoint of the present round; the next attempt goes on with it', async () => {
  const run = await plane.train(long);
  await plane.until(run, 'some rounds', 60_000, () => (run.state?.round ?? 0) >= 3);
  const askedMs = performance.now();
  await plane.control(run, 'action', 'pause');
  const paused = await plane.event(run, 'run.paused');
  expect(performance.now() - askedMs).toBeLessThan(10_000);
  expect(paused.data).toMatchObject({ redone: 0 });
  await plane.trainAgain(run, { attempt: 1, round: Number(paused.data['round']) });
  expect((await plane.finished(run)).weightsSha256).toBe(longReference);
});

test('a server that is told to end takes a last checkpoint first, and nothing is redone', async () => {
  const run = await plane.train(long);
  await plane.until(run, 'some rounds', 60_000, () => (run.state?.round ?? 0) >= 3);
  const server = plane.servers.find(({ ready }) => ready.id === run.servers[1]!.serverId)!;
  await server.kill('SIGTERM');
  const failed = await plane.event(run, 'run.failed');
  expect(failed.data).toMatchObject({ cause: 'STOPPED', redone: 0 });
  await plane.addServer();
  await plane.trainAgain(run, { attempt: 1, round: Number(failed.data['newest']) });
  expect((await plane.finished(run)).weightsSha256).toBe(longReference);
});

test('a damaged checkpoint, and one of another configuration, are refused with what is wrong', async () => {
  const run = await plane.train({ ...withServers(1), length: { rounds: 8 } });
  await plane.finished(run);
  const folder = path.join(plane.folder, 'data', 'runs', run.id, 'checkpoints', 'a1-r8');
  const file = path.join(
    folder,
    (await readdir(folder)).find((name) => name.endsWith('.safetensors'))!,
  );
  const bytes = await readFile(file);
  bytes[bytes.length >> 1]! ^= 4;
  await writeFile(file, bytes);
  await plane.trainAgain(run, { attempt: 1, round: 8 });
  const failed = await plane.until(run, 'a refusal', 20_000, () => run.reports.find((r) => r.kind === 'server.failed'));
  expect(failed).toMatchObject({ code: 'CHECKPOINT_INVALID' });
  run.spec = { ...run.spec, seed: 12 };
  await plane.trainAgain(run, { attempt: 1, round: 8 });
  const changed = await plane.until(run, 'a refusal', 20_000, () =>
    run.reports.find((r) => r.kind === 'server.failed' && r.attempt === run.attempt),
  );
  expect(changed).toMatchObject({ code: 'CONFIG_CHANGED', message: expect.stringContaining('seed: 11 → 12') });
});
