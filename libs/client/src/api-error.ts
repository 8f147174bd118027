import type { SpecIssue } from '@paceline/spec';

/** What a team may have of something, for LIMIT_REACHED. */
export interface ReachedLimit {
  /** A field of TeamLimits. */
  readonly limit: string;
  readonly most: number;
  readonly used: number;
  /** In addition to what is used. */
  readonly asked: number;
}

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
  /** For LIMIT_REACHED. */
  readonly reached: ReachedLimit | undefined;

  constructor(
    code: string,
    message: string,
    details: {
      issues?: readonly SpecIssue[];
      httpStatus?: number | undefined;
      retryAfterMs?: number | undefined;
      reached?: ReachedLimit | undefined;
      cause?: unknown;
    } = {},
  ) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.code = code;
    this.issues = details.issues ?? [];
    this.httpStatus = details.httpStatus;
    this.retryAfterMs = details.retryAfterMs;
    this.reached = details.reached;
  }

  /** Whether the same request may succeed later without a change. */
  get isTemporary(): boolean {
    return this.code === 'UNREACHABLE' || this.code === 'TIMEOUT' || this.httpStatus === 429 || (this.httpStatus ?? 0) >= 502;
  }
}
