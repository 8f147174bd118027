/** The api for typed documents: requests over HTTP, subscriptions over one WebSocket. PacelineClient and the dashboard are made of it. */
import { PacelineApiError, type ReachedLimit } from './api-error.js';
import { Backoff } from './backoff.js';
import { askGraphql, textOf, type TypedDocument } from './graphql.js';
import { HeldAnswers } from './held-answers.js';
import { getFile, type HttpOptions, type RetryOptions } from './http.js';
import { sleep } from './sleep.js';
import type { SocketOptions, SubscriptionSocket } from './socket.js';

export interface ConnectionOptions extends Partial<SocketOptions> {
  /** Origin of the api, e.g. `http://127.0.0.1:4100`. */
  readonly url: string;
  readonly apiKey?: string | undefined;
  /** For one request. */
  readonly timeoutMs?: number;
  /** Repeats what may be repeated while the api is away, for example because it is started again. By default nothing is. */
  readonly retry?: RetryOptions;
  /** Remembers answers to queries with their tags, for programs that ask the same again and again: see HeldAnswers. */
  readonly holdsAnswers?: boolean;
}

const DEFAULT_TIMEOUT_MS = 15_000;
const PING_EVERY_MS = 10_000;
const PONG_DEADLINE_MS = 5_000;
const ATTEMPTS = 3;
const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 10_000;

interface Outcome extends Partial<ReachedLimit> {
  readonly __typename: string;
  readonly code?: string;
  readonly message?: string;
  readonly issues?: PacelineApiError['issues'];
}
type Success<Result> = Extract<Result[keyof Result], { readonly __typename: `${string}Success` }>;

/** All methods throw PacelineApiError and nothing else but the reason of a signal. */
export class ApiConnection {
  readonly http: HttpOptions;
  readonly #socketOptions: SocketOptions;
  readonly #held: HeldAnswers | undefined;
  #socket: Promise<SubscriptionSocket> | undefined;

  constructor({ url, apiKey, timeoutMs = DEFAULT_TIMEOUT_MS, retry = { forMs: 0 }, holdsAnswers = false, ...socket }: ConnectionOptions) {
    this.http = { url, apiKey, timeoutMs, retry };
    this.#held = holdsAnswers ? new HeldAnswers() : undefined;
    this.#socketOptions = Object.assign(
      { pingEveryMs: PING_EVERY_MS, pongDeadlineMs: PONG_DEADLINE_MS, connectTimeoutMs: timeoutMs },
      socket,
    );
  }

  /** @param once not repeated while the api is away, whatever the options say */
  request<Result, Variables>(
    document: TypedDocument<Result, Variables>,
    variables: Variables,
    { signal, once = false }: { readonly signal?: AbortSignal | undefined; readonly once?: boolean } = {},
  ): Promise<Result> {
    const http = once ? Object.assign({}, this.http, { retry: { forMs: 0 } }) : this.http;
    return askGraphql(http, document, variables, { signal, held: this.#held });
  }

  /** Members of the result union other than success become errors with their code. */
  async mutate<Result extends object, Variables>(
    document: TypedDocument<Result, Variables>,
    variables: Variables,
  ): Promise<Success<Result>> {
    const [outcome] = Object.values((await this.request(document, variables)) as Readonly<Record<string, Outcome>>);
    if (outcome!.__typename.endsWith('Success')) return outcome as Success<Result>;
    const { __typename: type, code = type, message = type, issues = [], limit, most, used, asked } = outcome!;
    const reached = limit === undefined ? undefined : { limit, most: most!, used: used!, asked: asked! };
    throw new PacelineApiError(code, message, { issues, reached });
  }

  /**
   * Under an idempotency key, so that it can be sent again when the answer was lost: up to `attempts` times while that may help.
   */
  async make<Result extends object, Variables extends { readonly idempotencyKey?: string | null | undefined }>(
    document: TypedDocument<Result, Variables>,
    variables: Variables,
    attempts = ATTEMPTS,
  ): Promise<Success<Result>> {
    const keyed = Object.assign({}, variables, { idempotencyKey: variables.idempotencyKey ?? newIdempotencyKey() });
    const backoff = new Backoff(FIRST_RETRY_MS, MAX_RETRY_MS);
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.mutate(document, keyed);
      } catch (error) {
        if (!(error instanceof PacelineApiError) || !error.isTemporary || attempt >= attempts || this.isInVain(error)) throw error;
        const delayMs = backoff.next();
        await sleep(Math.min(MAX_RETRY_MS, error.retryAfterMs ?? delayMs));
      }
    }
  }

  /** What each request has tried again for some time already; and wrong keys, as each of them makes the wait longer. */
  private isInVain({ code, httpStatus }: PacelineApiError): boolean {
    if (code === 'TOO_MANY_ATTEMPTS') return true;
    return this.http.retry.forMs > 0 && (code === 'UNREACHABLE' || httpStatus === 503);
  }

  /**
   * Ends when the server completes it or `signal` is aborted; `follow` takes a broken one up again. The libraries for sockets are loaded with the
   * first subscription: a program that only asks and is answered starts in less time.
   */
  async *subscribe<Result, Variables>(
    document: TypedDocument<Result, Variables>,
    variables: Variables,
    signal: AbortSignal,
  ): AsyncGenerator<Result, void, void> {
    const { url, apiKey } = this.http;
    const address = new URL('/graphql', url);
    address.protocol = address.protocol === 'https:' ? 'wss:' : 'ws:';
    this.#socket ??= import('./socket.js').then(({ openSocket }) => openSocket(address.href, apiKey, this.#socketOptions));
    const opening = this.#socket;
    // What could not be loaded is asked for again by the next subscription.
    opening.catch(() => {
      if (this.#socket === opening) this.#socket = undefined;
    });
    yield* (await this.#socket).iterate<Result>(textOf(document), variables as Readonly<Record<string, unknown>>, signal);
  }

  /** A file of the api. The deadline is for the beginning of the answer, not for its end. */
  file(path: string): Promise<{ readonly body: AsyncIterable<Uint8Array>; readonly bytes: number }> {
    return getFile(this.http, path);
  }

  /** Closes the WebSocket; running subscriptions end. */
  async close(): Promise<void> {
    const socket = this.#socket;
    this.#socket = undefined;
    await (await socket)?.dispose();
  }
}

/** crypto.randomUUID would need a secure context; a page opened by an address in the local network has none. */
export const newIdempotencyKey = (): string =>
  Array.from(globalThis.crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
