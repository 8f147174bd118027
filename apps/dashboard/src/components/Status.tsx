import type { ReactNode } from 'react';
import type { RunStatus } from '../graphql/generated/operations.js';
import { statusLabel, toneOf, type Tone } from './status-table.js';

/** The shape says what the colour says. */
const SHAPES: Readonly<Record<Tone, ReactNode>> = {
  going: <circle cx="6" cy="6" r="4" fill="currentColor" />,
  waiting: (
    <path
      d="M6 1.8a4.2 4.2 0 1 0 0 8.4 4.2 4.2 0 0 0 0-8.4ZM6 3.6V6l1.7 1.2"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.4"
      strokeLinecap="round"
    />
  ),
  good: <path d="m2 6.4 2.7 2.7L10 3.4" fill="none" stroke="currentColor" strokeWidth="1.8" strokeLinecap="round" strokeLinejoin="round" />,
  bad: <path d="m2.6 2.6 6.8 6.8m0-6.8L2.6 9.4" fill="none" stroke="currentColor" strokeWidth="1.8" strokeLinecap="round" />,
  over: <path d="M2.4 6h7.2" fill="none" stroke="currentColor" strokeWidth="1.8" strokeLinecap="round" />,
};

/**
 * @param past it is not the present status any more
 * @param stalled the run should be trained, and waits for somebody
 */
export function Status({ status, past = false, stalled = false }: { status: RunStatus; past?: boolean; stalled?: boolean }): ReactNode {
  const tone = stalled ? 'waiting' : toneOf(status);
  return (
    <span className={`status ${past ? 'past' : tone}`}>
      <svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">
        {SHAPES[tone]}
      </svg>
      {statusLabel(status)}
      {stalled && <span className="status-note">· waiting</span>}
    </span>
  );
}
