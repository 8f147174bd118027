/** What can go wrong before there is a connection; each says what to do. Errors on a connection are ProtocolErrors. */

import type { TlsErrorCode } from '@paceline/protocol';

export type ConnectErrorCode = 'UNREACHABLE' | 'CONNECT_DEADLINE' | 'BAD_ADDRESS' | TlsErrorCode;

/** No connection was made to the address. */
export class ConnectError extends Error {
  override readonly name = 'ConnectError';
  constructor(
    readonly code: ConnectErrorCode,
    readonly address: string,
    detail: string,
    options?: ErrorOptions,
  ) {
    super(`${code}: cannot connect to ${address}: ${detail}`, options);
  }
}

export type ListenErrorCode = 'PORT_IN_USE' | 'PATH_IN_USE' | 'NO_PERMISSION' | 'BAD_ADDRESS';

/** The listener could not take the port or path. */
export class ListenError extends Error {
  override readonly name = 'ListenError';
  constructor(
    readonly code: ListenErrorCode,
    readonly address: string,
    detail: string,
    options?: ErrorOptions,
  ) {
    super(`${code}: cannot listen on ${address}: ${detail}`, options);
  }
}

/** The kernel's bound on the name of a Unix socket, without the final zero. */
const MAX_UNIX_PATH_BYTES = 107;

/** Says why `path` cannot name a Unix socket; undefined when it can. */
export function unixPathFault(path: string): string | undefined {
  const bytes = Buffer.byteLength(path);
  if (bytes === 0 || path.includes('\0')) return 'the path is empty or holds a zero byte';
  return bytes > MAX_UNIX_PATH_BYTES
    ? `the path has ${bytes} bytes, a Unix socket takes at most ${MAX_UNIX_PATH_BYTES}; choose a shorter folder`
    : undefined;
}

export function portFault(port: number): string | undefined {
  return Number.isInteger(port) && port >= 0 && port <= 65_535 ? undefined : `${port} is no port; choose one of 0 to 65535`;
}
