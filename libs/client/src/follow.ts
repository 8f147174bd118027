/**
 * Follows a subscription until the server completes it, and loses nothing on the way.
 *
 *     OPEN     --item-->             yield it
 *     OPEN     --complete-->         end
 *     OPEN     --temporary error-->  WAITING, with a longer delay each time
 *     WAITING  --delay-->            OPEN: `open` subscribes after the last item
 *     WAITING  --nothing heard for reconnectForMs--> throw
 *     OPEN     --other error-->      throw
 *     any      --signal-->           end
 *
 * The server sends what was stored first, then what is new, so a reconnect neither loses nor repeats.
 */
import { PacelineApiError } from './api-error.js';
import { Backoff } from './backoff.js';
import { sleep } from './sleep.js';

export interface SubscriptionOptions {
  /** How long to go on trying without hearing anything. */
  readonly reconnectForMs: number;
  readonly signal?: AbortSignal | undefined;
  /** Told when the connection was lost and when it is back. */
  readonly onConnection?: ((state: 'lost' | 'back', reason: string) => void) | undefined;
}

export interface FollowOptions extends SubscriptionOptions {
  /** A subscription that was not refused for so long counts as back: there may be no news for long. By default only an item counts. */
  readonly settledAfterMs?: number;
  /** Whether the connection is there, without which nothing settles: one that is still being made refuses nothing. */
  readonly isOpen?: () => boolean;
  readonly isTemporary?: (error: unknown) => boolean;
  readonly backoff?: Backoff;
  /** May resolve early when waiting is pointless. */
  readonly pause?: (ms: number, signal: AbortSignal) => Promise<void>;
}

const isTemporaryError = (error: unknown): boolean => error instanceof PacelineApiError && error.isTemporary;

/** @throws the error that is not temporary, or the last one after `reconnectForMs` */
export async function* follow<T>(
  open: (signal: AbortSignal) => AsyncIterable<T>,
  {
    reconnectForMs,
    signal: outer,
    onConnection,
    settledAfterMs,
    isOpen = () => true,
    isTemporary = isTemporaryError,
    backoff = new Backoff(100, 5_000),
    pause = sleep,
  }: FollowOptions,
): AsyncGenerator<T, void, void> {
  const controller = new AbortController();
  const signal = outer ? AbortSignal.any([controller.signal, outer]) : controller.signal;
  let lostAt: number | undefined;
  const isBack = (): void => {
    if (lostAt !== undefined) onConnection?.('back', '');
    lostAt = undefined;
  };
  try {
    while (!signal.aborted) {
      const settle = (): void => {
        if (!isOpen()) return;
        clearInterval(settled);
        isBack();
      };
      const settled = settledAfterMs === undefined || lostAt === undefined ? undefined : setInterval(settle, settledAfterMs);
      try {
        for await (const item of open(signal)) {
          if (signal.aborted) return;
          isBack();
          backoff.reset();
          yield item;
        }
        return isBack();
      } catch (error) {
        clearInterval(settled);
        if (signal.aborted) return;
        if (!isTemporary(error)) throw error;
        const { message, retryAfterMs = 0 } = error as Error & { readonly retryAfterMs?: number | undefined };
        if (lostAt === undefined) onConnection?.('lost', message);
        lostAt ??= performance.now();
        if (performance.now() - lostAt > reconnectForMs) throw error;
        await pause(Math.max(retryAfterMs, backoff.next()), signal);
      } finally {
        clearInterval(settled);
      }
    }
  } finally {
    controller.abort();
  }
}
