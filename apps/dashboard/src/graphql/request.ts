/** GraphQL over HTTP at the page's own origin, with a deadline. Mutations go by POST; queries by GET, so that one that is asked again can be answered 304. */
import { plainText } from '../text/plain-text.js';
import { ApiFault, type FaultKind } from './api-fault.js';
import type { HeldAnswers } from './held-answers.js';
import type { Operation } from './operation.js';

const DEADLINE_MS = 15_000;

interface Body {
  readonly data?: unknown;
  readonly errors?: readonly { readonly message?: unknown; readonly extensions?: { readonly code?: unknown } }[];
  readonly detail?: unknown;
}

/**
 * @param held answers to queries that were asked before; without it nothing is remembered
 * @throws ApiFault; when `signal` is aborted, the signal's reason
 */
export async function request<Result, Variables>(
  key: string,
  operation: Operation<Result, Variables>,
  variables: Variables,
  signal?: AbortSignal,
  held?: HeldAnswers,
): Promise<Result> {
  const deadline = AbortSignal.timeout(DEADLINE_MS);
  const question = JSON.stringify([operation.name, variables]);
  const before = held?.of(question);
  let response: Response;
  let body: Body | undefined;
  try {
    const [address, options] = messageOf(operation, variables);
    const headers = {
      ...options.headers,
      accept: 'application/graphql-response+json, application/json',
      authorization: `Bearer ${key}`,
      ...(before ? { 'if-none-match': before.tag } : {}),
    };
    const ended = signal ? AbortSignal.any([signal, deadline]) : deadline;
    response = await fetch(address, { ...options, headers, signal: ended, credentials: 'omit', redirect: 'error', cache: 'no-store' });
    body = parsed(await response.text());
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiFault(
      'UNREACHABLE',
      deadline.aborted ? `The API did not answer within ${DEADLINE_MS / 1000} s.` : 'The API cannot be reached.',
    );
  }
  if (response.status === 304 && before) return before.data as Result;
  const fault = faultOf(response, body);
  if (fault) throw fault;
  held?.hold(question, response.headers.get('etag'), body!.data);
  return body!.data as Result;
}

function messageOf(
  operation: Operation<unknown, unknown>,
  variables: unknown,
): [address: string, options: { method: string; headers: Record<string, string>; body?: string }] {
  const { name: operationName, text: query } = operation;
  if (!query.startsWith('query ')) {
    const body = JSON.stringify({ operationName, query, variables });
    return ['/graphql', { method: 'POST', headers: { 'content-type': 'application/json' }, body }];
  }
  const asked = new URLSearchParams({ operationName, query, variables: JSON.stringify(variables) });
  // The api takes a GET only with a header that a page of another origin cannot send unasked.
  return [`/graphql?${asked.toString()}`, { method: 'GET', headers: { 'apollo-require-preflight': 'true' } }];
}

function parsed(text: string): Body | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return value !== null && typeof value === 'object' ? (value as Body) : undefined;
  } catch {
    return undefined; // no JSON, so not our api's answer; faultOf says so with the status
  }
}

/** Codes of the api that waiting mends; an outage of its database, too much at once, or a fault of its own that may be gone next time. */
const TEMPORARY_CODES: ReadonlySet<unknown> = new Set(['SERVICE_UNAVAILABLE', 'TOO_BUSY', 'INTERNAL_SERVER_ERROR']);

/** What a code of the api means for the page. */
export function kindOf(code: unknown): FaultKind {
  if (code === 'UNAUTHENTICATED') return 'UNAUTHENTICATED';
  if (code === 'TOO_MANY_ATTEMPTS' || code === 'RATE_LIMITED') return 'RATE_LIMITED';
  return TEMPORARY_CODES.has(code) ? 'UNREACHABLE' : 'REFUSED';
}

export function faultOf(response: Pick<Response, 'status' | 'headers'>, body: Body | undefined): ApiFault | undefined {
  const first = Array.isArray(body?.errors) ? body.errors[0] : undefined;
  const code = first?.extensions?.code;
  const message = plainText(first?.message ?? body?.detail, 500);
  const waitSeconds = Number(response.headers.get('retry-after') ?? Number.NaN);
  const retryAfterMs = Number.isFinite(waitSeconds) ? waitSeconds * 1000 : undefined;
  const kind = kindOf(code);
  if (response.status === 401 || kind === 'UNAUTHENTICATED')
    return new ApiFault('UNAUTHENTICATED', message || 'The API key is not accepted.');
  if (response.status === 429 || kind === 'RATE_LIMITED')
    return new ApiFault('RATE_LIMITED', message || 'The API asks to wait.', retryAfterMs);
  if (response.status >= 500 || kind === 'UNREACHABLE')
    return new ApiFault('UNREACHABLE', message || `The API answers with HTTP ${response.status}.`, retryAfterMs);
  if (first) return new ApiFault('REFUSED', message || 'The API refused the request.');
  if (response.status >= 400 || body?.data === null || typeof body?.data !== 'object') {
    return new ApiFault('UNREACHABLE', `HTTP ${response.status} without a result; is this the address of the Paceline API?`);
  }
  return undefined;
}
