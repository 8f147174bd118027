/**
 * One metric over the rounds: the mean as a line, lowest to highest as a band behind it, epochs as faint verticals.
 * The newest value, or the one under the cursor, is written in the head; with the keyboard, the arrow keys move the cursor.
 */
import { useEffect, useId, useMemo, useRef, useState, type KeyboardEvent, type ReactNode } from 'react';
import type uPlot from 'uplot';
import { count } from '../text/format.js';
import { drawChart, type DrawnChart } from './draw-chart.js';
import type { Point } from './series.js';

export interface ChartProps {
  readonly title: string;
  readonly points: readonly Point[];
  readonly format: (value: number) => string;
  readonly lastRound: number;
  readonly roundsPerEpoch: number | undefined;
  readonly fromZero?: boolean;
  readonly ceiling?: number;
  /** Offers a logarithmic scale, for what falls steeply first and slowly then. */
  readonly canBeLogarithmic?: boolean;
}

export function Chart({
  title,
  points,
  format,
  lastRound,
  roundsPerEpoch,
  fromZero = false,
  ceiling,
  canBeLogarithmic = false,
}: ChartProps): ReactNode {
  const place = useRef<HTMLDivElement>(null);
  const drawn = useRef<DrawnChart>(undefined);
  const [logarithmic, setLogarithmic] = useState(false);
  const [cursor, setCursor] = useState<number>();
  const titleId = useId();
  const data = useMemo<uPlot.AlignedData>(() => columns(points), [points]);

  useEffect(() => {
    const chart = drawChart(place.current!, { format, lastRound, roundsPerEpoch, fromZero, ceiling, logarithmic, onCursor: setCursor });
    drawn.current = chart;
    return () => chart.remove();
  }, [format, lastRound, roundsPerEpoch, fromZero, ceiling, logarithmic]);

  useEffect(() => drawn.current?.show(data), [data, format, lastRound, roundsPerEpoch, fromZero, ceiling, logarithmic]);

  const onKeyDown = (event: KeyboardEvent): void => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || points.length === 0) return;
    event.preventDefault();
    const from = cursor ?? points.length - 1;
    const next = Math.min(points.length - 1, Math.max(0, from + (event.shiftKey ? step * 10 : step)));
    drawn.current?.moveCursor(next);
    setCursor(next);
  };
  const shown = points[cursor ?? points.length - 1] ?? points.at(-1);
  return (
    <section className="card chart" aria-labelledby={titleId}>
      <div className="card-head">
        <h2 id={titleId}>{title}</h2>
        {canBeLogarithmic && points.length > 0 && points.every(({ min }) => min > 0) && (
          <button
            type="button"
            className="button small"
            aria-label="Logarithmic scale"
            title="Logarithmic scale"
            aria-pressed={logarithmic}
            onClick={() => setLogarithmic(!logarithmic)}
          >
            log
          </button>
        )}
        {shown && <Reading point={shown} format={format} />}
      </div>
      <div
        ref={place}
        className="chart-place"
        role="img"
        tabIndex={points.length > 0 ? 0 : undefined}
        aria-label={description(title, points, format)}
        onKeyDown={onKeyDown}
        onBlur={() => {
          drawn.current?.moveCursor(undefined);
          setCursor(undefined);
        }}
      />
      {points.length === 0 && <p className="chart-empty">Nothing measured yet</p>}
    </section>
  );
}

function Reading({ point, format }: { point: Point; format: (value: number) => string }): ReactNode {
  const rounds =
    point.rounds > 1 ? `rounds ${count(point.round - point.rounds + 2)}–${count(point.round + 1)}` : `round ${count(point.round + 1)}`;
  return (
    <span className="reading">
      <strong>{format(point.value)}</strong> <span className="faint">{rounds}</span>
    </span>
  );
}

function columns(points: readonly Point[]): uPlot.AlignedData {
  return [points.map((p) => p.round), points.map((p) => p.value), points.map((p) => p.max), points.map((p) => p.min)];
}

function description(title: string, points: readonly Point[], format: (value: number) => string): string {
  const [first, last] = [points[0], points.at(-1)];
  if (!first || !last) return `${title}: nothing measured yet`;
  return `${title}: from ${format(first.value)} at round ${count(first.round + 1)} to ${format(last.value)} at round ${count(last.round + 1)}. Arrow keys read single points.`;
}
