/**
 * Accepts connections on a Unix socket, a TCP port, or both. A connection reaches the application only when its `hello` has
 * come whole and well-formed; until then it is one of a bounded number of pending ones, with a deadline. When there are too
 * many, one of the host that has the most goes (`PendingConnections`): others get in even while it holds sockets open without a word.
 */
import { randomBytes } from 'node:crypto';
import { chmodSync, existsSync } from 'node:fs';
import { lstat, unlink } from 'node:fs/promises';
import { connect as dial, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { dirname } from 'node:path';
import { ProtocolError } from '@paceline/protocol';
import type { Connection, Listener } from '../connection.js';
import { countRefused, type TransportCounters } from './counters.js';
import { ListenError, portFault, unixPathFault } from './errors.js';
import { FramedConnection } from './framed-connection.js';
import { resolveOptions, type ConnectionOptions, type ResolvedOptions } from './limits.js';
import { PendingConnections, sourceOf } from './pending-connections.js';
import { adoptAccepted, streamOver, type SocketKind } from './socket-stream.js';
import { TlsAcceptor } from './tls/accept.js';

export interface ListenAddress {
  readonly unixPath?: string | undefined;
  /** Default 127.0.0.1. */
  readonly host?: string | undefined;
  /** 0 takes a free port. Absent: no TCP. */
  readonly port?: number | undefined;
}

export interface ListenOptions extends ConnectionOptions {
  /** A peer must say hello within this. Default 5,000 ms. */
  readonly helloDeadlineMs?: number;
  /** Connections that have not said hello. Default 256. */
  readonly maxPending?: number;
  /** Connections altogether. Default 4,096; more get SERVER_FULL. */
  readonly maxConnections?: number;
  /** Uniform in [0, 1): which pending connection goes when there are too many. */
  readonly random?: () => number;
  /** Called for a peer that was refused over TLS, or that refused this side: `by` says which. */
  onTlsRefused?(remote: string, error: ProtocolError, by: 'this side' | 'the peer'): void;
}

export interface SocketListener extends Listener {
  /** The port taken, or null without TCP. */
  readonly port: number | null;
  readonly host: string | null;
  readonly unixPath: string | null;
  /** Counters over all connections of this listener. */
  readonly counters: TransportCounters;
  /** Connections that have not said hello. */
  readonly pendingCount: number;
  /** Connections that have. */
  readonly connectionCount: number;
}

const LISTEN_BACKLOG = 1024;
/** Never the same twice. */
const CHALLENGE_BYTES = 16;
const STALE_CHECK_DEADLINE_MS = 1000;

/**
 * Calls `onConnection` when a peer's hello has come; it must set the receiver before it returns, and the hello is then the
 * first message. Stale socket files are removed; the new one has mode 0600.
 * @throws ListenError PORT_IN_USE, PATH_IN_USE, NO_PERMISSION, BAD_ADDRESS
 */
export async function listen(
  address: ListenAddress,
  onConnection: (connection: Connection) => void,
  options: ListenOptions = {},
): Promise<SocketListener> {
  const { unixPath, port } = address;
  const host = address.host ?? '127.0.0.1';
  if (unixPath === undefined && port === undefined) throw new ListenError('BAD_ADDRESS', 'nothing', 'give a Unix path, a port, or both');
  const gate = new ListenerGate(onConnection, options);
  const servers: Server[] = [];
  try {
    // The Unix socket first: who finds the port open, and prefers the path, finds that too.
    if (unixPath !== undefined) servers.push(await listenUnix(gate, unixPath));
    if (port !== undefined) servers.push(await listenTcp(gate, host, port));
    const chosenPort = port === undefined ? null : (servers.at(-1)!.address() as AddressInfo).port;
    return makeListener(gate, servers, chosenPort === null ? null : host, chosenPort, unixPath ?? null);
  } catch (error) {
    await Promise.all(servers.map(closeServer));
    throw error;
  }
}

function makeListener(
  gate: ListenerGate,
  servers: readonly Server[],
  host: string | null,
  port: number | null,
  unixPath: string | null,
): SocketListener {
  return {
    address: [unixPath, port === null ? null : `${host}:${port}`].filter((name) => name !== null).join(', '),
    host,
    port,
    unixPath,
    counters: gate.counters,
    get pendingCount() {
      return gate.pending.size;
    },
    get connectionCount() {
      return gate.admitted.size;
    },
    async close() {
      const closed = servers.map(closeServer);
      await gate.close();
      await Promise.all(closed);
    },
  };
}

/** A connection that has not said hello, or is still in its handshake. */
interface Pending {
  readonly isOpen: boolean;
  close(): void;
  destroy(): void;
}

/** Holds the connections of a listener, and lets in those that say hello. */
class ListenerGate {
  readonly pending: PendingConnections<Pending>;
  readonly admitted = new Set<FramedConnection>();
  readonly counters: TransportCounters;
  private readonly options: ResolvedOptions;
  private readonly helloDeadlineMs: number;
  private readonly maxPending: number;
  private readonly maxConnections: number;
  private readonly tls: TlsAcceptor | undefined;
  private readonly onTlsRefused: NonNullable<ListenOptions['onTlsRefused']>;
  private closing = false;
  private whenEmpty: (() => void) | undefined;

  constructor(
    private readonly onConnection: (connection: Connection) => void,
    options: ListenOptions,
  ) {
    this.options = resolveOptions(options);
    this.pending = new PendingConnections(options.random ?? Math.random);
    this.counters = this.options.counters;
    this.helloDeadlineMs = options.helloDeadlineMs ?? 5000;
    this.maxPending = options.maxPending ?? 256;
    this.maxConnections = options.maxConnections ?? 4096;
    this.tls = options.tls && new TlsAcceptor(options.tls);
    this.onTlsRefused = (...refusal) => options.onTlsRefused?.(...refusal);
  }

  accept(accepted: Socket, kind: 'unix' | 'tcp', name: string): void {
    if (this.closing) {
      accepted.destroy();
      return;
    }
    this.makeRoom();
    const source = sourceOf(accepted.remoteAddress);
    if (kind === 'tcp' && this.tls) void this.shake(this.tls, accepted, name, source);
    else this.greet(accepted, kind, name, source);
  }

  /** Counts as pending until it is greeted. */
  private async shake(tls: TlsAcceptor, accepted: Socket, name: string, source: string): Promise<void> {
    const end = (): void => void accepted.destroy();
    const pending: Pending = { isOpen: true, close: end, destroy: end };
    const deadline = setTimeout(end, this.helloDeadlineMs);
    this.pending.add(pending, source);
    try {
      const { socket, fault } = await tls.accept(accepted);
      this.pending.delete(pending);
      if (this.closing) return end();
      const connection = this.greet(socket, 'tls', name, source);
      if (!fault) return;
      this.onTlsRefused(name, fault, 'this side');
      connection.close(fault);
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      countRefused(this.counters, error.code);
      this.onTlsRefused(name, error, 'this side');
    } finally {
      clearTimeout(deadline);
      this.pending.delete(pending);
      this.tellWhenEmpty();
    }
  }

  /** From here on the framing has it. */
  private greet(accepted: Socket, kind: SocketKind, name: string, source: string): FramedConnection {
    const deadline = setTimeout(() => {
      connection.close(new ProtocolError('HELLO_EXPECTED', `no hello within ${this.helloDeadlineMs} ms`));
    }, this.helloDeadlineMs);
    const connection = new FramedConnection(
      this.options,
      {
        kind: 'accepts',
        challenge: randomBytes(CHALLENGE_BYTES).toString('base64url'),
        admit: () => {
          clearTimeout(deadline);
          this.admit(connection);
        },
      },
      () => {
        clearTimeout(deadline);
        this.pending.delete(connection);
        this.admitted.delete(connection);
        const said = connection.refusedByPeer;
        if (said?.code.startsWith('TLS_')) this.onTlsRefused(name, said, 'the peer');
        this.tellWhenEmpty();
      },
    );
    this.pending.add(connection, source);
    const adopted = this.options.directReads ? adoptAccepted(accepted, connection) : undefined;
    connection.attach(streamOver(adopted ?? accepted, kind, name, adopted !== undefined, connection, this.options.link));
    return connection;
  }

  private tellWhenEmpty(): void {
    if (this.pending.size + this.admitted.size === 0) this.whenEmpty?.();
  }

  private makeRoom(): void {
    if (this.pending.size < this.maxPending) return;
    const victim = this.pending.victim();
    if (!victim) return;
    if (victim.isOpen) countRefused(this.counters, 'HELLO_EXPECTED');
    this.pending.delete(victim);
    victim.destroy();
  }

  private admit(connection: FramedConnection): void {
    if (this.admitted.size >= this.maxConnections) throw new ProtocolError('SERVER_FULL');
    this.pending.delete(connection);
    this.admitted.add(connection);
    this.onConnection(connection);
  }

  async close(): Promise<void> {
    this.closing = true;
    this.tls?.close();
    const all = [...this.pending, ...this.admitted];
    if (all.length === 0) return;
    const gone = new Promise<void>((resolve) => (this.whenEmpty = resolve));
    for (const connection of all) connection.close();
    await gone;
  }
}

async function listenTcp(gate: ListenerGate, host: string, port: number): Promise<Server> {
  const fault = portFault(port);
  if (fault) throw new ListenError('BAD_ADDRESS', `${host}:${port}`, fault);
  const server = createServer({ pauseOnConnect: true }, (socket) =>
    gate.accept(socket, 'tcp', `${socket.remoteAddress}:${socket.remotePort}`),
  );
  await started(server, gate.counters, `${host}:${port}`, () => server.listen({ host, port, backlog: LISTEN_BACKLOG }));
  return server;
}

async function listenUnix(gate: ListenerGate, path: string): Promise<Server> {
  const fault = unixPathFault(path);
  if (fault) throw new ListenError('BAD_ADDRESS', path, fault);
  // A missing folder is reported by libuv as a missing permission.
  if (!existsSync(dirname(path))) throw new ListenError('BAD_ADDRESS', path, 'the folder does not exist; create it or choose another');
  await removeStale(path);
  const server = createServer({ pauseOnConnect: true }, (socket) => gate.accept(socket, 'unix', path));
  await started(server, gate.counters, path, () => {
    server.listen({ path, backlog: LISTEN_BACKLOG });
    // The path is bound when listen returns; nobody is accepted before this turn ends.
    if (server.listening) chmodSync(path, 0o600);
  });
  return server;
}

function started(server: Server, counters: TransportCounters, name: string, start: () => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const onError = (error: NodeJS.ErrnoException): void => reject(listenError(name, error));
    server.once('error', onError);
    server.once('listening', () => {
      server.off('error', onError);
      // Faults of accept end no listener.
      server.on('error', () => counters.acceptFaults++);
      resolve();
    });
    start();
  });
}

function listenError(name: string, error: NodeJS.ErrnoException): ListenError {
  const cause = { cause: error };
  if (error.code === 'EADDRINUSE') {
    const isPath = error.syscall === 'listen' && name.includes('/');
    return isPath
      ? new ListenError('PATH_IN_USE', name, 'something else has this path; choose another', cause)
      : new ListenError('PORT_IN_USE', name, 'another process has the port; choose another, or 0 for a free one', cause);
  }
  if (error.code === 'EACCES' || error.code === 'EPERM')
    return new ListenError('NO_PERMISSION', name, 'not allowed for this user; choose another', cause);
  return new ListenError('BAD_ADDRESS', name, error.message, cause);
}

/** Removes a socket file that nobody answers on. @throws ListenError PATH_IN_USE */
async function removeStale(path: string): Promise<void> {
  const found = await lstat(path).catch(() => undefined); // nothing there: the usual case
  if (!found) return;
  if (!found.isSocket()) throw new ListenError('PATH_IN_USE', path, 'the path is a file that is no socket; choose another path');
  if (await answers(path)) throw new ListenError('PATH_IN_USE', path, 'another process answers there; choose another path, or stop it');
  await unlink(path);
}

function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = dial({ path });
    const finish = (alive: boolean): void => {
      clearTimeout(timer);
      probe.destroy();
      resolve(alive);
    };
    // Somebody holds it who does not answer in time: not ours to remove.
    const timer = setTimeout(() => finish(true), STALE_CHECK_DEADLINE_MS);
    probe.once('connect', () => finish(true));
    probe.once('error', (error: NodeJS.ErrnoException) => finish(error.code !== 'ECONNREFUSED' && error.code !== 'ENOENT'));
  });
}

function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => server.close(() => resolve()));
}
