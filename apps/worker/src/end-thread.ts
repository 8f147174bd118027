/**
 * Ends a thread. Native code may abort the whole process if its thread is terminated in the middle of it, so such a thread is asked to end by
 * itself first. In either case the thread is gone when the promise settles.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Worker } from 'node:worker_threads';

/**
 * @param ask tells the thread to end by itself; without it the thread is terminated at once
 * @param deadlineMs for the thread to follow; then it is terminated all the same
 * @returns what ends the thread, once: later calls wait for the same end
 */
export function endingOf(thread: Worker, ask: (() => void) | undefined, deadlineMs: number): () => Promise<void> {
  let ending: Promise<void> | undefined;
  return () => (ending ??= end(thread, ask, deadlineMs));
}

async function end(thread: Worker, ask: (() => void) | undefined, deadlineMs: number): Promise<void> {
  thread.on('error', () => undefined); // an error on the way out changes nothing for who has no use for the thread any more
  try {
    if (ask && thread.threadId !== -1) {
      const exit = new Promise<void>((resolve) => thread.once('exit', () => resolve()));
      ask();
      await Promise.race([exit, sleep(deadlineMs, undefined, { ref: false })]);
    }
  } finally {
    await thread.terminate();
  }
}
