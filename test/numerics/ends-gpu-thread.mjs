/** Preloaded by a test into every thread of a process: the GPU thread throws, outside of any request's handling, when the first score is asked for. */
import { workerData } from 'node:worker_threads';

workerData?.port?.on('message', ({ kind }) => {
  if (kind === 'evaluate') throw new Error('planted: the thread ends here');
});
