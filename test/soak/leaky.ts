/**
 * A run whose model leaves a tensor behind in each step, and what the run says of the worker that began anew for it: test/soak/leak.test.ts.
 */
import type { RunSpecInput } from '@paceline/spec';
import type { Stack, TestProcess } from '@paceline/testkit';
import { expect } from 'vitest';
import { SPEC, eventsOf, logged, typesOf } from '../cluster/whole-runs.js';

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
