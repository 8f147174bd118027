/**
 * Subscriptions over one WebSocket (graphql-transport-ws), opened by the first and closed after the last of them.
 * Nothing is retried here: `follow` subscribes again with the number of the last item it has.
 */
import { createClient, type Client } from 'graphql-ws';
import type { Connection } from '../live/connection.js';
import { plainText } from '../text/plain-text.js';
import { ApiFault } from './api-fault.js';
import type { Operation } from './operation.js';
import { kindOf } from './request.js';

const PING_EVERY_MS = 5_000;
const PONG_DEADLINE_MS = 4_000;
const ACK_DEADLINE_MS = 10_000;
const CHANNEL = 'socket';

export interface Live {
  /** Ends when the server completes; throws ApiFault when the connection breaks or the server refuses. `return` ends it at once. */
  subscribe<Result, Variables>(operation: Operation<Result, Variables>, variables: Variables): AsyncIterator<Result, void>;
  close(): void;
}

/** @param connection told whether the socket is open, which a subscription without news could not tell */
export function openLive(key: string, connection: Connection): Live {
  const url = new URL('/graphql', location.href);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  const client = openClient(url.href, key, connection);
  return {
    subscribe: <Result, Variables>({ name, text }: Operation<Result, Variables>, variables: Variables) =>
      results<Result>(client.iterate<Result>({ operationName: name, query: text, variables: variables as Record<string, unknown> })),
    close: () => void client.dispose(),
  };
}

interface Answer<Result> {
  readonly data?: Result | null | undefined;
  readonly errors?: readonly unknown[] | undefined;
}

/** Not an async generator: one that waits for its next item does not end when `return` is called. */
function results<Result>(items: AsyncIterator<Answer<Result>>): AsyncIterator<Result, void> {
  const next = async (): Promise<IteratorResult<Result, void>> => {
    let item: IteratorResult<Answer<Result>>;
    try {
      item = await items.next();
    } catch (error) {
      throw refusal(error);
    }
    if (item.done) return { done: true, value: undefined };
    if (item.value.errors) throw refusal(item.value.errors);
    return item.value.data ? { done: false, value: item.value.data } : next();
  };
  return {
    next,
    return: async () => {
      await items.return?.();
      return { done: true, value: undefined };
    },
  };
}

function openClient(url: string, key: string, connection: Connection): Client {
  let pongTimer: ReturnType<typeof setTimeout> | undefined;
  const client = createClient({
    url,
    connectionParams: { authorization: `Bearer ${key}` },
    retryAttempts: 0,
    keepAlive: PING_EVERY_MS,
    connectionAckWaitTimeout: ACK_DEADLINE_MS,
    on: {
      connected: () => connection.report(CHANNEL, 'live'),
      // A peer that vanished without closing (sleeping laptop, lost Wi-Fi) is noticed by a missing pong.
      ping: (received) => {
        if (!received) pongTimer = setTimeout(() => client.terminate(), PONG_DEADLINE_MS);
      },
      pong: (received) => {
        if (received) clearTimeout(pongTimer);
      },
      closed: (event) => {
        clearTimeout(pongTimer);
        // Closed by us after the last subscription, or broken.
        connection.report(CHANNEL, (event as CloseEvent).code === 1000 ? 'live' : 'lost');
      },
    },
  });
  return client;
}

/** graphql-ws throws a list of GraphQL errors, a CloseEvent, or what the socket said. */
export function refusal(error: unknown): ApiFault {
  if (error instanceof ApiFault) return error;
  if (Array.isArray(error)) {
    const [first] = error as { message?: unknown; extensions?: { code?: unknown } }[];
    return new ApiFault(kindOf(first?.extensions?.code), plainText(first?.message, 500) || 'The API refused the subscription.');
  }
  const { code, reason } = (error ?? {}) as { code?: unknown; reason?: unknown };
  const said = plainText(reason, 200);
  if (code === 4401 || code === 4403) return new ApiFault('UNAUTHENTICATED', said || 'The API key is not accepted.');
  if (code === 4429) return new ApiFault('RATE_LIMITED', said || 'The API asks to wait.');
  // The protocol's own refusals; 4408, 4499 and 4504 are timeouts and a socket that we ended ourselves.
  const refused = typeof code === 'number' && code >= 4400 && code < 4500 && ![4408, 4499, 4504].includes(code);
  return new ApiFault(refused ? 'REFUSED' : 'UNREACHABLE', said || 'The connection broke.');
}
