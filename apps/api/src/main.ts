/** The api process: `node dist/main.js`. Prints one ready line; logs go to stderr. */
import './wasm-tiering.js';
import { announceReady, createLogger, exitWithError, onShutdown } from '@paceline/runtime';
import { startApi } from './api-process.js';
import { readSettings } from './environment.js';

try {
  const settings = readSettings(process.env);
  const log = createLogger('api');
  const api = await startApi(settings, log);
  onShutdown(() => api.stop(), { deadlineMs: 5_000, onProblem: (message, err) => log.error({ err }, message) });
  announceReady({ role: 'api', id: `api-${process.pid}`, url: api.url, ...(api.bootstrapKey ? { bootstrapKey: api.bootstrapKey } : {}) });
} catch (error) {
  exitWithError(error);
}
