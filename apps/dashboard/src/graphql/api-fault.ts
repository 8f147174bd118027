/**
 * What can go wrong between the page and the api, by what a person can do about it:
 * UNAUTHENTICATED the key is not accepted · UNREACHABLE nothing answers, or not in time · RATE_LIMITED wait · REFUSED the request itself.
 */
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

export function asFault(error: unknown): ApiFault {
  if (error instanceof ApiFault) return error;
  return new ApiFault('UNREACHABLE', error instanceof Error ? error.message : 'the connection broke');
}
