/**
 * The dialling side of TLS. Where decrypted bytes go is asked before every record, as a plain socket does; bytes that come while the connection
 * does not read, which Node hands over all the same, wait here: at most what one read of the operating system held.
 */
import type { OnReadOpts } from 'node:net';
import { connect, type ConnectionOptions, type TLSSocket } from 'node:tls';
import { ProtocolError } from '@paceline/protocol';
import type { ByteConsumer } from '../byte-stream.js';
import { controlFrame, NO_NUMBERS } from '../outgoing-frame.js';
import { TLS_VERSION, type TlsSettings } from './identity.js';

const WAITING_BYTES = 64 << 10;

/** Bytes for a consumer that may not want them yet. */
export class ReadingGate {
  private isOpen = false;
  private waiting: Uint8Array[] = [];
  private readonly scratch = new Uint8Array(WAITING_BYTES);
  readonly onread: OnReadOpts;

  constructor(private readonly consumer: ByteConsumer) {
    let isScratch = true;
    this.onread = {
      buffer: () => {
        isScratch = !this.isOpen;
        return isScratch ? this.scratch : consumer.destination();
      },
      callback: (count) => {
        if (!isScratch) consumer.filled(count);
        else if (this.isOpen) consumer.fed(this.scratch.subarray(0, count));
        else this.waiting.push(this.scratch.slice(0, count));
        return true;
      },
    };
  }

  /** Called before the socket starts or stops reading. */
  setReading(on: boolean): void {
    this.isOpen = on;
    while (this.isOpen && this.waiting.length > 0) this.consumer.fed(this.waiting.shift()!);
  }
}

/** Starts to dial. `secureConnect` says that the handshake is done; whether the peer is the right one is then for `peerFault`. */
export function dialTls(target: { host: string; port: number }, { identity }: TlsSettings, gate: ReadingGate | undefined): TLSSocket {
  const options: ConnectionOptions & { onread?: OnReadOpts } = {
    ...target,
    ...TLS_VERSION,
    secureContext: identity.context,
    // `peerFault` decides, by stack and role: hosts change.
    rejectUnauthorized: false,
    checkServerIdentity: () => undefined,
    ...(gate ? { onread: gate.onread } : {}),
  };
  return connect(options);
}

/** Says to the accepting side why this side will not have it, and ends. */
export function refuseServer(socket: TLSSocket, fault: ProtocolError): void {
  const message = { type: 'refused' as const, code: fault.code, message: fault.detail };
  socket.end(controlFrame(message, NO_NUMBERS, false).head, () => socket.destroy());
}

/** What a fault before the end of the handshake means; undefined: it is one of the network. */
export function dialFault(error: Error & { code?: string }): ProtocolError | undefined {
  const { code = '' } = error;
  if (!code.startsWith('ERR_SSL_')) return undefined;
  // The first bytes were no record of TLS.
  if (/WRONG_VERSION_NUMBER|PACKET_LENGTH|RECORD_TYPE|UNEXPECTED_MESSAGE/.test(code))
    return new ProtocolError(
      'TLS_UNEXPECTED',
      'the peer does not speak TLS; start it with --tls (or with PACELINE_TLS_CA, PACELINE_TLS_CERT and PACELINE_TLS_KEY), or this side without',
    );
  return new ProtocolError('TLS_HANDSHAKE', `${code}; this side takes TLS 1.3 alone`);
}
