/** Checkpoints, pauses and restores on real processes: the weights are those of a run that nothing happened to. */
import { readFile, readdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { DataPlane, pace, patient, type RunView } from '@paceline/testkit';
import type { RunSpecInput } from '@paceline/spec';

const EVERY = 8;
const ROUNDS = 40;
const KEPT = 3;

const base: RunSpecInput = {
  model: 'mlp-dropout',
  globalBatch: 60,
  replicas: 4,
  length: { rounds: ROUNDS },
  seed: 11,
  optimizer: { name: 'adam' },
  checkpoint: { everyRounds: EVERY, everySeconds: 0 },
};
const withServers = (servers: number): RunSpecInput => ({ ...base, strategy: { kind: 'parameter-server', servers } });

/** It has no checkpoint before its last round. Its workers are slowed down, so that a request that follows some rounds finds more to come. */
const unsaved: RunSpecInput = { ...withServers(2), checkpoint: { everyRounds: ROUNDS } };

let plane: DataPlane;
let reference: string;
beforeAll(async () => {
  plane = await DataPlane.start({ servers: 3, workers: 2 });
  const undisturbed = await plane.finished(await plane.train({ ...base, checkpoint: { final: true, everySeconds: 0 } }));
  reference = undisturbed.weightsSha256;
});
afterAll(() => plane?.stop());

/** Starts such a run, and does something to it after some rounds. */
async function amid<T>(act: (run: RunView) => Promise<T>): Promise<{ run: RunView; seen: T }> {
  const run = await plane.train(unsaved);
  await plane.until(run, 'its first round', 60_000, () => (run.state?.round ?? 0) >= 1);
  const slow = pace(() => plane.workers.map(({ child }) => child.pid!), 0.1);
  try {
    await plane.until(run, 'some rounds', 60_000, () => (run.state?.round ?? 0) >= 3);
    return { run, seen: await act(run) };
  } finally {
    slow.end();
  }
}

interface Written {
  readonly round: number;
  readonly loss: number | null;
}
const written = (run: RunView): Written[] =>
  run.entries.flatMap((e) => (e.kind === 'event' && e.type === 'checkpoint.written' ? [e.data as unknown as Written] : []));

/**
 * A checkpoint that is due waits for the one under way, so the disk has a say in which round it comes; never before it is due, and the last round
 * always has one.
 */
function expectCadence(checkpoints: readonly Written[], from: number): void {
  const rounds = checkpoints.map(({ round }) => round);
  expect(rounds.at(-1), rounds.join()).toBe(ROUNDS);
  for (const [i, round] of rounds.slice(0, -1).entries())
    expect(round - (rounds[i - 1] ?? from), `checkpoints of rounds ${rounds.join()}`).toBeGreaterThanOrEqual(EVERY);
}

/** The newest, and the one with the lowest loss. */
function roundsToKeep(checkpoints: readonly Written[]): number[] {
  const best = checkpoints.reduce((lowest, checkpoint) =>
    (checkpoint.loss ?? Infinity) <= (lowest.loss ?? Infinity) ? checkpoint : lowest,
  );
  return [...new Set([...checkpoints.slice(-KEPT), best].map(({ round }) => round))].sort((a, b) => a - b);
}

test('checkpoints come with the rounds, the newest and the best are kept, and any of them leads to the same weights', async () => {
  const run = await plane.train(withServers(2));
  await plane.until(run, 'its first round', 60_000, () => (run.state?.round ?? 0) >= 1);
  // Slower, so that also a slow disk has written more than the last one.
  const slow = pace(() => plane.workers.map(({ child }) => child.pid!), 0.1);
  try {
    const hasEnded = (): boolean => run.state?.phase !== 'training';
    await plane.until(run, 'two checkpoints', 60_000, () => written(run).length >= 2 || hasEnded());
  } finally {
    slow.end();
  }
  expect((await plane.finished(run)).weightsSha256).toBe(reference);
  const folder = path.join(plane.folder, 'data', 'runs', run.id, 'checkpoints');
  const kept = async (): Promise<string[]> => (await readdir(folder)).sort();
  // The last go when the run is over and all that it wrote is known, which a slow journal tells later.
  const wanted = (): string[] =>
    roundsToKeep(written(run))
      .map((round) => `a1-r${round}`)
      .sort();
  const asWanted = async (): Promise<unknown> => (await kept()).join() === wanted().join() || { kept: await kept(), wanted: wanted() };
  await expect.poll(asWanted, { timeout: patient(30_000) }).toBe(true);
  expectCadence(written(run), 0);
  // From the oldest that is there, and then from the newest before the last round: others may be about to go.
  const starts = [
    { servers: 1, from: () => roundsToKeep(written(run))[0]! },
    { servers: 3, from: () => written(run).findLast(({ round }) => round < ROUNDS)?.round ?? ROUNDS },
  ];
  for (const { servers, from } of starts) {
    const round = from();
    if (round === ROUNDS) continue; // the disk is so slow that the last round's is the only one
    await plane.trainAgain(run, { attempt: run.attempt, round }, servers);
    const again = await plane.finished(run);
    expect(again.weightsSha256, `from round ${round} on ${servers} server(s)`).toBe(reference);
    expect(again.trainedExamples).toBe(ROUNDS * 60);
    expectCadence(written(run), round);
  }
});

test('a pause ends on a checkpoint of the present round; the next attempt goes on with it', async () => {
  const { run, seen: paused } = await amid(async (running) => {
    await plane.control(running, 'action', 'pause');
    return plane.event(running, 'run.paused');
  });
  expect(paused.data).toMatchObject({ redone: 0 });
  await plane.trainAgain(run, { attempt: 1, round: Number(paused.data['round']) });
  expect((await plane.finished(run)).weightsSha256).toBe(reference);
});

test.runIf(process.env['PACELINE_SOAK'] === '1')(
  'a server that is told to end takes a last checkpoint first, and nothing is redone',
  async () => {
    const { run, seen: failed } = await amid(async (running) => {
      await plane.servers.find(({ ready }) => ready.id === running.servers[1]!.serverId)!.kill('SIGTERM');
      return plane.event(running, 'run.failed');
    });
    expect(failed.data).toMatchObject({ cause: 'STOPPED', redone: 0 });
    await plane.addServer();
    await plane.trainAgain(run, { attempt: 1, round: Number(failed.data['newest']) });
    expect((await plane.finished(run)).weightsSha256).toBe(reference);
  },
);

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
