import { useEffect, useState, useSyncExternalStore } from 'react';
import { useApi } from '../session/api-context.js';
import type { Connection } from './connection.js';

/** A hiccup shorter than this is mended before anybody has read about it. */
const PATIENCE_MS = 800;

/** How long ago the page heard of the api, renewed twice a second, once that is worth a word; undefined while it is live. */
export function useSilence(connection: Connection): number | undefined {
  const state = useSyncExternalStore(connection.subscribe, connection.state);
  const [silentForMs, setSilentForMs] = useState<number>();
  useEffect(() => {
    if (state === 'live') return;
    const since = performance.now();
    const timer = setInterval(() => {
      if (performance.now() - since >= PATIENCE_MS) setSilentForMs(connection.silentForMs());
    }, PATIENCE_MS / 2);
    return () => {
      clearInterval(timer);
      setSilentForMs(undefined);
    };
  }, [state, connection]);
  return silentForMs;
}

/** What the page shows is not live: figures of the moment and requests make no sense until it is again. */
export function useStale(): boolean {
  return useSilence(useApi().connection) !== undefined;
}
