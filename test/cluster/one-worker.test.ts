/** Runs that one worker holds, as real processes: there is no server, gradients and parameters take no socket, and the weights are those of the reference. */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { RunSpecInput } from '@paceline/spec';
import { pace, Stack, type Pace } from '@paceline/testkit';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { eventsOf, expectComplete, idle, logged, lossOf, ofRounds, reference, runOf, untilRound, untilStatus } from './whole-runs.js';

const IS_SOAK = process.env['PACELINE_SOAK'] === '1';
const ROUNDS = 16;
const mirrored = (threads: number, more: Partial<RunSpecInput> = {}): RunSpecInput => ({
  ...ofRounds(ROUNDS),
  ...more,
  strategy: { kind: 'mirrored', threads },
});
const oneDevice: RunSpecInput = { ...ofRounds(ROUNDS), replicas: 1, strategy: { kind: 'one-device' } };
const withDropout = mirrored(2, { model: 'mlp-dropout' });
const inStages: RunSpecInput = { ...withDropout, strategy: { kind: 'model-parallel', stages: 2 } };
/** As many steps in rounds of four. The optimizer has slots. */
const STEPS_OF_ROUND = 4;
const withSlots = mirrored(2, { model: 'mlp-dropout', optimizer: { name: 'adam' } });
const executed: RunSpecInput = {
  ...withSlots,
  length: { rounds: ROUNDS / STEPS_OF_ROUND },
  strategy: { kind: 'tpu', threads: 2, stepsPerExecution: STEPS_OF_ROUND },
};
/** So long that a pause comes before the end on a fast machine too. */
const LONG_ROUNDS = 64;
const longWithSlots: RunSpecInput = { ...withSlots, length: { rounds: LONG_ROUNDS } };
const longExecuted: RunSpecInput = { ...executed, length: { rounds: LONG_ROUNDS / STEPS_OF_ROUND } };
const longInStages: RunSpecInput = { ...longWithSlots, strategy: { kind: 'model-parallel', stages: 2 } };
/** Goes on with the checkpoint of another. */
const LONGER: RunSpecInput = { ...inStages, length: { rounds: ROUNDS + 4 } };

let stack: Stack;
let slow: Pace | undefined;
/** The run of `withDropout`, once it has ended. */
let wholeId: string | undefined;
beforeAll(async () => {
  for (const input of [...(IS_SOAK ? [mirrored(3)] : []), oneDevice, withDropout, longWithSlots, ...(IS_SOAK ? [withSlots, LONGER] : [])])
    await reference(input);
  stack = await Stack.start({ servers: 0, workers: 1 });
});
afterEach(() => slow?.end());
afterAll(() => stack?.stop());

const threadsOf = (): number => readdirSync(`/proc/${stack.workers[0]!.child.pid!}/task`).length;

/** What the worker has counted between its process and others for this run: less than a message. A stranger that dials its port is sent a challenge. */
async function expectNoTraffic(id: string): Promise<void> {
  const told = () => logged(stack.workers[0]!, 'bytes between this process and others', id);
  await stack.until('what the worker has sent', 10_000, () => Promise.resolve(told().length > 0));
  for (const { sentBytes, receivedBytes } of told()) expect(Number(sentBytes) + Number(receivedBytes)).toBeLessThan(1_000);
}

test('mirrored, 2 threads, and in `npm run soak` 3; dropout and batch normalisation: the weights of the reference, and no byte on a socket', async () => {
  for (const input of IS_SOAK ? [withDropout, mirrored(3)] : [withDropout]) {
    slow = pace(() => stack.workers.map(({ child }) => child.pid!), 0.2);
    const { id } = await stack.client.createRun(input);
    const { servers, stepTasks } = await untilRound(stack, id, 1);
    expect(servers.map(({ serverId }) => serverId)).toEqual([stack.workers[0]!.ready.id]);
    // On a busy machine the run may have ended when it is looked at: the task is completed then.
    expect(stepTasks.map(({ seat, worker }) => [seat, worker?.id])).toEqual([[0, stack.workers[0]!.ready.id]]);
    expect(await stack.client.scaleRun(id, 2).then(() => 'scaled', String)).toMatch(/on one worker, which holds its parameters/);
    slow.end();
    await expectComplete(stack, id, input);
    await expectNoTraffic(id);
    if (input === withDropout) wholeId = id;
  }
});

test('model-parallel: the replicas of a worker go through two stages, and end in the weights of the reference', async () => {
  const { id } = await stack.client.createRun(inStages);
  const run = await expectComplete(stack, id, inStages);
  expect(run.spec.strategy).toMatchObject({ stages: 2, cutAfter: [expect.any(String)] });
  await expectNoTraffic(id);
  // What the last stage measures, in training and in the evaluation, is what one engine measures.
  const whole = wholeId ?? (await stack.client.createRun(withDropout)).id;
  const { loss, accuracy, values } = (await untilStatus(stack, whole, ['SUCCEEDED'], 60_000)).result!;
  expect(run.result).toMatchObject({ loss, accuracy, values });
  expect((await lossOf(stack, id)).map(({ value }) => value)).toEqual((await lossOf(stack, whole)).map(({ value }) => value));
});

test.runIf(IS_SOAK)(
  'model-parallel: a pause in the middle, and the checkpoint of a run that was not cut, lead to the weights of the reference',
  async () => {
    slow = pace(() => stack.workers.map(({ child }) => child.pid!), 0.2);
    const { id } = await stack.client.createRun(longInStages);
    await untilRound(stack, id, 2);
    await stack.client.pauseRun(id);
    await untilStatus(stack, id, ['PAUSED'], 30_000);
    slow.end();
    await stack.client.resumeRun(id);
    await expectComplete(stack, id, longInStages, { attempts: 2 });
    const whole = wholeId ?? (await stack.client.createRun(withDropout)).id;
    await untilStatus(stack, whole, ['SUCCEEDED'], 60_000);
    const { id: longer } = await stack.client.createRun(LONGER, { resumeFrom: { runId: whole } });
    const { result } = await untilStatus(stack, longer, ['SUCCEEDED'], 60_000);
    expect(result!.weightsSha256).toBe(await reference(LONGER));
  },
);

test('tpu: a round of four steps has the weights that four rounds of mirrored have, over a pause, and no byte on a socket', async () => {
  slow = pace(() => stack.workers.map(({ child }) => child.pid!), 0.2);
  const { id } = await stack.client.createRun(longExecuted);
  await untilRound(stack, id, 1);
  await stack.client.pauseRun(id);
  await untilStatus(stack, id, ['PAUSED'], 30_000);
  slow.end();
  await stack.client.resumeRun(id);
  const run = await untilStatus(stack, id, ['SUCCEEDED'], 60_000);
  expect(run.result!.weightsSha256).toBe(await reference(longWithSlots));
  expect(run.ledger).toMatchObject({ committedRounds: LONG_ROUNDS / STEPS_OF_ROUND, committedExamples: LONG_ROUNDS * 512 });
  await expectNoTraffic(id);
});

test('tpu: rounds that are not finite are left out; and norms are cut over the gradients of all threads', async () => {
  const strategy = { kind: 'tpu', threads: 2, stepsPerExecution: 3 } as const;
  // The first three steps leave weights whose gradient is beyond float32.
  const steep: RunSpecInput = { ...ofRounds(3), replicas: 2, optimizer: { name: 'momentum', learningRate: 1000 } };
  const { id } = await stack.client.createRun({ ...steep, strategy, gradient: { nonFinite: 'skip' } });
  const { result } = await untilStatus(stack, id, ['SUCCEEDED'], 60_000);
  expect(result!.weightsSha256).toBe(await reference(steep));
  const left = (await eventsOf(stack, id)).filter(({ type }) => type === 'round.skipped');
  expect(left.map(({ message }) => message)).toEqual(
    [1, 2].map((round) => expect.stringContaining(`round ${round} is left out`) as string),
  );

  const clipped: RunSpecInput = { ...mirrored(2), length: { rounds: 6 }, gradient: { clipNorm: 0.3, clipGlobalNorm: 0.4 } };
  const runs: RunSpecInput[] = [clipped, { ...clipped, length: { rounds: 2 }, replicas: 4, strategy: { ...strategy, threads: 3 } }];
  const ended = await Promise.all(runs.map(async (input) => (await stack.client.createRun(input)).id));
  const hashes: (string | null)[] = [];
  for (const each of ended) hashes.push((await untilStatus(stack, each, ['SUCCEEDED'], 60_000)).result!.weightsSha256);
  expect(hashes[1]).toBe(hashes[0]);
});

test('one-device: one worker, one replica, one compute thread', async () => {
  const { id } = await stack.client.createRun(oneDevice);
  await expectComplete(stack, id, oneDevice);
  await expectNoTraffic(id);
});

test.runIf(IS_SOAK).each(['step', 'evaluate'])('tpu: a thread that dies in %s, and a worker: the weights of the reference', async (at) => {
  const folder = mkdtempSync(path.join(tmpdir(), 'paceline-death-'));
  const file = path.join(folder, 'died');
  const alone = await Stack.start({ servers: 0, workers: 0 });
  try {
    const planted = { NODE_OPTIONS: `--import=${new URL('thread-dies.mjs', import.meta.url).href}`, PLANTED_DEATH: file, PLANTED_AT: at };
    const worker = await alone.addWorker(planted);
    const strategy = { kind: 'tpu', threads: 2, stepsPerExecution: 2 } as const;
    const validation = at === 'evaluate' ? { validation: { everyRounds: 1 } } : {};
    const input: RunSpecInput = { ...executed, ...validation, length: { rounds: ROUNDS / 2 }, strategy, checkpoint: { everyRounds: 1 } };
    slow = pace(() => alone.workers.map(({ child }) => child.pid!), 0.4);
    const { id } = await alone.client.createRun(input);
    await untilRound(alone, id, 6);
    expect(existsSync(file), 'it has died').toBe(true);
    expect(readFileSync(worker.logFile, 'utf8')).toContain('compute thread 1 of 2 ended with code 7');
    await worker.kill('SIGKILL');
    slow.end();
    await alone.addWorker();
    const run = await untilStatus(alone, id, ['SUCCEEDED'], 90_000);
    expect(run.result!.weightsSha256).toBe(await reference(withSlots));
    expect(run.attempt).toBe(2);
  } finally {
    await alone.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});

test.runIf(IS_SOAK)('a pause and a cancel end all compute threads, and what is paused goes on to the same weights', async () => {
  const long = mirrored(3, { length: { rounds: 200 } });
  await reference(long);
  await stack.until('an idle worker', 20_000, () => idle(stack));
  const before = threadsOf();
  const { id } = await stack.client.createRun(long);
  await untilRound(stack, id, 3);
  expect(threadsOf(), 'three compute threads with a loader each').toBeGreaterThanOrEqual(before + 6);
  await stack.client.pauseRun(id);
  await untilStatus(stack, id, ['PAUSED'], 30_000);
  await stack.until('the threads to end', 20_000, () => Promise.resolve(threadsOf() <= before || threadsOf()));
  await stack.client.resumeRun(id);
  await expectComplete(stack, id, long, { attempts: 2 });
  const endless = await stack.client.createRun(mirrored(2, { length: { rounds: 1_000_000 } }));
  await untilRound(stack, endless.id, 3);
  await stack.client.cancelRun(endless.id);
  await untilStatus(stack, endless.id, ['CANCELLED'], 20_000);
  await stack.until('the threads to end', 20_000, () => Promise.resolve(threadsOf() <= before || threadsOf()));
  expect((await runOf(stack, endless.id)).result).toBeNull();
});

test.runIf(IS_SOAK)(
  'two workers in two stages each, and a stage ends: its seat is taken again, and the weights are those of the reference',
  async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'paceline-death-'));
    const file = path.join(folder, 'died');
    const planted = { NODE_OPTIONS: `--import=${new URL('thread-dies.mjs', import.meta.url).href}`, PLANTED_DEATH: file };
    try {
      const worker = await stack.addWorker(planted);
      await stack.until('an idle worker', 20_000, () => idle(stack));
      const input: RunSpecInput = { ...inStages, strategy: { kind: 'model-parallel', workers: 2 }, checkpoint: { everyRounds: 3 } };
      const { id } = await stack.client.createRun(input);
      await untilStatus(stack, id, ['SUCCEEDED'], 90_000);
      expect((await runOf(stack, id)).result!.weightsSha256).toBe(await reference(inStages));
      expect(existsSync(file), 'it has died').toBe(true);
      expect(readFileSync(worker.logFile, 'utf8')).toContain('stage 1 of 2 ended with code 7');
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  },
);
