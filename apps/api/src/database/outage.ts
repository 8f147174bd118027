/**
 * Tells an outage of PostgreSQL from a fault of ours: an outage is answered with 503 and Retry-After and waited out by the
 * background work; a fault is a 500 and logged with its stack.
 */
const PRISMA_CODES = new Set(['P1000', 'P1001', 'P1002', 'P1003', 'P1008', 'P1011', 'P1017', 'P2024', 'P2028', 'P2037']);
const SYSTEM_CODES = new Set(['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'ENOTFOUND', 'EHOSTUNREACH', 'EAI_AGAIN']);
/** Admin shutdown, crash shutdown, cannot connect now, too many connections, statement timeout, a transaction that stood still; class 08 is "connection exception". */
const POSTGRES_CODES = new Set(['57P01', '57P02', '57P03', '53300', '57014', '25P03']);
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

export function isDatabaseOutage(error: unknown): boolean {
  let current: unknown = error;
  for (let depth = 0; depth < 6 && current !== null && typeof current === 'object'; depth++) {
    const { code, kind, originalCode, message, cause, meta } = current as Record<string, unknown>;
    for (const text of [code, originalCode]) {
      if (
        typeof text === 'string' &&
        (PRISMA_CODES.has(text) || SYSTEM_CODES.has(text) || POSTGRES_CODES.has(text) || /^08\w{3}$/.test(text))
      )
        return true;
    }
    if (typeof kind === 'string' && ADAPTER_KINDS.has(kind)) return true;
    // eslint-disable-next-line messages/decide-nothing -- pg and the query engine give these errors no code
    if (typeof message === 'string' && MESSAGES.test(message)) return true;
    current = cause ?? (meta as Record<string, unknown> | undefined)?.['driverAdapterError'];
  }
  return false;
}
