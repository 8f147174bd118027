/** Worker process: `node dist/main.js`. Prints one ready line; logs go to stderr. */
import { announceReady, exitWithError, onShutdown } from '@paceline/runtime';
import { startWorker } from './worker-process.js';

try {
  const worker = startWorker(process.env);
  onShutdown(() => worker.stop(), { deadlineMs: 6_000 });
  announceReady({ role: 'worker', id: worker.id });
} catch (error) {
  exitWithError(error);
}
