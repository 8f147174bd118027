import { MessageChannel } from 'node:worker_threads';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import type { FromCompute, ToCompute } from './compute-protocol.js';
import { ring, takeMessages, type ThreadMessages } from './thread-messages.js';

/** A thread with a bell, whose other side is here too. */
function setUp(parts: Partial<ThreadMessages> = {}) {
  const { port1, port2 } = new MessageChannel();
  const bell = { cells: new Int32Array(new SharedArrayBuffer(8)), cell: 1 };
  const handled: (number | string)[] = [];
  const sent: FromCompute[] = [];
  const post = (message: ToCompute): void => {
    port1.postMessage(message);
    ring(bell);
  };
  const trace = (isOn: boolean): void => post({ kind: 'trace', isOn });
  takeMessages(port2, {
    handle: (message) => {
      handled.push(message.kind);
      if (message.kind === 'stop') port2.close();
      parts.handle?.(message);
    },
    send: (message) => sent.push(message),
    bell,
    ahead: parts.ahead,
  });
  return { bell, handled, sent, post, trace, stop: () => post({ kind: 'stop' }) };
}

it('takes messages in their order, without a turn of the event loop between them, and does what can be done ahead where there is none', async () => {
  let turns = 0;
  let parts = 2;
  const seen: [what: string, turns: number][] = [];
  const thread = setUp({
    handle: ({ kind }) => {
      seen.push([kind, turns]);
      // What comes while it works: another message, then the end.
      if (seen.length === 1) thread.post({ kind: 'free', vectors: [] });
    },
    ahead: () => {
      seen.push(['ahead', turns]);
      if (parts === 0) thread.stop();
      return parts-- > 0;
    },
  });
  thread.trace(true);
  const count = setInterval(() => turns++, 0);
  await sleep(400);
  clearInterval(count);
  expect(seen.map(([what]) => what)).toEqual(['trace', 'free', 'ahead', 'ahead', 'ahead', 'stop']);
  expect(new Set(seen.map(([, at]) => at)).size).toBe(1);
});

it('sleeps by its bell, and gives the event loop a turn all the same', async () => {
  let looks = 0;
  const thread = setUp({ ahead: () => (looks++, false) });
  await sleep(50);
  const sinceMs = performance.now();
  await sleep(1);
  await sleep(1);
  expect(performance.now() - sinceMs).toBeLessThan(5_000);
  expect(looks).toBeGreaterThan(0);
  expect(looks).toBeLessThan(100);
  thread.stop();
  await sleep(300);
  const atEnd = looks;
  await sleep(300);
  expect([thread.handled, looks - atEnd]).toEqual([['stop'], 0]);
});

it('says what has failed, and goes on', async () => {
  const thread = setUp({
    handle: ({ kind }) => {
      if (kind === 'step') throw Object.assign(new Error('no memory'), { code: 'ENGINE_MEMORY' });
    },
  });
  thread.post({ kind: 'step', round: 3, replicas: [0], free: [] });
  thread.stop();
  await sleep(1);
  await sleep(1);
  expect(thread.sent).toEqual([{ kind: 'failed', code: 'ENGINE_MEMORY', message: 'no memory', round: 3, replica: -1 }]);
  expect(thread.handled).toEqual(['step', 'stop']);
});

it('says what has failed of what it does ahead, does no more of that, and takes messages all the same', async () => {
  let calls = 0;
  const thread = setUp({
    ahead: () => {
      calls++;
      throw Object.assign(new Error('no memory'), { code: 'ENGINE_MEMORY' });
    },
  });
  await sleep(50);
  thread.trace(true);
  thread.stop();
  await sleep(50);
  expect(thread.sent).toEqual([{ kind: 'failed', code: 'ENGINE_MEMORY', message: 'no memory', round: 0, replica: -1 }]);
  expect([calls, thread.handled]).toEqual([1, ['trace', 'stop']]);
});
