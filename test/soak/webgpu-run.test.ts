/**
 * A whole run with the engine webgpu on real processes, on a software driver for Vulkan, which takes most of a minute for it; and one whose only
 * worker has no driver. The engine itself is in test/numerics/webgpu.test.ts.
 */
import { FINAL_STATUSES } from '@paceline/client';
import { parseRunSpec, type RunSpecInput } from '@paceline/spec';
import { Stack } from '@paceline/testkit';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { NO_DRIVER, swiftShaderEnvironment } from '../web/swiftshader.js';
import { eventsOf, lossOf, runOf, typesOf, untilStatus } from '../cluster/whole-runs.js';

const ROUNDS = 5;
/** A software driver compiles and computes on the processor: beside two busy loops a first step takes half a minute. */
const STEP_DEADLINE_MS = 180_000;
const RUN: RunSpecInput = {
  model: {
    topology: {
      class_name: 'Sequential',
      config: { layers: [{ class_name: 'Dense', config: { name: 'out', units: 10, batch_input_shape: [null, 784] } }] },
    },
  },
  engine: 'webgpu',
  globalBatch: 64,
  replicas: 2,
  seed: 5,
  restarts: 0,
  stepDeadlineMs: STEP_DEADLINE_MS,
  length: { rounds: ROUNDS },
};

const driver = swiftShaderEnvironment();

describe.skipIf(!driver)(`a run with the engine webgpu (${NO_DRIVER})`, () => {
  let stack: Stack;
  beforeAll(async () => {
    expect(parseRunSpec(RUN)).toMatchObject({ ok: true });
    stack = await Stack.start({ servers: 1, workers: 0 });
  });
  afterEach(() => stack.haveWorkers(0));
  afterAll(() => stack?.stop());

  test('is cancelled in its first step, and the same worker finishes the next; its record names the engine', async () => {
    const worker = await stack.addWorker(driver!);
    const endless = await stack.client.createRun({ ...RUN, length: { rounds: 100_000 } });
    // Its first step compiles shaders for a second: most of it is native code.
    await stack.until('training to start', STEP_DEADLINE_MS, async () =>
      typesOf(await eventsOf(stack, endless.id)).includes('training.started'),
    );
    await stack.client.cancelRun(endless.id);
    await untilStatus(stack, endless.id, ['CANCELLED'], STEP_DEADLINE_MS);
    const { id } = await stack.client.createRun(RUN);
    const hasEnded = (): boolean => worker.child.exitCode !== null || worker.child.signalCode !== null;
    await stack.until(
      'the next run to be over, or the worker to have ended',
      STEP_DEADLINE_MS,
      async () => hasEnded() || FINAL_STATUSES.has((await runOf(stack, id)).status),
    );
    expect(hasEnded(), 'native code whose thread ends does not take the process along').toBe(false);
    await untilStatus(stack, id, ['SUCCEEDED'], STEP_DEADLINE_MS);
    const { result, attempt } = await runOf(stack, id);
    expect(result).toMatchObject({ rounds: ROUNDS, trainedExamples: ROUNDS * 64 });
    expect(attempt).toBe(1);
    const losses = (await lossOf(stack, id)).map(({ value }) => value);
    expect(losses.at(-1)).toBeLessThan(losses[0]!);
    for (const type of ['worker.lost', 'seat.failed', 'worker.died']) expect(typesOf(await eventsOf(stack, id))).not.toContain(type);
    const member = (await stack.client.workers()).find(({ id: one }) => one === worker.ready.id);
    expect(member!.engine).toMatch(/^tfjs-webgpu 4\.22\.0; .*SwiftShader/);
    expect(member!.engines.find(({ name }) => name === 'webgpu')).toMatchObject({ isChosen: true });
    expect(member!.devices).toEqual([{ name: expect.stringContaining('SwiftShader') as string, type: 'CPU', memoryBytes: 0 }]);
    expect(hasEnded()).toBe(false);
  });

  test('a worker without a GPU gives up the seat, and the run says what to do', async () => {
    await stack.addWorker({ VK_ICD_FILENAMES: '/nowhere.json', VK_DRIVER_FILES: '/nowhere.json' });
    const { id } = await stack.client.createRun(RUN);
    await stack.until('the worker to give up', 30_000, async () => {
      const events = await eventsOf(stack, id);
      return events.some(({ message }) => message.includes('found no GPU adapter')) || events.map(({ message }) => message);
    });
    await stack.client.cancelRun(id);
    await untilStatus(stack, id, ['CANCELLED'], 30_000);
  });
});
