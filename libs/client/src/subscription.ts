/**
 * Subscriptions that lose nothing when a connection breaks (graphql-transport-ws).
 *
 *     CONNECTED  --item-->            yield it, remember its number
 *     CONNECTED  --complete-->        end
 *     CONNECTED  --refused-->         throw (wrong key, no such run, invalid document)
 *     CONNECTED  --connection lost--> WAITING, with a doubling delay
 *     WAITING    --delay-->           subscribe again with everything after the remembered number
 *     WAITING    --nothing heard for reconnectForMs--> throw UNREACHABLE
 *
 * The server sends what was stored first, then what is new, so a reconnect neither loses nor repeats; a repeated number is dropped all the same.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient as createWsClient, type Client } from 'graphql-ws';
import WebSocket from 'ws';
import { PacelineApiError } from './api-error.js';

const PING_EVERY_MS = 10_000;
const PONG_DEADLINE_MS = 5_000;
const FIRST_DELAY_MS = 100;
const MAX_DELAY_MS = 5_000;
/** A reader that falls behind by this much starts again from its last item. */
const MAX_QUEUED_ITEMS = 50_000;

export interface SubscriptionOptions {
  /** How long to go on trying without hearing anything. */
  readonly reconnectForMs: number;
  readonly signal?: AbortSignal | undefined;
  /** Told when the connection was lost and when it is back. */
  readonly onConnection?: ((state: 'lost' | 'back', reason: string) => void) | undefined;
}

export interface SubscriptionRequest {
  readonly query: string;
  readonly field: string;
  /** The variables that ask for what follows the item of this number. */
  readonly resume: (last: number | undefined) => Readonly<Record<string, unknown>>;
}

export interface SubscriptionSocket {
  iterate<T>(
    request: { readonly query: string; readonly variables: Readonly<Record<string, unknown>>; readonly field: string },
    signal: AbortSignal,
  ): AsyncGenerator<T, void, void>;
  dispose(): Promise<void>;
}

/** One WebSocket, opened when the first subscription starts and closed when the last one ends. */
export function openSocket(url: string, apiKey: string | undefined, connectTimeoutMs: number): SubscriptionSocket {
  let pongTimer: NodeJS.Timeout | undefined;
  let socket: WebSocket | undefined;
  const client: Client = createWsClient({
    url,
    webSocketImpl: WebSocket,
    connectionParams: apiKey ? { authorization: `Bearer ${apiKey}` } : {},
    lazy: true,
    retryAttempts: 0, // reconnecting is done below, with the number of the last item
    keepAlive: PING_EVERY_MS,
    connectionAckWaitTimeout: connectTimeoutMs,
    on: {
      opened: (opened) => void (socket = opened as WebSocket),
      ping: (received) => {
        // A peer that vanished without closing is noticed by a missing pong.
        if (!received) pongTimer = setTimeout(() => socket?.terminate(), PONG_DEADLINE_MS);
      },
      pong: (received) => {
        if (received) clearTimeout(pongTimer);
      },
      closed: () => clearTimeout(pongTimer),
    },
  });
  return {
    async *iterate<T>(
      { query, variables, field }: { query: string; variables: Readonly<Record<string, unknown>>; field: string },
      signal: AbortSignal,
    ) {
      // A queue of our own: the iterator of graphql-ws waits for ever when the end comes before the first `next()`.
      const queue: ({ item: T } | { error: PacelineApiError } | { end: true })[] = [];
      let wake: () => void = () => undefined;
      const put = (entry: (typeof queue)[number]): void => {
        queue.push(entry);
        wake();
      };
      const stop = client.subscribe<Record<string, T>>(
        { query, variables },
        {
          next: ({ data, errors }) => {
            if (errors?.length) put({ error: refusal(errors) });
            else if (data) put({ item: data[field]! });
            if (queue.length > MAX_QUEUED_ITEMS)
              put({ error: new PacelineApiError('UNREACHABLE', `more than ${MAX_QUEUED_ITEMS} items wait to be read`) });
          },
          error: (error) => put({ error: refusal(error) }),
          complete: () => put({ end: true }),
        },
      );
      const onAbort = (): void => put({ end: true });
      signal.addEventListener('abort', onAbort, { once: true });
      try {
        while (!signal.aborted) {
          const entry = queue.shift();
          if (!entry) await new Promise<void>((resolve) => (wake = resolve));
          else if ('error' in entry) throw entry.error;
          else if ('end' in entry) return;
          else yield entry.item;
        }
      } finally {
        signal.removeEventListener('abort', onAbort);
        stop();
      }
    },
    dispose: async () => {
      clearTimeout(pongTimer);
      await client.dispose();
    },
  };
}

/** @param numberOf the number of an item */
export async function* resumable<T>(
  socket: SubscriptionSocket,
  request: SubscriptionRequest,
  numberOf: (item: T) => number,
  { reconnectForMs, signal: outer, onConnection }: SubscriptionOptions,
): AsyncGenerator<T, void, void> {
  const controller = new AbortController();
  const signal = outer ? AbortSignal.any([controller.signal, outer]) : controller.signal;
  let last: number | undefined;
  let delayMs = FIRST_DELAY_MS;
  let lostAt: number | undefined;
  try {
    while (!signal.aborted) {
      try {
        const stream = socket.iterate<T>({ query: request.query, variables: request.resume(last), field: request.field }, signal);
        for await (const item of stream) {
          if (lostAt !== undefined) onConnection?.('back', '');
          lostAt = undefined;
          delayMs = FIRST_DELAY_MS;
          const number = numberOf(item);
          if (last !== undefined && number <= last) continue;
          last = number;
          yield item;
        }
        return;
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof PacelineApiError) || !error.isTemporary) throw error;
        if (lostAt === undefined) onConnection?.('lost', error.message);
        lostAt ??= performance.now();
        if (performance.now() - lostAt > reconnectForMs) throw error;
        await sleep(delayMs, undefined, { signal }).catch(() => undefined); // an abort ends the loop
        delayMs = Math.min(MAX_DELAY_MS, delayMs * 2);
      }
    }
  } finally {
    controller.abort();
  }
}

/** What graphql-ws throws: a list of GraphQL errors, a CloseEvent, or the socket's error. */
function refusal(error: unknown): PacelineApiError {
  if (error instanceof PacelineApiError) return error;
  if (Array.isArray(error)) {
    const [first] = error as { message: string; extensions?: { code?: string } }[];
    return new PacelineApiError(first?.extensions?.code ?? 'BAD_REQUEST', first?.message ?? 'The subscription was refused.');
  }
  const { code, reason } = error as { code?: unknown; reason?: unknown };
  if (typeof code === 'number') {
    const text = typeof reason === 'string' && reason !== '' ? reason : `code ${code}`;
    // 44xx are the protocol's refusals; the others are connections that broke.
    if (code === 4401 || code === 4403)
      return new PacelineApiError('UNAUTHENTICATED', `The api key was refused (${text}).`, { httpStatus: 401 });
    if (code >= 4400 && code < 4500 && code !== 4408 && code !== 4499 && code !== 4504)
      return new PacelineApiError('BAD_REQUEST', `The subscription was refused (${text}).`);
    return new PacelineApiError('UNREACHABLE', `The connection was closed (${text}).`);
  }
  const message = (error as { error?: Error }).error?.message ?? (error instanceof Error ? error.message : String(error));
  return new PacelineApiError('UNREACHABLE', `The connection broke (${message || 'no reason given'}).`, { cause: error });
}
