/**
 * Asks again and again: the next request starts `everyMs` after the last answer, so a slow api is not asked faster than it can answer.
 * A hidden page rests; when it is looked at again it asks at once. Faults double the distance up to MAX_EVERY_MS.
 */
import { useCallback, useEffect, useRef, useState } from 'react';
import { asFault, type ApiFault } from '../graphql/api-fault.js';
import { useApi } from '../session/api-context.js';
import { pauseUntilNudged } from './follow.js';

/** However often it is asked to refresh. */
const MIN_EVERY_MS = 200;
const MAX_EVERY_MS = 15_000;
const HIDDEN_EVERY_MS = 60_000;
/** The longest that a timer can wait. */
const NEVER_MS = 2 ** 31 - 1;

export interface Polled<T> {
  readonly data: T | undefined;
  /** Why there is no newer answer; it is being asked for again. */
  readonly trouble: ApiFault | undefined;
  /** The last answer was a fault that waiting does not mend. */
  readonly refused: ApiFault | undefined;
  /** Asks now. */
  readonly refresh: () => void;
}

interface Answer<T> {
  /** What was asked; an answer to another question is not shown. */
  readonly load: unknown;
  readonly data?: T;
  readonly trouble?: ApiFault;
  readonly refused?: ApiFault;
}

/** @param everyMs undefined: ask once, and again on `refresh` */
export function usePoll<T>(channel: string, load: (signal: AbortSignal) => Promise<T>, everyMs: number | undefined): Polled<T> {
  const { connection, onFault } = useApi();
  const [answer, setAnswer] = useState<Answer<T>>({ load });
  const interval = useRef(everyMs);
  const nudge = useRef<() => void>(() => undefined);

  useEffect(() => {
    interval.current = everyMs;
    // A poll that was switched off asks no more.
    if (everyMs !== undefined) nudge.current();
  }, [everyMs]);

  useEffect(() => {
    const controller = new AbortController();
    const { signal } = controller;
    let faults = 0;
    /** @returns how long to wait then: known when the page has drawn what was answered, as that may end the asking */
    const askOnce = async (): Promise<() => number | undefined> => {
      try {
        const data = await connection.watched(channel, load(signal), signal);
        faults = 0;
        // The same object is no news.
        setAnswer((before) => (before.load === load && before.data === data && !before.trouble ? before : { load, data }));
        connection.report(channel, 'live');
        return () => (document.hidden && interval.current !== undefined ? HIDDEN_EVERY_MS : interval.current);
      } catch (error) {
        const never = (): undefined => undefined;
        if (signal.aborted) return never;
        const fault = asFault(error);
        if (onFault(fault)) return never;
        if (!fault.isTemporary) {
          setAnswer({ load, refused: fault });
          return never;
        }
        connection.report(channel, 'lost');
        setAnswer((before) => ({ ...(before.load === load && before), load, trouble: fault }));
        const waitMs = Math.max(fault.retryAfterMs ?? 0, Math.min(MAX_EVERY_MS, 1000 * 2 ** faults++));
        return () => waitMs;
      }
    };
    const run = async (): Promise<void> => {
      while (!signal.aborted) {
        const early = new AbortController();
        nudge.current = () => early.abort();
        const waitMs = await askOnce();
        await pauseUntilNudged(MIN_EVERY_MS, signal);
        await pauseUntilNudged(waitMs() ?? NEVER_MS, AbortSignal.any([signal, early.signal]));
      }
    };
    void run();
    return () => {
      controller.abort();
      connection.forget(channel);
    };
  }, [channel, load, connection, onFault]);

  const refresh = useCallback(() => nudge.current(), []);
  const current = answer.load === load ? answer : undefined;
  return { data: current?.data, trouble: current?.trouble, refused: current?.refused, refresh };
}
