import type { ReactNode } from 'react';
import { duration } from '../text/format.js';

/** @param silentForMs undefined: live */
export function ConnectionState({ silentForMs }: { silentForMs: number | undefined }): ReactNode {
  const shown = silentForMs === undefined ? 'live' : 'lost';
  return (
    <span className={`connection ${shown}`} data-state={shown}>
      <span className="dot" aria-hidden="true" />
      <span role="status">{shown === 'live' ? 'Live' : 'Reconnecting…'}</span>
      {silentForMs !== undefined && <span className="connection-age">last heard {duration(Math.round(silentForMs / 1000))} ago</span>}
    </span>
  );
}
