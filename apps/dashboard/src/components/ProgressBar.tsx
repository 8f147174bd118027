import type { ReactNode } from 'react';
import { percent } from '../text/format.js';

/** @param fraction 0 to 1 */
export function ProgressBar({ label, fraction, tone, text }: { label: string; fraction: number; tone: string; text?: string }): ReactNode {
  const done = Math.min(1, Math.max(0, Number.isFinite(fraction) ? fraction : 0));
  return (
    <div
      className={`progress ${tone}`}
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.floor(done * 100)}
      aria-valuetext={text ?? percent(done)}
    >
      <div className="progress-done" style={{ transform: `scaleX(${done})` }} />
    </div>
  );
}
