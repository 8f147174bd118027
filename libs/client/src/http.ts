/** GraphQL over HTTP with a deadline; everything that goes wrong becomes a PacelineApiError. */
import { PacelineApiError } from './api-error.js';

export interface HttpOptions {
  /** Origin of the api, e.g. `http://127.0.0.1:4100`. */
  readonly url: string;
  readonly apiKey: string | undefined;
  readonly timeoutMs: number;
}

interface GraphqlError {
  readonly message: string;
  readonly extensions?: { readonly code?: string; readonly issues?: PacelineApiError['issues'] };
}

const MAX_ANSWER_BYTES = 64 * 1024 * 1024;

/** @throws PacelineApiError */
export async function postGraphql(
  options: HttpOptions,
  query: string,
  variables: Readonly<Record<string, unknown>>,
): Promise<Record<string, unknown>> {
  const response = await send(options, '/graphql', {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/graphql-response+json, application/json',
      ...authorization(options.apiKey),
    },
    body: JSON.stringify({ query, variables }),
  });
  const { status, text } = response;
  const body = parseJson(text);
  const errors = body?.['errors'] as GraphqlError[] | undefined;
  if (Array.isArray(errors) && errors.length > 0) throw faultOf(errors[0]!, response);
  const data = body?.['data'];
  if (status >= 400 || data === null || typeof data !== 'object') throw notTheApi(options.url, response);
  return data as Record<string, unknown>;
}

/** GET of a REST path, e.g. `/readyz`. @returns the status and the parsed body */
export async function getJson(options: HttpOptions, path: string): Promise<{ status: number; body: unknown }> {
  const { status, text } = await send(options, path, {
    method: 'GET',
    headers: { accept: 'application/json', ...authorization(options.apiKey) },
  });
  return { status, body: parseJson(text) };
}

interface Answer {
  readonly status: number;
  readonly text: string;
  readonly retryAfterMs: number | undefined;
}

async function send(options: HttpOptions, path: string, init: RequestInit): Promise<Answer> {
  const signal = AbortSignal.timeout(options.timeoutMs);
  try {
    const response = await fetch(new URL(path, options.url), { ...init, signal, redirect: 'error' });
    const length = Number(response.headers.get('content-length') ?? 0);
    if (length > MAX_ANSWER_BYTES) throw new PacelineApiError('BAD_ANSWER', `The answer of ${options.url} is ${length} bytes long.`);
    const retryAfter = Number(response.headers.get('retry-after') ?? Number.NaN);
    return {
      status: response.status,
      text: await response.text(),
      retryAfterMs: Number.isFinite(retryAfter) ? retryAfter * 1000 : undefined,
    };
  } catch (cause) {
    if (cause instanceof PacelineApiError) throw cause;
    if (signal.aborted) throw new PacelineApiError('TIMEOUT', `${options.url} did not answer in ${options.timeoutMs} ms.`, { cause });
    throw new PacelineApiError('UNREACHABLE', `${options.url} cannot be reached (${reasonOf(cause)}).`, { cause });
  }
}

function authorization(apiKey: string | undefined): Record<string, string> {
  return apiKey ? { authorization: `Bearer ${apiKey}` } : {};
}

/** fetch hides the reason (ECONNREFUSED...) in its cause. */
function reasonOf(error: unknown): string {
  const cause = (error as { cause?: { code?: string; message?: string } }).cause;
  return cause?.code ?? cause?.message ?? (error instanceof Error ? error.message : String(error));
}

function faultOf(error: GraphqlError, { status, retryAfterMs }: Answer): PacelineApiError {
  const code = error.extensions?.code ?? (status === 401 ? 'UNAUTHENTICATED' : 'BAD_REQUEST');
  return new PacelineApiError(code, error.message, { issues: error.extensions?.issues ?? [], httpStatus: status, retryAfterMs });
}

function notTheApi(url: string, { status, text, retryAfterMs }: Answer): PacelineApiError {
  const problem = parseJson(text);
  const detail =
    typeof problem?.['detail'] === 'string' ? problem['detail'] : typeof problem?.['title'] === 'string' ? problem['title'] : undefined;
  const code =
    typeof problem?.['code'] === 'string'
      ? problem['code']
      : status === 401
        ? 'UNAUTHENTICATED'
        : status === 429
          ? 'TOO_MANY_ATTEMPTS'
          : status === 503
            ? 'UNAVAILABLE'
            : 'BAD_ANSWER';
  return new PacelineApiError(code, detail ?? `${url} answered with HTTP ${status} and no result; is that address the Paceline api?`, {
    httpStatus: status,
    retryAfterMs,
  });
}

function parseJson(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return value !== null && typeof value === 'object' ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined; // an answer that is no JSON is reported by the caller with its status
  }
}
