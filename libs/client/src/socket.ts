/**
 * Subscriptions over one WebSocket (graphql-transport-ws), opened by the first and closed after the last of them. Nothing is retried here: `follow`
 * subscribes again.
 */
import { createClient as createWsClient, type Client, type SubscribePayload } from 'graphql-ws';
import WebSocket from '#web-socket';
import { PacelineApiError } from './api-error.js';

/** A reader that falls behind by this much starts again from its last item. */
const MAX_QUEUED_ITEMS = 50_000;
/** The code of a socket that is closed after its last subscription. */
const NORMAL_CLOSURE = 1000;
/** Refusals that pass, with the HTTP status that they have elsewhere. */
const STATUS_OF_REFUSAL: Readonly<Record<string, number>> = { SERVICE_UNAVAILABLE: 503, TOO_BUSY: 429, RATE_LIMITED: 429 };

/** `closed`: by intent, after the last subscription. Nothing is connected then, and nothing is wrong. */
export type SocketState = 'open' | 'closed' | 'lost';

export interface SocketOptions {
  readonly pingEveryMs: number;
  readonly pongDeadlineMs: number;
  readonly connectTimeoutMs: number;
  /** Told what became of the socket, which a subscription without news cannot tell. */
  readonly onSocket?: ((state: SocketState) => void) | undefined;
}

export interface SubscriptionSocket {
  /** Ends when the server completes, or when `signal` is aborted. @throws PacelineApiError when the connection breaks or the server refuses */
  iterate<T>(query: string, variables: Readonly<Record<string, unknown>>, signal: AbortSignal): AsyncGenerator<T, void, void>;
  dispose(): Promise<void>;
}

export function openSocket(
  url: string,
  apiKey: string | undefined,
  { pingEveryMs, pongDeadlineMs, connectTimeoutMs, onSocket }: SocketOptions,
): SubscriptionSocket {
  let pongTimer: ReturnType<typeof setTimeout> | undefined;
  const client: Client = createWsClient({
    url,
    webSocketImpl: WebSocket,
    connectionParams: apiKey ? { authorization: `Bearer ${apiKey}` } : {},
    retryAttempts: 0,
    keepAlive: pingEveryMs,
    connectionAckWaitTimeout: connectTimeoutMs,
    on: {
      connected: () => onSocket?.('open'),
      // A peer that vanished without closing (sleeping laptop, lost Wi-Fi) is noticed by a missing pong.
      ping: (received) => {
        if (!received) pongTimer = setTimeout(() => client.terminate(), pongDeadlineMs);
      },
      pong: (received) => {
        if (received) clearTimeout(pongTimer);
      },
      closed: (event) => {
        clearTimeout(pongTimer);
        onSocket?.((event as { readonly code?: unknown }).code === NORMAL_CLOSURE ? 'closed' : 'lost');
      },
    },
  });
  return {
    iterate: (query, variables, signal) => iterate(client, { query, variables }, signal),
    dispose: async () => {
      clearTimeout(pongTimer);
      // A connection that was about to be made, and was not, needs no closing.
      await Promise.resolve(client.dispose()).catch(() => undefined);
    },
  };
}

async function* iterate<T>(client: Client, payload: SubscribePayload, signal: AbortSignal): AsyncGenerator<T, void, void> {
  if (signal.aborted) return;
  // A queue of our own: the iterator of graphql-ws waits for ever when the end comes before the first `next()`.
  let queue: ({ item: T } | { error: PacelineApiError } | { end: true })[] = [];
  let waiting = 0;
  let wake: () => void = () => undefined;
  const put = (entry: (typeof queue)[number]): void => {
    queue.push(entry);
    waiting++;
    wake();
  };
  const stop = client.subscribe<T>(payload, {
    next: ({ data, errors }) => {
      if (errors?.length) put({ error: refusal(errors) });
      else if (data && waiting < MAX_QUEUED_ITEMS) put({ item: data });
      else if (data) {
        queue = [];
        put({ error: new PacelineApiError('UNREACHABLE', `more than ${MAX_QUEUED_ITEMS} items wait to be read`) });
        stop();
      }
    },
    error: (error) => put({ error: refusal(error) }),
    complete: () => put({ end: true }),
  });
  const onAbort = (): void => put({ end: true });
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    while (!signal.aborted) {
      const batch = queue;
      queue = [];
      if (batch.length === 0) await new Promise<void>((resolve) => (wake = resolve));
      for (const entry of batch) {
        if (signal.aborted || 'end' in entry) return;
        if ('error' in entry) throw entry.error;
        waiting--;
        yield entry.item;
      }
    }
  } finally {
    signal.removeEventListener('abort', onAbort);
    stop();
  }
}

/** What graphql-ws throws: a list of GraphQL errors, a CloseEvent, or the socket's error. */
export function refusal(error: unknown): PacelineApiError {
  if (error instanceof PacelineApiError) return error;
  if (Array.isArray(error)) {
    const [first] = error as { message: string; extensions?: { code?: string; retryAfterSeconds?: number } }[];
    const { code = 'BAD_REQUEST', retryAfterSeconds } = first?.extensions ?? {};
    return new PacelineApiError(code, first?.message ?? 'The subscription was refused.', {
      httpStatus: STATUS_OF_REFUSAL[code],
      retryAfterMs: retryAfterSeconds === undefined ? undefined : retryAfterSeconds * 1000,
    });
  }
  const { code, reason } = (error ?? {}) as { code?: unknown; reason?: unknown };
  if (typeof code === 'number') {
    const text = typeof reason === 'string' && reason !== '' ? reason : `code ${code}`;
    // 44xx are the protocol's refusals; the others are connections that broke.
    if (code === 4401 || code === 4403)
      return new PacelineApiError('UNAUTHENTICATED', `The api key was refused (${text}).`, { httpStatus: 401 });
    if (code === 4429) return new PacelineApiError('RATE_LIMITED', `The api asks to wait (${text}).`, { httpStatus: 429 });
    if (code >= 4400 && code < 4500 && code !== 4408 && code !== 4499 && code !== 4504)
      return new PacelineApiError('BAD_REQUEST', `The subscription was refused (${text}).`);
    return new PacelineApiError('UNREACHABLE', `The connection was closed (${text}).`);
  }
  const message = (error as { error?: Error } | undefined)?.error?.message ?? (error instanceof Error ? error.message : String(error));
  return new PacelineApiError('UNREACHABLE', `The connection broke (${message || 'no reason given'}).`, { cause: error });
}
