/** Subscriptions of the page. They never give up: a page that is open overnight is live again in the morning. */
import { Backoff, follow } from '@paceline/client';
import { asFault } from '../graphql/api-fault.js';
import type { ConnectionState } from './connection.js';

const FIRST_DELAY_MS = 500;
const MAX_DELAY_MS = 10_000;
const JITTER = 0.25;
const SETTLED_MS = 1_500;
/** When a run that is over is looked at again, each after the one before. An api that is busy, or was away, stores the last rounds late. */
const LAST_WORDS_AFTER_MS = [3_000, 7_000, 20_000];

/**
 * Follows a subscription until the server completes it because the run is over, and then a few times more: what the processes of a run say while
 * they leave may be stored after its end.
 * @param open subscribes after the last item, and accepts each before it yields @throws ApiFault that is not temporary
 */
export async function followRun(
  open: (signal: AbortSignal) => AsyncIterable<unknown>,
  onState: (state: ConnectionState) => void,
  signal: AbortSignal,
): Promise<void> {
  const options = {
    reconnectForMs: Number.POSITIVE_INFINITY,
    signal,
    onConnection: (state: 'lost' | 'back') => onState(state === 'lost' ? 'lost' : 'live'),
    settledAfterMs: SETTLED_MS,
    isTemporary: (error: unknown) => asFault(error).isTemporary,
    backoff: new Backoff(FIRST_DELAY_MS, MAX_DELAY_MS, JITTER),
    pause: pauseUntilNudged,
  };
  for await (const _accepted of follow(open, options));
  for (const delayMs of LAST_WORDS_AFTER_MS) {
    await pauseUntilNudged(delayMs, signal);
    if (signal.aborted) return;
    for await (const _accepted of follow(open, options));
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
