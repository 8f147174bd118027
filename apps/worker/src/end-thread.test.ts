import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { expect, it } from 'vitest';
import { endingOf } from './end-thread.js';

const LONG_MS = 20_000;

async function threadThat(does: string): Promise<Worker> {
  const thread = new Worker(`const { parentPort } = require('node:worker_threads'); ${does}; parentPort.postMessage('ready');`, {
    eval: true,
  });
  await once(thread, 'message');
  return thread;
}
const asking = (thread: Worker) => (): void => thread.postMessage('end');

it('a thread that fails while it is asked to end is ended all the same', async () => {
  const thread = await threadThat(`parentPort.on('message', () => { throw new Error('planted') })`);
  await endingOf(thread, asking(thread), LONG_MS)();
  expect(thread.threadId).toBe(-1);
});

it('who ends a thread again waits for the first end: the thread is not terminated in the middle of its step', async () => {
  const done = new Int32Array(new SharedArrayBuffer(4));
  const thread = await threadThat(
    `parentPort.on('message', (done) => setTimeout(() => { Atomics.store(done, 0, 1); parentPort.close(); }, 200))`,
  );
  let asked = 0;
  const ask = (): void => {
    asked += 1;
    thread.postMessage(done);
  };
  const end = endingOf(thread, ask, LONG_MS);
  void end();
  await end();
  expect({ asked, done: Atomics.load(done, 0) }).toEqual({ asked: 1, done: 1 });
});

it('a thread that does not follow in time, or is not asked, is terminated', async () => {
  const deaf = await threadThat(`parentPort.on('message', () => undefined)`);
  await endingOf(deaf, asking(deaf), 50)();
  const unasked = await threadThat(`parentPort.on('message', () => undefined)`);
  await endingOf(unasked, undefined, LONG_MS)();
  expect([deaf.threadId, unasked.threadId]).toEqual([-1, -1]);
});
