/**
 * The closed catalogue of what the data plane refuses, with what to do about it. docs/errors.md lists the same codes;
 * a test compares both. Control-plane codes live with the api.
 */
export const DATA_PLANE_ERRORS = {
  BAD_FRAME: 'The bytes are not a frame: wrong magic, wrong header checksum, impossible length. Is something else talking to this port?',
  BAD_CHECKSUM: 'A payload does not match its checksum; the connection is closed and the sender sends again.',
  PROTOCOL_VERSION: 'The peer speaks another protocol version; upgrade so that both sides run the same release.',
  TOKEN_MISSING: 'HELLO carries no token; take a step task or a placement, which brings one.',
  TOKEN_INVALID: 'The token is not signed by this control plane, or has expired.',
  TOKEN_WRONG_RUN: 'The token was issued for another run or role.',
  HELLO_EXPECTED: 'The first frame of a connection must be HELLO, within its deadline.',
  HELLO_REPLAYED:
    'HELLO answers the challenge of another connection: it was recorded and replayed, or came through a proxy that answers for others.',
  RUN_UNKNOWN:
    'This server holds no part of that run, holds an older attempt of it, or is still loading its parameters; take a new step task.',
  STALE_FENCE: 'The frame belongs to an older attempt of the run; it can change nothing. Stop, and take a new step task.',
  SEAT_TAKEN: 'Another worker holds this seat; complete the step task and take another.',
  FINGERPRINT_MISMATCH: 'This engine is not the one that the run is pinned to; start the worker with the engine named in the message.',
  LAYOUT_MISMATCH: 'The worker built other variables than the servers hold; run the same release on both sides.',
  NOT_A_MEMBER: 'The sender is not a member of the present view.',
  UNKNOWN_CHUNK: 'The chunk is not owned by this server.',
  WRONG_LENGTH: 'The payload length differs from what the layout says for this chunk.',
  BAD_NODE: "The tree node is not part of the reduction tree over the run's replicas.",
  BAD_ROUND: 'The round is too far ahead of this server.',
  BAD_CODEC: 'The codec is not the one that the run has for this chunk.',
  BAD_PAYLOAD:
    'The bytes of an encoded chunk, or of a frame of several, are none that its codec or a sender writes; the connection is closed, and the worker gives up its seat.',
  BAD_MESSAGE: 'A control message does not fit its schema.',
  SLOW_CONSUMER: 'The peer does not read what it is sent, and the limit of queued bytes is reached.',
  SILENT_PEER: 'Nothing was heard from the peer within the deadline.',
  SERVER_FULL:
    'The server has no memory or no place for more, or an error of its own kept it from admitting the connection; its log says which. If it is full, start another server.',
  NOT_PRIMARY: 'This server stands by for the shard, or is taking it over; try the other address, and this one again a little later.',
  STALE_TERM: 'The frame or the server belongs to an older term: another server has taken over; it can change nothing.',
  RUN_OVER: 'The run is over.',
  TLS_REQUIRED:
    'The port takes TLS alone, and the peer spoke without it; start the peer with --tls, or give it PACELINE_TLS_CA, PACELINE_TLS_CERT and PACELINE_TLS_KEY.',
  TLS_UNEXPECTED: 'One side speaks TLS and the other does not; give both the same setting.',
  TLS_HANDSHAKE: 'The two sides could not agree on TLS 1.3; run the same release on both, with no proxy between them that ends TLS.',
  TLS_CERTIFICATE_MISSING: 'The peer shows no certificate; give it one of this CA, with its key.',
  TLS_CERTIFICATE_EXPIRED: "The peer's certificate has ended or is not valid yet; renew it, and check the clocks of both machines.",
  TLS_FOREIGN_CA: "The peer's certificate is not issued by the CA of this side; give both sides certificates of one CA.",
  TLS_WRONG_ROLE: "The peer's certificate is of another stack, or of a role that may not be at this end of the connection.",
} as const;

export type DataPlaneErrorCode = keyof typeof DATA_PLANE_ERRORS;
export type TlsErrorCode = Extract<DataPlaneErrorCode, `TLS_${string}`>;

/** Thrown where a peer broke the protocol; the connection is closed with this code, counted, and the process goes on. */
export class ProtocolError extends Error {
  override readonly name = 'ProtocolError';
  /** The message without the code. */
  readonly detail: string;

  constructor(
    readonly code: DataPlaneErrorCode,
    detail?: string,
  ) {
    const said = detail || DATA_PLANE_ERRORS[code];
    super(`${code}: ${said}`);
    this.detail = said;
  }
}

/** Every frame carries the attempt that its connection was opened for. @throws ProtocolError STALE_FENCE, RUN_UNKNOWN */
export function checkAttempt(header: { readonly attempt: number }, present: number): void {
  if (header.attempt < present) throw new ProtocolError('STALE_FENCE', `attempt ${header.attempt}, present is ${present}`);
  if (header.attempt > present) throw new ProtocolError('RUN_UNKNOWN', `attempt ${header.attempt} is not known here`);
}
