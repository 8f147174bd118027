/** A worker whose engine leaks begins anew between two rounds, alone or beside another that goes on: the run has the bits of one without. So does the only one of an asynchronous run. */
import type { RunSpecInput } from '@paceline/spec';
import { Stack } from '@paceline/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { eventsOf, expectComplete, reference, typesOf, untilStatus } from '../cluster/whole-runs.js';
import { LEAKY, PLANTED, SUSPECT, expectRecycled } from './leaky.js';

/** The leaky one may come late: enough rounds are left for it to be found. */
const LONG: RunSpecInput = { ...LEAKY, length: { rounds: 1_200 } };

let stack: Stack;
beforeAll(async () => {
  await reference(LONG);
  stack = await Stack.start({ servers: 1, workers: 1 });
});
afterAll(() => stack?.stop());

test('the only worker begins anew between two rounds', async () => {
  await stack.haveWorkers(0);
  const leaky = await stack.addWorker(PLANTED);
  const { id } = await stack.client.createRun(LEAKY);
  await expectComplete(stack, id, LEAKY);
  await expectRecycled(stack, id, leaky);
  await stack.haveWorkers(0);
  await stack.haveWorkers(1);
});

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
