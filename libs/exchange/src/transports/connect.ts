/** Opens a connection to a server: by its Unix socket on the same host, else by TCP, encrypted where that is set. */
import { stat } from 'node:fs/promises';
import { Socket, type SocketConnectOpts } from 'node:net';
import type { TLSSocket } from 'node:tls';
import type { TlsErrorCode } from '@paceline/protocol';
import type { Connection } from '../connection.js';
import { ConnectError, portFault, unixPathFault } from './errors.js';
import { FramedConnection } from './framed-connection.js';
import { resolveOptions, type ConnectionOptions } from './limits.js';
import { socketReadingInPlace, streamOver, type SocketKind } from './socket-stream.js';
import { dialFault, dialTls, ReadingGate, refuseServer } from './tls/dial.js';
import { peerFault } from './tls/peer.js';

export interface ServerAddress {
  /** Name or address; several with commas between them are tried in their order. */
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
 * @throws ConnectError UNREACHABLE, CONNECT_DEADLINE, BAD_ADDRESS, and under TLS those of `peerFault` and `dialFault`
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
  return openFirst(address.host.split(','), address.port, deadlineAtMs, options);
}

/** Each has its part of the time that is left. */
async function openFirst(hosts: readonly string[], port: number, deadlineAtMs: number, options: ConnectOptions): Promise<Connection> {
  const troubles: ConnectError[] = [];
  for (const [i, host] of hosts.entries()) {
    const nowMs = performance.now();
    const untilMs = nowMs + (deadlineAtMs - nowMs) / (hosts.length - i);
    try {
      return await open({ host, port }, options.tls ? 'tls' : 'tcp', `${host}:${port}`, untilMs, options);
    } catch (error) {
      troubles.push(error as ConnectError);
    }
  }
  const [first] = troubles;
  if (troubles.length === 1) throw first!;
  // What a peer said about certificates says more than that another address leads nowhere.
  const { code } = troubles.find((trouble) => trouble.code.startsWith('TLS_')) ?? first!;
  throw new ConnectError(code, hosts.map((host) => `${host}:${port}`).join(', '), troubles.map(({ message }) => message).join('; '));
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
  target: { readonly path: string } | { readonly host: string; readonly port: number },
  kind: SocketKind,
  name: string,
  deadlineAtMs: number,
  options: ConnectOptions,
): Promise<Connection> {
  const fault = 'path' in target ? unixPathFault(target.path) : portFault(target.port);
  if (fault) return Promise.reject(new ConnectError('BAD_ADDRESS', name, fault));
  const resolved = resolveOptions(options);
  const connection = new FramedConnection(resolved, { kind: 'dials' });
  const tls = 'path' in target ? undefined : resolved.tls;
  const gate = tls && resolved.directReads ? new ReadingGate(connection) : undefined;
  return new Promise((resolve, reject) => {
    const leftMs = Math.max(1, deadlineAtMs - performance.now());
    const fail = (error: ConnectError): void => {
      clearTimeout(timer);
      socket.destroy();
      reject(error);
    };
    const onError = (error: Error): void => {
      const said = tls && dialFault(error);
      fail(new ConnectError((said?.code as TlsErrorCode) ?? 'UNREACHABLE', name, said?.detail ?? error.message, { cause: error }));
    };
    const timer = setTimeout(() => {
      const means = `no answer within ${Math.round(leftMs)} ms; is the server running, and is the network path to it open?`;
      fail(new ConnectError('CONNECT_DEADLINE', name, means));
    }, leftMs);
    const onStanding = (): void => {
      clearTimeout(timer);
      socket.off('error', onError);
      const refused = tls && peerFault(socket as TLSSocket, tls);
      if (refused) {
        socket.on('error', () => socket.destroy());
        refuseServer(socket as TLSSocket, refused);
        return reject(new ConnectError(refused.code as TlsErrorCode, name, `the server: ${refused.detail}`));
      }
      connection.attach(streamOver(socket, kind, name, resolved.directReads, connection, resolved.link, gate));
      resolve(connection);
    };
    const socket = tls
      ? dialTls(target as { host: string; port: number }, tls, gate)
      : dialPlain(target, resolved.directReads ? socketReadingInPlace(connection) : new Socket());
    socket.once('error', onError);
    socket.once(tls ? 'secureConnect' : 'connect', onStanding);
  });
}

function dialPlain(target: SocketConnectOpts, socket: Socket): Socket {
  // Nothing may be read before there is a receiver.
  socket.pause();
  return socket.connect(target);
}
