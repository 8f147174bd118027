/**
 * A byte stream over a socket of node:net that reads straight into the receiver's regions.
 *
 * A client socket is made with `onread`, whose buffer function is asked anew before every read. `net.createServer` ignores
 * `onread` (Node 20 to 24), so an accepted socket hands its handle over to a new socket that has it. That touches
 * the private field `_handle`: a contract test holds it, and where the field is not as expected, or on request, 'data' events
 * and one more copy do the same work.
 */
import { Socket, type OnReadOpts, type SocketConstructorOpts } from 'node:net';
import type { ByteConsumer, ByteStream } from './byte-stream.js';
import { KEEP_ALIVE_DELAY_MS } from './limits.js';
import { LinkedStream, type Link } from './link.js';
import type { ReadingGate } from './tls/dial.js';

export type SocketKind = 'unix' | 'tcp' | 'tls';

export class SocketStream implements ByteStream {
  private cause: Error | undefined;

  constructor(
    private readonly socket: Socket,
    readonly kind: SocketKind,
    readonly remote: string,
    readonly direct: boolean,
    consumer: ByteConsumer,
    private readonly gate?: ReadingGate,
  ) {
    if (kind !== 'unix') {
      socket.setNoDelay(true);
      socket.setKeepAlive(true, KEEP_ALIVE_DELAY_MS);
    }
    socket.pause();
    if (!direct) socket.on('data', (bytes) => consumer.fed(bytes));
    socket.on('error', (error) => (this.cause = error));
    socket.on('end', () => consumer.streamEnded());
    socket.on('close', () => consumer.streamClosed(this.cause));
  }

  write(parts: readonly Uint8Array[], done: () => void): void {
    const { socket } = this;
    socket.cork();
    for (let i = 0; i < parts.length - 1; i++) socket.write(parts[i]!);
    socket.write(parts.at(-1)!, done);
    socket.uncork();
  }

  /** The check phase of the event loop comes after the reads of all sockets. */
  afterReads(act: () => void): void {
    setImmediate(act);
  }

  setReading(on: boolean): void {
    this.gate?.setReading(on);
    if (on) this.socket.resume();
    else this.socket.pause();
  }

  end(): void {
    this.socket.end();
  }

  destroy(): void {
    this.socket.destroy();
  }
}

/** The stream of a socket, behind a slow link where there is one. */
export function streamOver(
  socket: Socket,
  kind: SocketKind,
  remote: string,
  direct: boolean,
  consumer: ByteConsumer,
  link: Link | undefined,
  gate?: ReadingGate,
): ByteStream {
  if (!link) return new SocketStream(socket, kind, remote, direct, consumer, gate);
  const linked = new LinkedStream(link, consumer);
  return linked.over(new SocketStream(socket, kind, remote, false, linked));
}

/** A socket, not yet connected, that reads where `consumer` says. */
export function socketReadingInPlace(consumer: ByteConsumer, handle?: object): Socket {
  const onread: OnReadOpts = {
    buffer: () => consumer.destination(),
    callback: (count) => {
      consumer.filled(count);
      return true;
    },
  };
  // The types of the constructor know neither `onread` (which is documented) nor `handle`.
  const options = handle ? { handle, onread, readable: true, writable: true, pauseOnCreate: true } : { onread };
  return new Socket(options as SocketConstructorOpts);
}

interface SocketWithHandle {
  _handle: { useUserBuffer?: unknown } | null;
  /** Under TLS: the same handle, which the socket frees when it closes. */
  ssl?: unknown;
}

/**
 * Moves the handle of an accepted, paused socket to a new socket that reads in place.
 * Returns undefined, and leaves `accepted` as it was, where this version of Node does not have what it takes.
 */
export function adoptAccepted(accepted: Socket, consumer: ByteConsumer): Socket | undefined {
  const inner = accepted as unknown as SocketWithHandle;
  const handle = inner._handle;
  if (!handle || typeof handle.useUserBuffer !== 'function') return undefined;
  const { ssl } = inner;
  // Bytes that came with the end of the handshake lie in the first socket, which then goes on.
  if (ssl && accepted.readableLength > 0) return undefined;
  inner._handle = null;
  if (ssl) {
    // The new socket frees it.
    inner.ssl = null;
    const socket = socketReadingInPlace(consumer, handle);
    return Object.assign(socket, { ssl });
  }
  const socket = socketReadingInPlace(consumer, handle);
  // Without its handle the first socket is only an entry in the server's count of connections.
  accepted.destroy();
  return socket;
}
