/**
 * The accepting side of TLS: takes a TCP connection through the handshake.
 *
 *   WAITING    for the first byte. A peer that speaks TLS sends it at once; one that does not waits for our challenge, so after
 *              `PLAIN_AFTER_MS` without a byte it is told in plain that this port takes TLS alone.
 *   SHAKING    the bytes go to Node's TLS
 *   DONE       the peer is known by its certificate, or what is wrong with it is
 *
 * Whoever calls has the deadline, and ends the socket when it is over.
 */
import type { Socket } from 'node:net';
import { createServer, type Server, type TLSSocket } from 'node:tls';
import { ProtocolError } from '@paceline/protocol';
import { controlFrame, NO_NUMBERS } from '../outgoing-frame.js';
import type { TlsSettings } from './identity.js';
import { peerFault } from './peer.js';

/** Shorter than the deadlines of those who wait for an answer, longer than the way of a first byte. */
const PLAIN_AFTER_MS = 1_500;
/** The first byte of a handshake. */
const HANDSHAKE = 0x16;

export interface Accepted {
  readonly socket: TLSSocket;
  /** Why the peer may not be there; it is to be told. */
  readonly fault: ProtocolError | undefined;
}

export class TlsAcceptor {
  private readonly server: Server;
  private readonly shaking = new Map<string, { resolve(accepted: Accepted): void; reject(error: ProtocolError): void }>();
  private readonly forget: () => void;

  constructor(private readonly settings: TlsSettings) {
    const { identity } = settings;
    // The peer is checked here (`peerFault`), and then told what is wrong: Node would only close the connection.
    this.server = createServer({ ...identity.contextOptions, requestCert: true, rejectUnauthorized: false });
    this.forget = identity.onReplaced(() => this.server.setSecureContext(identity.contextOptions));
    this.server.on('secureConnection', (socket) =>
      this.shaking.get(nameOf(socket))?.resolve({ socket, fault: peerFault(socket, settings) }),
    );
    this.server.on('tlsClientError', (error, socket) =>
      this.shaking.get(nameOf(socket))?.reject(new ProtocolError('TLS_HANDSHAKE', handshakeText(error))),
    );
  }

  /** @throws ProtocolError TLS_REQUIRED, TLS_HANDSHAKE; the socket is then ended */
  async accept(raw: Socket): Promise<Accepted> {
    raw.on('error', () => raw.destroy());
    await firstByte(raw);
    const name = nameOf(raw);
    try {
      return await new Promise<Accepted>((resolve, reject) => {
        this.shaking.set(name, { resolve, reject });
        raw.once('close', () => reject(new ProtocolError('TLS_HANDSHAKE', 'the peer went away during the handshake')));
        this.server.emit('connection', raw);
      });
    } catch (error) {
      raw.destroy();
      throw error;
    } finally {
      this.shaking.delete(name);
    }
  }

  close(): void {
    this.forget();
  }
}

const nameOf = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress} ${remotePort}`;

/** What is read is put back, for the handshake to read again. */
function firstByte(raw: Socket): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => refuse(raw, reject), PLAIN_AFTER_MS);
    raw.once('close', () => {
      clearTimeout(timer);
      reject(new ProtocolError('TLS_HANDSHAKE', 'the peer went away before it said anything'));
    });
    raw.once('data', (bytes) => {
      clearTimeout(timer);
      raw.pause();
      if (bytes[0] !== HANDSHAKE) return refuse(raw, reject);
      raw.unshift(bytes);
      resolve();
    });
    raw.resume();
  });
}

/** In plain, as the peer speaks. Only the name of the error is in it. */
function refuse(raw: Socket, reject: (error: ProtocolError) => void): void {
  const error = new ProtocolError('TLS_REQUIRED');
  raw.end(controlFrame({ type: 'refused', code: error.code, message: error.detail }, NO_NUMBERS, true).head, () => raw.destroy());
  reject(error);
}

function handshakeText(error: Error & { code?: string }): string {
  return `${error.code ?? error.message}; this side takes TLS 1.3 alone, with a certificate of its CA`;
}
