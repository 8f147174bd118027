/**
 * A worker whose engine leaks begins anew between two rounds: the run has the bits of one without, and says which layer it was. On a stack with
 * one server; workers of its own. Beside another worker, and in an asynchronous run: test/soak/leak.test.ts.
 */
import type { RunSpecInput } from '@paceline/spec';
import type { Stack, TestProcess } from '@paceline/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { SPEC, eventsOf, expectComplete, logged, reference, typesOf } from './whole-runs.js';

export const LEAKY: RunSpecInput = {
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
  // Enough to be found, to begin anew and to end.
  length: { rounds: 250 },
};
export const PLANTED = {
  NODE_OPTIONS: `--import=${new URL('keeps-tensors.mjs', import.meta.url).href}`,
  PACELINE_LEAK_TENSORS: '150',
};

export const SUSPECT = 'layer leaky (Dense), operation Square: it leaves 1 tensor (5120 bytes) behind in a step';

/** It was found, named, and begun anew in the same process. */
export async function expectRecycled(stack: Stack, id: string, leaky: TestProcess): Promise<void> {
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
}

export const leaks = (given: () => Stack): void => {
  describe('a worker that leaks', () => {
    let stack: Stack;
    let leaky: TestProcess;
    beforeAll(async () => {
      stack = given();
      await reference(LEAKY);
      await stack.haveWorkers(0);
      leaky = await stack.addWorker(PLANTED);
    });
    afterAll(() => stack.haveWorkers(0));

    test('begins anew between two rounds', async () => {
      const { id } = await stack.client.createRun(LEAKY);
      await expectComplete(stack, id, LEAKY);
      await expectRecycled(stack, id, leaky);
    });
  });
};
