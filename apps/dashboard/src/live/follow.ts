/**
 * Follows a subscription until the server completes it, and loses nothing on the way.
 *
 *     OPEN     --item-->             accept it
 *     OPEN     --complete-->         end
 *     OPEN     --temporary fault-->  WAITING, delay doubled up to MAX_DELAY_MS, with jitter
 *     WAITING  --delay or nudge-->   OPEN, subscribed after the last accepted item (`open` asks for its number)
 *     any      --signal-->           end
 *     OPEN     --other fault-->      throw
 *
 * It counts as live with its first item, or when it was not refused for SETTLED_MS: a run may have no news for long.
 * Each item sets the delay back. It never gives up: a page that is open overnight is live again in the morning.
 */
import { ApiFault, asFault } from '../graphql/api-fault.js';

const FIRST_DELAY_MS = 500;
const MAX_DELAY_MS = 10_000;
const SETTLED_MS = 1_500;

export interface FollowOptions<Item> {
  /** Subscribes after the last accepted item; called again for each connection. */
  readonly open: () => AsyncIterator<Item>;
  /** May throw a temporary ApiFault to be subscribed again. */
  readonly accept: (item: Item) => void;
  readonly onState: (state: 'live' | 'lost') => void;
  readonly signal: AbortSignal;
  /** Resolves early when waiting is pointless (the network is back, the page is looked at again). */
  readonly pause?: (ms: number, signal: AbortSignal) => Promise<void>;
  readonly random?: () => number;
}

/** @throws ApiFault that is not temporary */
export async function follow<Item>({
  open,
  accept,
  onState,
  signal,
  pause = pauseUntilNudged,
  random = Math.random,
}: FollowOptions<Item>): Promise<void> {
  let delayMs = FIRST_DELAY_MS;
  while (!signal.aborted) {
    const items = open();
    const stop = (): void => void items.return?.();
    signal.addEventListener('abort', stop, { once: true });
    const settled = setTimeout(() => onState('live'), SETTLED_MS);
    try {
      for (;;) {
        const next = await items.next();
        if (signal.aborted) return;
        onState('live');
        if (next.done) return;
        accept(next.value);
        delayMs = FIRST_DELAY_MS;
      }
    } catch (error) {
      clearTimeout(settled);
      if (signal.aborted) return;
      const fault: ApiFault = asFault(error);
      if (!fault.isTemporary) throw fault;
      onState('lost');
      await pause(Math.max(fault.retryAfterMs ?? 0, delayMs * (0.75 + random() / 2)), signal);
      delayMs = Math.min(MAX_DELAY_MS, delayMs * 2);
    } finally {
      clearTimeout(settled);
      signal.removeEventListener('abort', stop);
      stop();
    }
  }
}

/** Waits, but not longer than until the browser says that it is online again or the page is looked at. */
export function pauseUntilNudged(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const nudges = new AbortController();
    const done = (): void => {
      clearTimeout(timer);
      nudges.abort();
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', done, { once: true, signal: nudges.signal });
    window.addEventListener('online', done, { signal: nudges.signal });
    document.addEventListener('visibilitychange', () => void (document.hidden || done()), { signal: nudges.signal });
    if (signal.aborted) done();
  });
}
