import type { ReactNode } from 'react';
import type { Measure } from './measures.js';

interface Props {
  readonly measures: readonly Measure[];
  /** Metrics whose charts are put away. */
  readonly hidden: ReadonlySet<string>;
  readonly onChange: (hidden: ReadonlySet<string>) => void;
}

/** Fewer than this are all looked at. */
const WORTH_PICKING = 3;

/** Which metrics have a chart; only where there are many. */
export function MetricPicker({ measures, hidden, onChange }: Props): ReactNode {
  if (measures.length < WORTH_PICKING) return null;
  const toggled = (metric: string): ReadonlySet<string> => {
    const next = new Set(hidden);
    if (!next.delete(metric)) next.add(metric);
    return next;
  };
  return (
    <div className="metric-picker" role="group" aria-label="Metrics that are drawn">
      {measures.map(({ metric, label }) => (
        <button
          key={metric}
          type="button"
          className="button small"
          aria-pressed={!hidden.has(metric)}
          onClick={() => onChange(toggled(metric))}
        >
          {label}
        </button>
      ))}
    </div>
  );
}
