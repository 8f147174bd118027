/**
 * Preloaded by a test into every thread of a process: the GPU thread throws, outside of any request's handling, when the first score is asked for,
 * or with PLANTED_AT=start before it is ready.
 */
import { workerData } from 'node:worker_threads';

if (workerData?.port && process.env.PLANTED_AT === 'start') throw new Error('planted: the thread does not start');
workerData?.port?.on('message', ({ kind }) => {
  if (kind === 'evaluate') throw new Error('planted: the thread ends here');
});
