/**
 * Whether the other end of a TLS connection may be there. Both ends ask this themselves instead of letting Node end the connection, so that the
 * refused side is told why. Nothing that the peer sends is used before the answer.
 */
import { ProtocolError, type TlsErrorCode } from '@paceline/protocol';
import type { TLSSocket } from 'node:tls';
import { nameIn, type TlsSettings } from './identity.js';

const TIMES = new Set(['CERT_HAS_EXPIRED', 'CERT_NOT_YET_VALID']);

/** What is wrong with the peer of a connection whose handshake is done; undefined: it may be there. */
export function peerFault(socket: TLSSocket, { identity, peers }: TlsSettings): ProtocolError | undefined {
  const fault = (code: TlsErrorCode, detail: string): ProtocolError => new ProtocolError(code, detail);
  const certificate = socket.getPeerX509Certificate();
  if (!certificate)
    return fault('TLS_CERTIFICATE_MISSING', 'no certificate was shown; one of the CA of this stack, with its key, is needed');
  if (!socket.authorized) {
    // Node's types say Error; it is the code of OpenSSL, as text.
    const code = String(socket.authorizationError);
    if (TIMES.has(code))
      return fault(
        'TLS_CERTIFICATE_EXPIRED',
        `the certificate shown is valid from ${certificate.validFrom} to ${certificate.validTo}, and here it is ${new Date().toISOString()}; ` +
          'renew it, and check the clocks of both machines',
      );
    return fault(
      'TLS_FOREIGN_CA',
      `the certificate shown (${oneLine(certificate.subject)}) is not issued by the CA of this side (${code}); give both sides certificates of one CA`,
    );
  }
  const [name, own] = [nameIn(certificate), identity.name];
  if (name?.stack === own.stack && peers.includes(name.role)) return undefined;
  const shown = name ? `paceline://${name.stack}/${name.role}` : `${oneLine(certificate.subject)}, which names no stack and role`;
  const wanted = peers.map((role) => `paceline://${own.stack}/${role}`).join(' or ');
  return fault('TLS_WRONG_ROLE', `the certificate shown is that of ${shown}; here only ${wanted} may be`);
}

const oneLine = (text: string | undefined): string => (text ?? 'without a subject').replaceAll('\n', ', ').slice(0, 200);
