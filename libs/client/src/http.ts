/**
 * GraphQL and REST over HTTP with a deadline; everything that goes wrong becomes a PacelineApiError. An api that is started again is away for some
 * seconds, so a request may be repeated meanwhile:
 *
 *     nobody listens (ECONNREFUSED)                     every request: nothing of it was seen
 *     the connection broke, or 503 (a database is away) only what may happen twice: queries, and mutations with an idempotency key
 *     anything else                                     never
 */
import { ask } from '#platform';
import { PacelineApiError } from './api-error.js';
import { Backoff } from './backoff.js';
import type { Question, Reply } from './platform/platform.js';
import { sleep } from './sleep.js';

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

const MAX_ANSWER_CHARACTERS = 64 * 1024 * 1024;
/** A shard or a model over a slow line, and the check of a large dataset, take their time. */
const TRANSFER_DEADLINE_MS = 900_000;
/** A file that sends nothing for so long after its first byte is given up. */
const TRANSFER_SILENCE_MS = 120_000;
const BUSY_TRIES = 30;
const BUSY_PAUSE_MS = 1_000;
/** What Node says of connections that nobody accepted, and of those that broke. */
const NOBODY_LISTENS: ReadonlySet<unknown> = new Set(['ECONNREFUSED']);
const BROKE: ReadonlySet<unknown> = new Set(['ECONNRESET', 'EPIPE']);

/** @param mayRepeat whether the request may happen twice. @throws PacelineApiError */
export async function withRetries<T>({ forMs, onWait }: RetryOptions, mayRepeat: boolean, send: () => Promise<T>): Promise<T> {
  const until = performance.now() + forMs;
  const backoff = new Backoff(100, 1_000);
  for (let told = false; ;) {
    try {
      return await send();
    } catch (error) {
      if (!(error instanceof PacelineApiError) || !isWorthARetry(error, mayRepeat)) throw error;
      const delayMs = Math.max(backoff.next(), error.retryAfterMs ?? 0);
      if (performance.now() + delayMs > until) throw error;
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
  // A browser does not say why.
  const isUnsaid = error.code === 'UNREACHABLE' && why === undefined;
  return mayRepeat && (BROKE.has(why) || isUnsaid || error.httpStatus === 503);
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
 * GET of a file. The deadline is for the beginning of the answer, not for its end; a body of which nothing comes for two minutes is given up.
 * @throws PacelineApiError with what the api says instead; so does the body that breaks off, or falls silent
 */
export async function getFile(options: HttpOptions, path: string): Promise<{ body: AsyncIterable<Uint8Array>; bytes: number }> {
  return withRetries(options.retry, true, () => {
    const transfer = new AbortController();
    return withDeadline(options, transfer.signal, async (signal) => {
      const reply = await ask(new URL(path, options.url), { method: 'GET', headers: authorization(options.apiKey), signal });
      if (reply.status !== 200) throw refusalOf(options.url, await answerOf(reply, options.url));
      const bytes = Number(reply.header('content-length') ?? Number.NaN);
      return { body: transferred(reply.body, { url: options.url, bytes, transfer }), bytes };
    });
  });
}

/** @throws PacelineApiError UNREACHABLE, TIMEOUT */
async function* transferred(
  body: AsyncIterable<Uint8Array>,
  { url, bytes, transfer }: { readonly url: string; readonly bytes: number; readonly transfer: AbortController },
): AsyncGenerator<Uint8Array> {
  let received = 0;
  const soFar = (): string => (Number.isFinite(bytes) ? `${received} of ${bytes} bytes` : `${received} bytes`);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const listen = (): void => {
    clearTimeout(timer);
    timer = setTimeout(() => transfer.abort(), TRANSFER_SILENCE_MS);
  };
  try {
    listen();
    for await (const part of body) {
      clearTimeout(timer); // whoever takes the bytes may take its time
      received += part.length;
      yield part;
      listen();
    }
  } catch (cause) {
    if (transfer.signal.aborted)
      throw new PacelineApiError('TIMEOUT', `${url} sent nothing more for ${TRANSFER_SILENCE_MS} ms, after ${soFar()}.`, { cause });
    throw new PacelineApiError('UNREACHABLE', `The connection to ${url} broke after ${soFar()} (${reasonOf(cause)}).`, { cause });
  } finally {
    clearTimeout(timer);
  }
  if (Number.isFinite(bytes) && received !== bytes)
    throw new PacelineApiError('UNREACHABLE', `The connection to ${url} ended after ${soFar()}.`);
}

/** HEAD of a path. @returns whether it is there @throws PacelineApiError for anything but yes and no */
export async function headOf(options: HttpOptions, path: string): Promise<boolean> {
  return withRetries(options.retry, true, async () => {
    const answer = await send(options, path, { method: 'HEAD', headers: authorization(options.apiKey) });
    if (answer.status === 200 || answer.status === 404) return answer.status === 200;
    throw refusalOf(options.url, answer);
  });
}

/**
 * Bytes under a path, or to it: an upload that may be repeated. The deadline is for the answer after all of them.
 * @param signal ends it, with its reason
 * @returns the parsed body @throws PacelineApiError with what the api says instead
 */
export async function sendBytes(
  options: HttpOptions,
  method: 'PUT' | 'POST',
  path: string,
  body: Uint8Array,
  contentType: string,
  signal?: AbortSignal,
): Promise<Record<string, unknown>> {
  return withRetries(options.retry, true, async () => {
    const headers = Object.assign({ 'content-type': contentType, accept: 'application/json' }, authorization(options.apiKey));
    const answer = await send(options, path, { method, headers, body }, signal);
    if (answer.status === 200 || answer.status === 201) return parseJson(answer.text) ?? {};
    throw refusalOf(options.url, answer);
  });
}

/** A body of a known length, sent once as it comes. @throws PacelineApiError */
export async function sendStream(
  options: HttpOptions,
  path: string,
  body: AsyncIterable<Uint8Array>,
  bytes: number,
  signal?: AbortSignal,
): Promise<Record<string, unknown>> {
  const headers = Object.assign(
    { 'content-type': 'application/octet-stream', 'content-length': String(bytes), accept: 'application/json' },
    authorization(options.apiKey),
  );
  const answer = await send(options, path, { method: 'POST', headers, body }, signal);
  if (answer.status === 201) return parseJson(answer.text) ?? {};
  throw refusalOf(options.url, answer);
}

export interface Answer {
  readonly status: number;
  readonly text: string;
  readonly tag: string | undefined;
  readonly retryAfterMs: number | undefined;
}

/** @param outer ends the request too, with its reason */
export async function send(options: HttpOptions, path: string, question: Omit<Question, 'signal'>, outer?: AbortSignal): Promise<Answer> {
  return withDeadline(options, outer, async (signal) => {
    const reply = await ask(new URL(path, options.url), Object.assign({ signal }, question));
    return answerOf(reply, options.url);
  });
}

async function answerOf(reply: Reply, url: string): Promise<Answer> {
  const retryAfter = Number(reply.header('retry-after') ?? Number.NaN);
  return {
    status: reply.status,
    text: await textOf(reply, url),
    tag: reply.header('etag'),
    retryAfterMs: Number.isFinite(retryAfter) ? retryAfter * 1000 : undefined,
  };
}

async function textOf({ body }: Reply, url: string): Promise<string> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const part of body) {
    text += decoder.decode(part, { stream: true });
    if (text.length > MAX_ANSWER_CHARACTERS)
      throw new PacelineApiError('BAD_ANSWER', `The answer of ${url} is longer than ${MAX_ANSWER_CHARACTERS} characters.`);
  }
  return text + decoder.decode();
}

async function withDeadline<T>(
  { url, timeoutMs }: HttpOptions,
  outer: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const deadline = new AbortController();
  const timer = setTimeout(() => deadline.abort(), timeoutMs);
  try {
    return await work(outer ? AbortSignal.any([outer, deadline.signal]) : deadline.signal);
  } catch (cause) {
    if (outer?.aborted) throw outer.reason;
    if (cause instanceof PacelineApiError) throw cause;
    if (deadline.signal.aborted) throw new PacelineApiError('TIMEOUT', `${url} did not answer in ${timeoutMs} ms.`, { cause });
    throw new PacelineApiError('UNREACHABLE', `${url} cannot be reached (${reasonOf(cause)}).`, { cause });
  } finally {
    clearTimeout(timer);
  }
}

export function authorization(apiKey: string | undefined): Record<string, string> {
  return apiKey ? { authorization: `Bearer ${apiKey}` } : {};
}

function reasonOf(error: unknown): string {
  const { code, message } = (error ?? {}) as { code?: unknown; message?: unknown };
  if (typeof code === 'string') return code;
  return typeof message === 'string' ? message : String(error);
}

/** What an answer says that is not the one that was asked for. */
export function refusalOf(url: string, { status, text, retryAfterMs }: Omit<Answer, 'tag'>): PacelineApiError {
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
          ? 'RATE_LIMITED'
          : status === 503
            ? 'UNAVAILABLE'
            : 'BAD_ANSWER';
  return new PacelineApiError(code, detail ?? `${url} answered with HTTP ${status} and no result; is that address the Paceline api?`, {
    issues,
    httpStatus: status,
    retryAfterMs,
  });
}

export function parseJson(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return value !== null && typeof value === 'object' ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined; // an answer that is no JSON is reported by the caller with its status
  }
}
