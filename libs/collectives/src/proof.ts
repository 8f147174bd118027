/**
 * The proof that a process may join: members share a secret, and each end of a connection proves to the other that it knows it, without sending it. Each end makes up
 * a nonce, so a proof that was recorded is worth nothing on another connection; it names both ends, so nobody can be made to prove for somebody else.
 */
import { createHash, createHmac, timingSafeEqual, randomBytes } from 'node:crypto';

export interface Handshake {
  /** What both ends must agree on; see `groupId`. */
  readonly group: string;
  /** Member that dials, and the one that accepts. */
  readonly from: number;
  readonly to: number;
  readonly dialNonce: string;
  readonly acceptNonce: string;
}

export const LEAST_SECRET_CHARACTERS = 16;

export const newNonce = (): string => randomBytes(24).toString('base64url');

/**
 * What one end shows to the other. `goes on` in place of `accepts`: the group has gone on without the member that dials. Only who knows the secret can
 * say so, and can read it. `admits` in its place: this process has a place in a group that has begun, and will be let in. `is new`: the process that had this
 * place has ended, and this one has come for it.
 */
export const proofOf = (
  secret: string,
  side: 'dials' | 'accepts' | 'goes on' | 'admits' | 'is new',
  { group, from, to, dialNonce, acceptNonce }: Handshake,
): string =>
  createHmac('sha256', secret)
    .update(JSON.stringify(['paceline-group', side, group, from, to, dialNonce, acceptNonce]))
    .digest('base64url');

export function isProof(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}

/** A UUID that depends on what the members must have in common: their addresses and counts. Members of different groups do not take each other for one. */
export function groupId(what: unknown): string {
  const hex = createHash('sha256').update(JSON.stringify(what)).digest('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}
