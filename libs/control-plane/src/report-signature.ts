/**
 * Reports that decide about an attempt are signed by who holds a part of it: the api takes no claim, journal or failure of a server from anybody else who may
 * append to the stream. A parameter server has the secret of the installation, a worker that holds a shard the key of its attempt alone (token-verifier.ts).
 * What workers say about themselves (heartbeats, seats) is not signed: they have no key.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { Report } from './contract/reports.js';

const SIGNED_KINDS = ['server.claimed', 'server.failed', 'lead.asked', 'journal'] as const;

export type SignedReport = Extract<Report, { kind: (typeof SIGNED_KINDS)[number] }>;

export const isSigned = (report: Report): report is SignedReport => SIGNED_KINDS.some((kind) => kind === report.kind);

/**
 * HMAC-SHA256 of the report as it is in the stream.
 * @param key of its attempt (`attemptKey`)
 */
export const reportSignature = (key: string, text: string): string =>
  createHmac('sha256', key).update(`paceline report ${text}`).digest('base64url');

/** @param key of the attempt that the report names */
export function isGenuine(key: string, text: string, signature: string | undefined): boolean {
  if (signature === undefined) return false;
  const [expected, given] = [reportSignature(key, text), signature].map((each) => Buffer.from(each));
  return expected!.length === given!.length && timingSafeEqual(expected!, given!);
}
