/**
 * Faults that a caller can meet on any surface, each with a stable code: GraphQL shows it as `extensions.code`, REST as `code` of a
 * problem document. Results that belong to one operation (invalid input, not found, conflict) are not here: they are members of
 * its union, see graphql/result.types.ts.
 */
export const FAULTS = {
  UNAUTHENTICATED: { status: 401, title: 'An API key is needed' },
  TOO_MANY_ATTEMPTS: { status: 429, title: 'Too many wrong API keys' },
  RATE_LIMITED: { status: 429, title: 'This key asks too often' },
  FORBIDDEN: { status: 403, title: 'This key may not do that' },
  NOT_FOUND: { status: 404, title: 'Not found' },
  INVALID_INPUT: { status: 422, title: 'The input is wrong' },
  BAD_REQUEST: { status: 400, title: 'The request cannot be read' },
  LIMIT_REACHED: { status: 409, title: 'The limit of the team is reached' },
  CONFLICT: { status: 409, title: 'Conflict with what is stored' },
  TOO_LARGE: { status: 413, title: 'The request is too large' },
  NOT_ACCEPTABLE: { status: 406, title: 'This response format is not offered here' },
  REQUEST_TIMEOUT: { status: 408, title: 'The request took too long to arrive' },
  HEADERS_TOO_LARGE: { status: 431, title: 'The headers are too large' },
  METHOD_NOT_ALLOWED: { status: 405, title: 'That method is not offered here' },
  UNSUPPORTED_MEDIA_TYPE: { status: 415, title: 'That content type is not understood' },
  TOO_BUSY: { status: 429, title: 'Too much is being asked at once' },
  SERVICE_UNAVAILABLE: { status: 503, title: 'A service that the api needs is away' },
  INTERNAL_SERVER_ERROR: { status: 500, title: 'A fault in Paceline' },
} as const;

export type FaultCode = keyof typeof FAULTS;

/** Seconds after which asking again makes sense while a database is away. */
export const RETRY_AFTER_SECONDS = 5;

export class Fault extends Error {
  override readonly name = 'Fault';
  constructor(
    readonly code: FaultCode,
    message: string,
    readonly retryAfterSeconds?: number,
    /** For wrong input: what is wrong where. */
    readonly issues?: readonly { readonly path: string; readonly message: string }[],
  ) {
    super(message);
  }

  get status(): number {
    return FAULTS[this.code].status;
  }
}

export const poolIsFull = (): Fault =>
  new Fault('TOO_BUSY', 'Too many requests wait for the database at once. Ask for less at a time, and try again shortly.', 1);

export const databaseIsAway = (): Fault =>
  new Fault(
    'SERVICE_UNAVAILABLE',
    'PostgreSQL does not answer; runs go on training, and their state catches up afterwards. Try again shortly.',
    RETRY_AFTER_SECONDS,
  );

export const textIsUnstorable = (): Fault =>
  new Fault('INVALID_INPUT', 'A text of the request has the character U+0000 in it, which cannot be stored or looked for. Leave it out.');
