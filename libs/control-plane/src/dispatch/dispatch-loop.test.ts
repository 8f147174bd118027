import { expect, test } from 'vitest';
import { DispatchLoop } from './dispatch-loop.js';

/** A loop whose ticks come when they are asked for. */
function loopWith(reconciles: () => number) {
  let actions = 0;
  let sent = 0;
  let act: (() => void) | undefined;
  const loop = new DispatchLoop({
    after: (_ms, next) => {
      act = next;
      return () => (act = undefined);
    },
    random: () => 0.5,
    sendOutbox: async () => Promise.resolve(Number(++sent < 0)),
    holdLock: async () => Promise.resolve(true),
    reconcile: async () => Promise.resolve(((actions += reconciles()), [])),
    actions: () => actions,
    failed: (error) => {
      throw error;
    },
  });
  loop.start();
  const tick = async (): Promise<number> => {
    const [before, next] = [sent, act];
    act = undefined;
    next?.();
    while (!act) await new Promise((resolve) => setImmediate(resolve));
    return sent - before;
  };
  return tick;
}

test('the outbox is sent again behind the reconciler where that has done something, and not otherwise', async () => {
  let acts = 0;
  const tick = loopWith(() => acts);
  expect(await tick()).toBe(1);
  acts = 2;
  expect(await tick()).toBe(2);
  acts = 0;
  expect(await tick()).toBe(1);
});
