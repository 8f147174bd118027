/** Of two workers one leaks: it begins anew while the other goes on, with the bits of a run without. Of an asynchronous run the only one leaks. Alone in a synchronous one: test/cluster/leaks.ts. */
import type { RunSpecInput } from '@paceline/spec';
import { Stack } from '@paceline/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { LEAKY, PLANTED, SUSPECT, expectRecycled } from '../cluster/leaks.js';
import { eventsOf, expectComplete, reference, typesOf, untilStatus } from '../cluster/whole-runs.js';

/** The leaky one may come late: enough rounds are left for it to be found. */
const LONG: RunSpecInput = { ...LEAKY, length: { rounds: 1_200 } };

let stack: Stack;
beforeAll(async () => {
  await reference(LONG);
  stack = await Stack.start({ servers: 1, workers: 1 });
});
afterAll(() => stack?.stop());

test('one worker of two leaks and begins anew', async () => {
  const leaky = await stack.addWorker(PLANTED);
  const { id } = await stack.client.createRun(LONG);
  await expectComplete(stack, id, LONG);
  await expectRecycled(stack, id, leaky);
});

test('the only worker of an asynchronous run begins anew between two work items', async () => {
  await stack.haveWorkers(0);
  const leaky = await stack.addWorker(PLANTED);
  const { id } = await stack.client.createRun({
    ...LEAKY,
    length: { rounds: 200 },
    strategy: { kind: 'parameter-server', mode: 'async' },
  });
  await untilStatus(stack, id, ['SUCCEEDED'], 90_000);
  const events = await eventsOf(stack, id);
  const { data } = events.find(({ type }) => type === 'worker.recycled')!;
  expect(data).toEqual({ workerId: leaky.ready.id, what: 'thread', suspect: SUSPECT });
  for (const type of ['worker.lost', 'seat.failed']) expect(typesOf(events)).not.toContain(type);
  expect(leaky.child.exitCode).toBeNull();
});
