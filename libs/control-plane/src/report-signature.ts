/**
 * Reports of who serves are signed, so that the api takes none from anybody else who may append to the stream:
 *
 * | report | key |
 * |---|---|
 * | claims, journals, failures and questions about the lead of an attempt | of the attempt (`attemptKey`) |
 * | heartbeats and goodbyes of parameter servers | of all parameter servers |
 * | heartbeats, goodbyes and seats of workers; traces | none |
 *
 * A parameter server has the secret of the installation, which all keys are made from; a worker that holds a shard has the key of its attempt. Workers
 * read the keys of worker placements in the queue that brings them, so between workers a signature proves little: they run the models of all teams anyway.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { Report } from './contract/reports.js';
import { attemptKey } from './token-verifier.js';

const OF_ATTEMPTS = ['server.claimed', 'server.failed', 'lead.asked', 'journal'] as const;

type AttemptReport = Extract<Report, { kind: (typeof OF_ATTEMPTS)[number] }>;
type PresenceReport = Extract<Report, { kind: 'heartbeat' | 'goodbye' }>;
export type SignedReport = AttemptReport | PresenceReport;

/** Tells the key of a report; undefined where this process has none. */
export type KeyOfReport = (report: SignedReport) => string | undefined;

const isOfAttempt = (report: Report): report is AttemptReport => OF_ATTEMPTS.some((kind) => kind === report.kind);

export const isSigned = (report: Report): report is SignedReport =>
  isOfAttempt(report) || ((report.kind === 'heartbeat' || report.kind === 'goodbye') && report.role === 'server');

/** @param secret of the installation, which api and parameter servers have */
export const reportKey = (secret: string, report: SignedReport): string =>
  isOfAttempt(report)
    ? attemptKey(secret, report.runId, report.attempt)
    : createHmac('sha256', secret).update('paceline reports of parameter servers').digest('hex');

/** HMAC-SHA256 of the report as it is in the stream. */
export const reportSignature = (key: string, text: string): string =>
  createHmac('sha256', key).update(`paceline report ${text}`).digest('base64url');

export function isGenuine(key: string, text: string, signature: string | undefined): boolean {
  if (signature === undefined) return false;
  const [expected, given] = [reportSignature(key, text), signature].map((each) => Buffer.from(each));
  return expected!.length === given!.length && timingSafeEqual(expected!, given!);
}
