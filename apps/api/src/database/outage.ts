/**
 * Tells an outage of PostgreSQL from a fault of ours: an outage is answered with 503 and Retry-After and waited out by the
 * background work; a fault is a 500 and logged with its stack. A text that PostgreSQL cannot hold is a mistake of who sent it.
 */

/** All connections are in use, and none became free in time: PostgreSQL is there, too much is being asked. */
export class PoolFullError extends Error {
  override readonly name = 'PoolFullError';
  constructor(options?: ErrorOptions) {
    super(POOL_FULL, options);
  }
}
const POOL_FULL = 'all connections to PostgreSQL are in use';

const PRISMA_CODES = new Set(['P1000', 'P1001', 'P1002', 'P1003', 'P1008', 'P1011', 'P1017', 'P2024', 'P2028', 'P2037']);
const SYSTEM_CODES = new Set(['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'ENOTFOUND', 'EHOSTUNREACH', 'EAI_AGAIN']);
/** Admin shutdown, crash shutdown, cannot connect now, too many connections, statement timeout, a transaction that stood still; class 08 is "connection exception". */
const POSTGRES_CODES = new Set(['57P01', '57P02', '57P03', '53300', '57014', '25P03']);
/** A character that the encoding has not, and its escape in JSON: both are U+0000. */
const UNSTORABLE_CODES = new Set(['22021', '22P05']);
const ADAPTER_KINDS = new Set([
  'DatabaseNotReachable',
  'ConnectionClosed',
  'SocketTimeout',
  'TlsConnectionError',
  'TooManyConnections',
  'DatabaseDoesNotExist',
  'AuthenticationFailed',
]);
const MESSAGES =
  /Connection terminated|timeout exceeded when trying to connect|Client has encountered a connection error|not queryable|Can't reach database|Server has closed the connection|Transaction API error|Query read timeout|Connection ended unexpectedly/i;

/** Answered with 503 and Retry-After, too; for the background work it is one more thing to wait out. */
export function isPoolFull(error: unknown): boolean {
  // oxlint-disable-next-line messages/decide-nothing -- pg's pool gives this error no code
  return links(error).some(({ message }) => typeof message === 'string' && message.includes(POOL_FULL));
}

/** @returns true also for a pool that is full: whoever tells them apart asks `isPoolFull` first */
export function isDatabaseOutage(error: unknown): boolean {
  return isPoolFull(error) || links(error).some(isOutage);
}

/** A text had U+0000 in it, which PostgreSQL neither stores nor compares with. */
export function isUnstorableText(error: unknown): boolean {
  return links(error).some(({ originalCode }) => typeof originalCode === 'string' && UNSTORABLE_CODES.has(originalCode));
}

/** An error and its causes, as Prisma and its adapter chain them. */
function links(error: unknown): Record<string, unknown>[] {
  const found: Record<string, unknown>[] = [];
  let current: unknown = error;
  while (found.length < 6 && current !== null && typeof current === 'object') {
    const link = current as Record<string, unknown>;
    found.push(link);
    current = link['cause'] ?? (link['meta'] as Record<string, unknown> | undefined)?.['driverAdapterError'];
  }
  return found;
}

function isOutage({ code, kind, originalCode, message }: Record<string, unknown>): boolean {
  const texts = [code, originalCode].filter((text) => typeof text === 'string');
  if (texts.some((text) => PRISMA_CODES.has(text) || SYSTEM_CODES.has(text) || POSTGRES_CODES.has(text) || /^08\w{3}$/.test(text)))
    return true;
  // oxlint-disable-next-line messages/decide-nothing -- pg and the query engine give these errors no code
  return (typeof kind === 'string' && ADAPTER_KINDS.has(kind)) || (typeof message === 'string' && MESSAGES.test(message));
}
