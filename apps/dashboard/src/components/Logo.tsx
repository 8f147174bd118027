import type { ReactNode } from 'react';

/** Four riders in a line. */
export function Logo(): ReactNode {
  return (
    <svg className="logo" viewBox="0 0 24 24" width="24" height="24" aria-hidden="true">
      <path
        d="M3.5 17 7 7M8.5 17 12 7M13.5 17 17 7M18.5 17 22 7"
        fill="none"
        stroke="currentColor"
        strokeWidth="2.4"
        strokeLinecap="round"
      />
    </svg>
  );
}
