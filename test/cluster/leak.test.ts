/** A worker whose engine leaks begins anew between two rounds: the run has the bits of one without, and says which layer it was. */
import type { RunSpecInput } from '@paceline/spec';
import { Stack } from '@paceline/testkit';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { SPEC, eventsOf, expectComplete, logged, reference, typesOf, untilStatus } from './whole-runs.js';

const LEAKY: RunSpecInput = {
  ...SPEC,
  model: {
    topology: {
      class_name: 'Sequential',
      config: {
        layers: [
          { class_name: 'Dense', config: { name: 'hidden', units: 64, activation: 'relu', batch_input_shape: [null, 784] } },
          { class_name: 'Dense', config: { name: 'leaky', units: 10 } },
        ],
      },
    },
  },
  // Of two workers the leaky one may come late: enough rounds are left for it to be found.
  length: { rounds: 450 },
};
const PLANTED = {
  NODE_OPTIONS: `--import=${new URL('keeps-tensors.mjs', import.meta.url).href}`,
  PACELINE_LEAK_TENSORS: '150',
};

const SUSPECT = 'layer leaky (Dense), operation Square: it leaves 1 tensor (5120 bytes) behind in a step';

let stack: Stack;
beforeAll(async () => {
  await reference(LEAKY);
  stack = await Stack.start({ servers: 1, workers: 0 });
});
afterEach(() => stack.haveWorkers(0));
afterAll(() => stack?.stop());

test.each([
  ['the only worker of a run', 1],
  ['one worker of two', 2],
])('%s leaks and begins anew', async (_, workers) => {
  const leaky = await stack.addWorker(PLANTED);
  if (workers > 1) await stack.addWorker();
  const { id } = await stack.client.createRun(LEAKY);
  await expectComplete(stack, id, LEAKY);

  const events = await eventsOf(stack, id);
  const recycled = events.filter(({ type }) => type === 'worker.recycled');
  expect(recycled.length).toBeGreaterThanOrEqual(1);
  for (const { message, data } of recycled) {
    expect(data).toEqual({ workerId: leaky.ready.id, what: 'thread', suspect: SUSPECT });
    expect(message).toMatch(
      new RegExp(`^worker ${leaky.ready.id} leaks: \\d+ more tensors in \\d+ rounds, [\\d.]+ more tensors a round; `),
    );
    expect(message).toContain(SUSPECT);
  }
  expect(events.find(({ type }) => type === 'worker.left')?.message).toContain('leaks memory');
  for (const type of ['worker.lost', 'seat.failed']) expect(typesOf(events)).not.toContain(type);

  expect(leaky.child.exitCode, 'the process is the same').toBeNull();
  expect(logged(leaky, 'step task taken', id).length, 'it has taken a seat again').toBeGreaterThanOrEqual(2);
});

test('a worker of an asynchronous run leaks and begins anew between two tokens', async () => {
  const leaky = await stack.addWorker(PLANTED);
  const { id } = await stack.client.createRun({ ...LEAKY, length: { rounds: 200 }, strategy: { kind: 'parameter-server', mode: 'async' } });
  await untilStatus(stack, id, ['SUCCEEDED'], 90_000);
  const events = await eventsOf(stack, id);
  expect(events.find(({ type }) => type === 'worker.recycled')?.data).toEqual({
    workerId: leaky.ready.id,
    what: 'thread',
    suspect: SUSPECT,
  });
  for (const type of ['worker.lost', 'seat.failed']) expect(typesOf(events)).not.toContain(type);
  expect(leaky.child.exitCode).toBeNull();
});
