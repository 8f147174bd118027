import { useEffect, useState, type ReactNode } from 'react';
import { duration } from '../text/format.js';
import type { ConnectionState as State } from './connection.js';

/** A hiccup shorter than this is mended before anybody has read about it. */
const PATIENCE_MS = 800;

export function ConnectionState({ state }: { state: State }): ReactNode {
  const lostForMs = useLostForMs(state);
  const shown = lostForMs === undefined || lostForMs < PATIENCE_MS ? 'live' : 'lost';
  return (
    <span className={`connection ${shown}`} data-state={shown}>
      <span className="dot" aria-hidden="true" />
      <span role="status">{shown === 'live' ? 'Live' : 'Reconnecting…'}</span>
      {shown === 'lost' && <span className="connection-age">last heard {duration(Math.round(lostForMs! / 1000))} ago</span>}
    </span>
  );
}

function useLostForMs(state: State): number | undefined {
  const [lostForMs, setLostForMs] = useState<number>();
  useEffect(() => {
    if (state === 'live') return;
    const since = performance.now();
    setLostForMs(0);
    const timer = setInterval(() => setLostForMs(performance.now() - since), 500);
    return () => {
      clearInterval(timer);
      setLostForMs(undefined);
    };
  }, [state]);
  return lostForMs;
}
