/**
 * What can go wrong between the page and the api, by what a person can do about it:
 * UNAUTHENTICATED the key is not accepted · UNREACHABLE nothing answers, or not in time · RATE_LIMITED wait · REFUSED the request itself.
 */
import { PacelineApiError } from '@paceline/client';
import { plainText } from '../text/plain-text.js';

export type FaultKind = 'UNAUTHENTICATED' | 'UNREACHABLE' | 'RATE_LIMITED' | 'REFUSED';

export class ApiFault extends Error {
  override readonly name = 'ApiFault';
  constructor(
    readonly kind: FaultKind,
    message: string,
    readonly retryAfterMs?: number,
  ) {
    super(message);
  }

  /** Whether the same request may succeed later. */
  get isTemporary(): boolean {
    return this.kind === 'UNREACHABLE' || this.kind === 'RATE_LIMITED';
  }
}

/** Codes that waiting mends: no answer, an outage of the api's database, too much at once, or a fault of the api that may be gone next time. */
const TEMPORARY_CODES: ReadonlySet<string> = new Set([
  'UNREACHABLE',
  'TIMEOUT',
  'BAD_ANSWER',
  'SERVICE_UNAVAILABLE',
  'TOO_BUSY',
  'INTERNAL_SERVER_ERROR',
]);

export function asFault(error: unknown): ApiFault {
  if (error instanceof ApiFault) return error;
  if (!(error instanceof PacelineApiError))
    return new ApiFault('UNREACHABLE', error instanceof Error ? error.message : 'The connection broke.');
  return new ApiFault(
    kindOf(error),
    error.code === 'UNREACHABLE' ? 'The API cannot be reached.' : plainText(error.message, 500),
    error.retryAfterMs,
  );
}

function kindOf({ code, httpStatus = 0 }: PacelineApiError): FaultKind {
  if (httpStatus === 401 || code === 'UNAUTHENTICATED') return 'UNAUTHENTICATED';
  if (httpStatus === 429 || code === 'TOO_MANY_ATTEMPTS' || code === 'RATE_LIMITED') return 'RATE_LIMITED';
  return httpStatus >= 500 || TEMPORARY_CODES.has(code) ? 'UNREACHABLE' : 'REFUSED';
}
