/** Parameter-server process: `node dist/main.js`. Prints one ready line; logs go to stderr. */
import { announceReady, exitWithError, onShutdown } from '@paceline/runtime';
import { startServer } from './server-process.js';

try {
  const server = await startServer(process.env);
  onShutdown((reason) => server.stop(`parameter server ${server.id} was stopped (${reason})`), { deadlineMs: server.stopDeadlineMs });
  announceReady({ role: 'ps', id: server.id, address: server.address });
} catch (error) {
  exitWithError(error);
}
