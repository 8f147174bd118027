/**
 * Logs are JSON lines on stderr, so that stdout stays free for the ready line and for results.
 * Secrets are removed by key and, in texts, by shape (passwords in URLs, bearer tokens, api keys).
 */
import { pino, type DestinationStream, type Logger } from 'pino';
import { readEnvironment, VARIABLES } from './environment.js';

export type { Logger } from 'pino';

const SECRET_KEYS = [
  'token',
  'secret',
  'password',
  'apiKey',
  'authorization',
  'DATABASE_URL',
  'REDIS_URL',
  'PACELINE_TOKEN_SECRET',
  'PACELINE_BOOTSTRAP_KEY',
];
const SECRET_PATHS = SECRET_KEYS.flatMap((key) => [key, `*.${key}`, `*.*.${key}`]);

/** Removes passwords of URLs, bearer tokens and api keys from a text. */
export function redactText(text: string): string {
  return text
    .replace(/(\b[a-z][a-z0-9+.-]{1,20}:\/\/[^\s:/@]*:)[^\s@/]+@/gi, '$1***@')
    .replace(/\b(Bearer\s+)[\w.~+/=-]{8,}/gi, '$1***')
    .replace(/\b(pcl_[0-9a-f]{0,12}_?)[\w-]{12,}/gi, '$1***')
    .replace(/\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}/g, '***');
}

/** @param name role of the process, e.g. `api` */
export function createLogger(
  name: string,
  bindings: Readonly<Record<string, unknown>> = {},
  destination: DestinationStream = stderrStream(),
): Logger {
  const { PACELINE_LOG_LEVEL: level } = readEnvironment({ PACELINE_LOG_LEVEL: VARIABLES.PACELINE_LOG_LEVEL });
  return pino(
    {
      name,
      level,
      base: { pid: process.pid, ...bindings },
      timestamp: pino.stdTimeFunctions.isoTime,
      redact: { paths: SECRET_PATHS, censor: '***' },
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: redactedError, error: redactedError },
      hooks: { streamWrite: redactText },
    },
    destination,
  );
}

function redactedError(error: unknown): unknown {
  return error instanceof Error ? pino.stdSerializers.err(error) : error;
}

/** Synchronous, so that the last line before an exit is not lost. A reader that went away (EPIPE) must not end the process. */
function stderrStream(): DestinationStream {
  const stream = pino.destination({ dest: 2, sync: true });
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
  });
  return stream;
}
