/** Typed GraphQL documents over HTTP. */
import type { DocumentTypeDecoration } from '@graphql-typed-document-node/core';
import { PacelineApiError } from './api-error.js';
import type { HeldAnswers } from './held-answers.js';
import { authorization, parseJson, refusalOf, send, withRetries, type Answer, type HttpOptions } from './http.js';

/** What generate.mjs makes of an operation. */
export type TypedDocument<Result, Variables> = DocumentTypeDecoration<Result, Variables> & { toString(): string };

interface GraphqlError {
  readonly message: string;
  readonly extensions?: { readonly code?: string; readonly issues?: PacelineApiError['issues'] };
}

export interface Asking {
  readonly signal?: AbortSignal | undefined;
  /** Queries that fit into an address go by GET with the tag of their last answer, so that one that is asked again can be answered 304. */
  readonly held?: HeldAnswers | undefined;
}

/** A longer address is refused by the api or a proxy before it (431, 414): all that is sent before the body shares 16 kB, or 8. */
const MAX_ADDRESS_CHARACTERS = 6_000;

/** A document on one line. */
export const textOf = (document: { toString(): string }): string => document.toString().replace(/\s+/g, ' ').trim();

/** Queries, and mutations with an idempotency key, may happen twice. @throws PacelineApiError; when `signal` is aborted, the signal's reason */
export async function askGraphql<Result, Variables>(
  options: HttpOptions,
  document: TypedDocument<Result, Variables>,
  variables: Variables,
  asking: Asking = {},
): Promise<Result> {
  const query = textOf(document);
  const mayRepeat = !query.startsWith('mutation') || (variables as { readonly idempotencyKey?: unknown }).idempotencyKey !== undefined;
  return withRetries(options.retry, mayRepeat, () => askOnce<Result>(options, query, variables, asking));
}

async function askOnce<Result>(options: HttpOptions, query: string, variables: unknown, { signal, held }: Asking): Promise<Result> {
  const operationName = /^\w+ (\w+)/.exec(query)?.[1] ?? '';
  const headers = Object.assign({ accept: 'application/graphql-response+json, application/json' }, authorization(options.apiKey));
  const asked = held && query.startsWith('query') ? addressOf(operationName, query, variables) : undefined;
  if (!held || asked === undefined || asked.length > MAX_ADDRESS_CHARACTERS) {
    const body = JSON.stringify({ operationName, query, variables });
    const posted = Object.assign({ 'content-type': 'application/json' }, headers);
    return dataOf(options.url, await send(options, '/graphql', { method: 'POST', headers: posted, body }, signal)) as Result;
  }
  const before = held.of(asked);
  // The api takes a GET only with a header that a page of another origin cannot send unasked.
  const tags = before ? { 'if-none-match': before.tag } : {};
  const got = Object.assign({ 'apollo-require-preflight': 'true' }, tags, headers);
  const answer = await send(options, `/graphql?${asked}`, { method: 'GET', headers: got }, signal);
  if (answer.status === 304 && before) return before.data as Result;
  const data = dataOf(options.url, answer);
  held.hold(asked, answer.tag, data);
  return data as Result;
}

const addressOf = (operationName: string, query: string, variables: unknown): string =>
  new URLSearchParams({ operationName, query, variables: JSON.stringify(variables) }).toString();

function dataOf(url: string, answer: Answer): unknown {
  const body = parseJson(answer.text);
  const errors = body?.['errors'] as GraphqlError[] | undefined;
  if (Array.isArray(errors) && errors.length > 0) throw faultOf(errors[0]!, answer);
  const data = body?.['data'];
  if (answer.status >= 400 || data === null || typeof data !== 'object') throw refusalOf(url, answer);
  return data;
}

function faultOf({ message, extensions }: GraphqlError, { status, retryAfterMs }: Answer): PacelineApiError {
  const code = extensions?.code ?? (status === 401 ? 'UNAUTHENTICATED' : 'BAD_REQUEST');
  return new PacelineApiError(code, message, { issues: extensions?.issues ?? [], httpStatus: status, retryAfterMs });
}
