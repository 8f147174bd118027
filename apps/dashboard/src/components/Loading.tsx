import type { ReactNode } from 'react';
import type { ApiFault } from '../graphql/api-fault.js';

/** Nothing has come yet; `trouble` says why, when there is a reason. */
export function Loading({ trouble }: { trouble: ApiFault | undefined }): ReactNode {
  return (
    <p className="loading" role="status">
      {trouble ? `${trouble.message} Trying again…` : 'Loading…'}
    </p>
  );
}
