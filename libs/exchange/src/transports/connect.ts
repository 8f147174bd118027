/** Opens a connection to a server: by its Unix socket on the same host, else by TCP. */
import { stat } from 'node:fs/promises';
import { Socket, type SocketConnectOpts } from 'node:net';
import type { Connection } from '../connection.js';
import { ConnectError, portFault, unixPathFault } from './errors.js';
import { FramedConnection } from './framed-connection.js';
import { resolveOptions, type ConnectionOptions } from './limits.js';
import { SocketStream, socketReadingInPlace } from './socket-stream.js';

export interface ServerAddress {
  readonly host: string;
  readonly port: number;
  /** A path that no other server of any host uses (it holds the server's id): on another host it then does not exist. */
  readonly unixPath: string | null;
}

export interface ConnectOptions extends ConnectionOptions {
  /** For everything until the connection stands. */
  readonly deadlineMs: number;
  /** `auto` (default) takes the Unix socket if its path exists on this host and answers, else TCP. */
  readonly transport?: 'auto' | 'unix' | 'tcp';
}

/**
 * The connection reads nothing before it has its receiver.
 * @throws ConnectError UNREACHABLE, CONNECT_DEADLINE, BAD_ADDRESS
 */
export async function connect(address: ServerAddress, options: ConnectOptions): Promise<Connection> {
  const deadlineAtMs = performance.now() + options.deadlineMs;
  const transport = options.transport ?? 'auto';
  const path = address.unixPath;
  if (transport === 'unix') {
    if (path === null)
      throw new ConnectError('BAD_ADDRESS', `${address.host}:${address.port}`, 'the server has no Unix socket; use transport tcp');
    return open({ path }, 'unix', path, deadlineAtMs, options);
  }
  if (transport === 'auto' && path !== null && (await isSocket(path))) {
    try {
      return await open({ path }, 'unix', path, deadlineAtMs, options);
    } catch (error) {
      // A path left behind by a dead server: TCP decides. Out of time is out of time.
      if (!(error instanceof ConnectError) || error.code === 'CONNECT_DEADLINE') throw error;
    }
  }
  const { host, port } = address;
  return open({ host, port }, 'tcp', `${host}:${port}`, deadlineAtMs, options);
}

async function isSocket(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isSocket();
  } catch {
    // Not on this host, or not ours to see: either way no way in.
    return false;
  }
}

function open(
  target: SocketConnectOpts,
  kind: 'unix' | 'tcp',
  name: string,
  deadlineAtMs: number,
  options: ConnectOptions,
): Promise<Connection> {
  const fault = 'path' in target ? unixPathFault(target.path) : portFault(target.port);
  if (fault) return Promise.reject(new ConnectError('BAD_ADDRESS', name, fault));
  const resolved = resolveOptions(options);
  const connection = new FramedConnection(resolved, { kind: 'dials' });
  const socket = resolved.directReads ? socketReadingInPlace(connection) : new Socket();
  return new Promise((resolve, reject) => {
    const leftMs = Math.max(1, deadlineAtMs - performance.now());
    const fail = (error: ConnectError): void => {
      clearTimeout(timer);
      socket.destroy();
      reject(error);
    };
    const onError = (error: Error): void => fail(new ConnectError('UNREACHABLE', name, error.message, { cause: error }));
    const timer = setTimeout(() => {
      fail(
        new ConnectError(
          'CONNECT_DEADLINE',
          name,
          `no answer within ${options.deadlineMs} ms; is the server running, and is the network path to it open?`,
        ),
      );
    }, leftMs);
    socket.once('error', onError);
    socket.once('connect', () => {
      clearTimeout(timer);
      socket.off('error', onError);
      connection.attach(new SocketStream(socket, kind, name, resolved.directReads, connection));
      resolve(connection);
    });
    // Nothing may be read before there is a receiver.
    socket.pause();
    socket.connect(target);
  });
}
