import { expect, it } from 'vitest';
import { ClosureQueue, WorkerGone, type WorkerCall } from './closure-queue.js';

interface Called {
  readonly worker: number;
  readonly closure: string;
  end(value?: string): void;
  fail(error: Error): void;
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

class Lost extends Error {
  constructor(
    readonly workers: readonly number[],
    message: string,
  ) {
    super(message);
  }
}

function queueOf(workers: number, isBack: (worker: number) => boolean = () => true) {
  const calls: Called[] = [];
  const timers: (() => void)[] = [];
  const port: WorkerCall<string, string> = {
    call: (worker, closure) =>
      new Promise((resolve, reject) => calls.push({ worker, closure, end: (value = closure) => resolve(value), fail: reject })),
    revive: async (worker) => isBack(worker),
    lostBy: (lost, message) => new Lost(lost, message),
    after: (_, act) => {
      timers.push(act);
      return () => timers.splice(timers.indexOf(act), 1);
    },
  };
  const queue = new ClosureQueue(port, { workers, mostWaiting: 4, mostLosses: 3, reviveMs: 10, lonelyMs: 30 });
  const tick = async (): Promise<void> => {
    for (const act of timers.splice(0)) act();
    await settled();
  };
  return { queue, calls, tick, timers };
}

it('gives functions to free workers in their order', async () => {
  const { queue, calls } = queueOf(2);
  const values = ['a', 'b', 'c'].map((name) => queue.put(name));
  expect(calls.map(({ worker, closure }) => [worker, closure])).toEqual([
    [0, 'a'],
    [1, 'b'],
  ]);
  calls[1]!.end();
  await settled();
  expect(calls[2]).toMatchObject({ worker: 1, closure: 'c' });
  expect(queue.isDone).toBe(false);
  for (const call of calls) call.end();
  await queue.done();
  expect(await Promise.all(values)).toEqual(['a', 'b', 'c']);
});

it('a function whose worker was lost goes to another one, before those that wait; the worker comes back', async () => {
  let isBack = false;
  const { queue, calls, tick, timers } = queueOf(2, () => isBack);
  const values = ['a', 'b', 'c', 'd'].map((name) => queue.put(name));
  calls[0]!.fail(new WorkerGone('killed'));
  await settled();
  expect(calls.length).toBe(2);
  calls[1]!.end();
  await settled();
  expect(calls[2]).toMatchObject({ worker: 1, closure: 'a' });
  await tick();
  isBack = true;
  await tick();
  expect(calls[3]).toMatchObject({ worker: 0, closure: 'c' });
  for (let i = 2; i < 5; i++) {
    calls[i]!.end();
    await settled();
  }
  expect(await Promise.all(values)).toEqual(['a', 'b', 'c', 'd']);
  expect(timers).toEqual([]);
});

it('a function that loses every worker is given up; so are all when no worker comes back', async () => {
  const { queue, calls, tick } = queueOf(1);
  const value = queue.put('a');
  for (let i = 0; i < 3; i++) {
    calls[i]!.fail(new WorkerGone('killed'));
    await settled();
    await tick();
  }
  await expect(value).rejects.toEqual(new Lost([0], 'the function has lost its worker 3 times: killed'));
  const alone = queueOf(1, () => false);
  const waits = alone.queue.put('b');
  alone.calls[0]!.fail(new WorkerGone('killed'));
  await settled();
  for (let i = 0; i < 3; i++) await alone.tick();
  await expect(waits).rejects.toEqual(new Lost([0], 'all 1 workers have been gone for 30 ms: start them again'));
});

it('a function that throws after it has lost a worker fails with what it throws; all fail when no worker can come back', async () => {
  const { queue, calls, tick } = queueOf(1);
  const [value, thrown] = [queue.put('a'), new TypeError('no such row')];
  calls[0]!.fail(new WorkerGone('killed'));
  await settled();
  await tick();
  calls[1]!.fail(thrown);
  await expect(value).rejects.toBe(thrown);
  const gone = new Error('a server is gone');
  const never = queueOf(1, () => {
    throw gone;
  });
  const [first, second] = [never.queue.put('b'), never.queue.put('c')];
  never.calls[0]!.fail(new WorkerGone('killed'));
  await settled();
  await never.tick();
  await expect(first).rejects.toBe(gone);
  await expect(second).rejects.toMatchObject({ code: 'STRATEGY_CANCELLED', cause: gone });
  expect(never.queue.failure).toBe(gone);
  expect(never.timers).toEqual([]);
});

it('when a function throws, those that wait are cancelled, and later ones are taken', async () => {
  const { queue, calls } = queueOf(1);
  const [a, b] = [queue.put('a'), queue.put('b')];
  calls[0]!.fail(new TypeError('no such row'));
  await queue.done();
  await expect(a).rejects.toThrow('no such row');
  await expect(b).rejects.toMatchObject({
    code: 'STRATEGY_CANCELLED',
    message: 'cancelled, as another function has failed: no such row',
  });
  expect(queue.failure).toBeInstanceOf(TypeError);
  const later = queue.put('c');
  calls[1]!.end();
  expect(await later).toBe('c');
});
