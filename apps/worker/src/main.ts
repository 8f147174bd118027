/** Worker process: `node dist/main.js`. Prints one ready line; logs go to stderr. */
import { announceReady, EXIT, exitWithError, onShutdown, requestShutdown } from '@paceline/runtime';
import { startWorker } from './worker-process.js';

try {
  const worker = await startWorker(process.env, () => requestShutdown());
  onShutdown(() => worker.stop(), { deadlineMs: 8_000, exitCode: (reason) => (reason === 'requested' ? EXIT.outgrown : EXIT.ok) });
  announceReady({ role: 'worker', id: worker.id });
} catch (error) {
  exitWithError(error);
}
