/**
 * GraphQL and REST over HTTP with a deadline; everything that goes wrong becomes a PacelineApiError. An api that is started again is away for some
 * seconds, so a request may be repeated meanwhile:
 *
 *     nobody listens (ECONNREFUSED)                     every request: nothing of it was seen
 *     the connection broke, or 503 (a database is away) only what may happen twice: queries, and mutations with an idempotency key
 *     anything else                                     never
 */
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { PacelineApiError } from './api-error.js';

export interface RetryOptions {
  /** How long to go on trying; 0: not at all. */
  readonly forMs: number;
  /** Told once for each request that is repeated. */
  readonly onWait?: ((error: PacelineApiError) => void) | undefined;
}

export interface HttpOptions {
  /** Origin of the api, e.g. `http://127.0.0.1:4100`. */
  readonly url: string;
  readonly apiKey: string | undefined;
  readonly timeoutMs: number;
  readonly retry: RetryOptions;
}

interface GraphqlError {
  readonly message: string;
  readonly extensions?: { readonly code?: string; readonly issues?: PacelineApiError['issues'] };
}

const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
/** A shard or a model over a slow line, and the check of a large dataset, take their time. */
const TRANSFER_DEADLINE_MS = 900_000;
const BUSY_TRIES = 30;
const BUSY_PAUSE_MS = 1_000;
const FIRST_DELAY_MS = 100;
const MAX_DELAY_MS = 1_000;
/** What Node says of connections that nobody accepted, and of those that broke. */
const NOBODY_LISTENS: ReadonlySet<unknown> = new Set(['ECONNREFUSED']);
const BROKE: ReadonlySet<unknown> = new Set(['ECONNRESET', 'EPIPE']);

/** @param mayRepeat whether the request may happen twice. @throws PacelineApiError */
export async function postGraphql(
  options: HttpOptions,
  query: string,
  variables: Readonly<Record<string, unknown>>,
  mayRepeat: boolean,
): Promise<Record<string, unknown>> {
  return withRetries(options.retry, mayRepeat, () => postOnce(options, query, variables));
}

async function withRetries<T>({ forMs, onWait }: RetryOptions, mayRepeat: boolean, ask: () => Promise<T>): Promise<T> {
  const until = performance.now() + forMs;
  for (let delayMs = FIRST_DELAY_MS, told = false; ; delayMs = Math.min(MAX_DELAY_MS, delayMs * 2)) {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof PacelineApiError) || !isWorthARetry(error, mayRepeat) || performance.now() + delayMs > until) throw error;
      if (!told) onWait?.(error);
      told = true;
      await sleep(delayMs);
    }
  }
}

/** Uploads go on side by side with those of others: whoever is told to wait waits. */
export async function whileBusy<T>(send: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await send();
    } catch (error) {
      if (!(error instanceof PacelineApiError) || error.httpStatus !== 429 || tries === BUSY_TRIES) throw error;
      await sleep(error.retryAfterMs ?? BUSY_PAUSE_MS);
    }
  }
}

export const forTransfer = (options: HttpOptions): HttpOptions =>
  Object.assign({}, options, { timeoutMs: Math.max(options.timeoutMs, TRANSFER_DEADLINE_MS) });

function isWorthARetry(error: PacelineApiError, mayRepeat: boolean): boolean {
  const why = (error.cause as { code?: unknown } | undefined)?.code;
  if (NOBODY_LISTENS.has(why)) return true;
  return mayRepeat && (BROKE.has(why) || error.httpStatus === 503);
}

async function postOnce(
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

/**
 * GET of a file. The deadline is for the beginning of the answer, not for its end.
 * @throws PacelineApiError with what the api says instead
 */
export async function getFile(options: HttpOptions, path: string): Promise<{ body: AsyncIterable<Uint8Array>; bytes: number }> {
  return withRetries(options.retry, true, async () => {
    const deadline = deadlineIn(options.timeoutMs);
    try {
      const body = await request(options, path, { method: 'GET', headers: authorization(options.apiKey), signal: deadline.signal });
      if (body.statusCode === 200) return { body, bytes: Number(body.headers['content-length'] ?? Number.NaN) };
      throw notTheApi(options.url, {
        status: body.statusCode ?? 0,
        text: await textOf(body, options.url),
        retryAfterMs: retryAfterOf(body),
      });
    } catch (cause) {
      throw connectionFault(options, deadline.signal, cause);
    } finally {
      deadline.clear();
    }
  });
}

/** HEAD of a path. @returns whether it is there @throws PacelineApiError for anything but yes and no */
export async function headOf(options: HttpOptions, path: string): Promise<boolean> {
  return withRetries(options.retry, true, async () => {
    const answer = await send(options, path, { method: 'HEAD', headers: authorization(options.apiKey) });
    if (answer.status === 200 || answer.status === 404) return answer.status === 200;
    throw notTheApi(options.url, answer);
  });
}

/**
 * Bytes under a path, or to it: an upload that may be repeated. The deadline is for the answer after all of them.
 * @returns the parsed body @throws PacelineApiError with what the api says instead
 */
export async function sendBytes(
  options: HttpOptions,
  method: 'PUT' | 'POST',
  path: string,
  body: Uint8Array,
  contentType: string,
): Promise<Record<string, unknown>> {
  return withRetries(options.retry, true, async () => {
    const headers = Object.assign({ 'content-type': contentType, accept: 'application/json' }, authorization(options.apiKey));
    const answer = await send(options, path, { method, headers, body });
    if (answer.status === 200 || answer.status === 201) return parseJson(answer.text) ?? {};
    throw notTheApi(options.url, answer);
  });
}

/** A body of a known length, sent once as it comes. @throws PacelineApiError */
export async function sendStream(
  options: HttpOptions,
  path: string,
  body: AsyncIterable<Uint8Array>,
  bytes: number,
): Promise<Record<string, unknown>> {
  const headers = Object.assign(
    { 'content-type': 'application/octet-stream', 'content-length': String(bytes), accept: 'application/json' },
    authorization(options.apiKey),
  );
  const answer = await send(options, path, { method: 'POST', headers, body });
  if (answer.status === 201) return parseJson(answer.text) ?? {};
  throw notTheApi(options.url, answer);
}

interface Answer {
  readonly status: number;
  readonly text: string;
  readonly retryAfterMs: number | undefined;
}

interface Question {
  readonly method: 'GET' | 'HEAD' | 'POST' | 'PUT';
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array | AsyncIterable<Uint8Array>;
}

async function send(options: HttpOptions, path: string, question: Question): Promise<Answer> {
  const deadline = deadlineIn(options.timeoutMs);
  try {
    const response = await request(options, path, { ...question, signal: deadline.signal });
    return { status: response.statusCode ?? 0, text: await textOf(response, options.url), retryAfterMs: retryAfterOf(response) };
  } catch (cause) {
    throw connectionFault(options, deadline.signal, cause);
  } finally {
    deadline.clear();
  }
}

/** node:http and not `fetch`: 9 ms of a processor for the first request of a program, against 115. Redirects are not followed. */
async function request(
  { url }: HttpOptions,
  path: string,
  { body, ...question }: Question & { readonly signal: AbortSignal },
): Promise<IncomingMessage> {
  const address = new URL(path, url);
  const open = address.protocol === 'https:' ? (await import('node:https')).request : httpRequest;
  return new Promise((resolve, reject) => {
    const isWhole = typeof body === 'string' || body instanceof Uint8Array;
    const length = isWhole ? { 'content-length': String(Buffer.byteLength(body)) } : {};
    const asked = open(address, { ...question, headers: { ...question.headers, ...length } }, resolve);
    asked.once('error', reject);
    if (body === undefined || isWhole) asked.end(body);
    // What the source of the body throws ends the request with it.
    else void pipeline(body, asked).catch(reject);
  });
}

async function textOf(response: IncomingMessage, url: string): Promise<string> {
  const parts: Buffer[] = [];
  let length = 0;
  for await (const part of response as AsyncIterable<Buffer>) {
    length += part.length;
    if (length > MAX_ANSWER_BYTES)
      throw new PacelineApiError('BAD_ANSWER', `The answer of ${url} is longer than ${MAX_ANSWER_BYTES} bytes.`);
    parts.push(part);
  }
  return Buffer.concat(parts).toString('utf8');
}

function retryAfterOf({ headers }: IncomingMessage): number | undefined {
  const seconds = Number(headers['retry-after'] ?? Number.NaN);
  return Number.isFinite(seconds) ? seconds * 1000 : undefined;
}

function deadlineIn(timeoutMs: number): { readonly signal: AbortSignal; clear(): void } {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(), timeoutMs);
  return { signal: controller.signal, clear: () => clearTimeout(timer) };
}

function connectionFault({ url, timeoutMs }: HttpOptions, signal: AbortSignal, cause: unknown): PacelineApiError {
  if (cause instanceof PacelineApiError) return cause;
  if (signal.aborted) return new PacelineApiError('TIMEOUT', `${url} did not answer in ${timeoutMs} ms.`, { cause });
  return new PacelineApiError('UNREACHABLE', `${url} cannot be reached (${reasonOf(cause)}).`, { cause });
}

function authorization(apiKey: string | undefined): Record<string, string> {
  return apiKey ? { authorization: `Bearer ${apiKey}` } : {};
}

function reasonOf(error: unknown): string {
  const { code, message } = (error ?? {}) as { code?: unknown; message?: unknown };
  if (typeof code === 'string') return code;
  return typeof message === 'string' ? message : String(error);
}

function faultOf(error: GraphqlError, { status, retryAfterMs }: Answer): PacelineApiError {
  const code = error.extensions?.code ?? (status === 401 ? 'UNAUTHENTICATED' : 'BAD_REQUEST');
  return new PacelineApiError(code, error.message, { issues: error.extensions?.issues ?? [], httpStatus: status, retryAfterMs });
}

function notTheApi(url: string, { status, text, retryAfterMs }: Answer): PacelineApiError {
  const problem = parseJson(text);
  const issues = Array.isArray(problem?.['issues']) ? (problem['issues'] as PacelineApiError['issues']) : [];
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
    issues,
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
