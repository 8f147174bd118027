import type { SpecIssue } from '@paceline/spec';

/**
 * Codes that the client makes itself; all others come from the api (INVALID_INPUT, NOT_FOUND, CONFLICT, UNAUTHENTICATED, ...):
 * UNREACHABLE no connection · TIMEOUT no answer in time · BAD_ANSWER something else than the api answered · PREDICTIONS_UNAVAILABLE the
 * predictions of a run cannot be made, and why.
 */
export class PacelineApiError extends Error {
  override readonly name = 'PacelineApiError';
  readonly code: string;
  /** Fields of the input that are wrong, for INVALID_INPUT. */
  readonly issues: readonly SpecIssue[];
  readonly httpStatus: number | undefined;
  /** When the api asks to wait. */
  readonly retryAfterMs: number | undefined;

  constructor(
    code: string,
    message: string,
    details: { issues?: readonly SpecIssue[]; httpStatus?: number | undefined; retryAfterMs?: number | undefined; cause?: unknown } = {},
  ) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.code = code;
    this.issues = details.issues ?? [];
    this.httpStatus = details.httpStatus;
    this.retryAfterMs = details.retryAfterMs;
  }

  /** Whether the same request may succeed later without a change. */
  get isTemporary(): boolean {
    return this.code === 'UNREACHABLE' || this.code === 'TIMEOUT' || this.httpStatus === 429 || (this.httpStatus ?? 0) >= 502;
  }
}
