/**
 * One metric over the rounds: the mean as a line, lowest to highest as a band behind it, epochs as faint verticals.
 * The newest value, or the one under the cursor, is written in the head. The cursor and the zoom are those of all charts of the page; with
 * the keyboard, the arrow keys move the cursor, + and - zoom, 0 shows all.
 */
import { useEffect, useId, useMemo, useRef, useState, type KeyboardEvent, type ReactNode } from 'react';
import { count } from '../text/format.js';
import { ChartTable } from './ChartTable.js';
import { canBeLogarithmic, firstRoundOf, isBetterLogarithmic, placeOf, zoomBy, type Span } from './chart-scale.js';
import { drawChart, type ChartData, type DrawnChart } from './draw-chart.js';
import { indexAt, smoothed, type Point } from './series.js';

/** What all charts of a run show alike. */
export interface ChartView {
  readonly roundsPerEpoch: number | undefined;
  readonly full: Span;
  readonly shown: Span;
  readonly onZoom: (span: Span | undefined) => void;
  /** The round (as points count) under the cursor, and the chart that it was set in. */
  readonly cursor: { readonly round: number; readonly by: string } | undefined;
  readonly onCursor: (cursor: ChartView['cursor']) => void;
  /** 0 to below 1 */
  readonly smoothing: number;
}

export interface ChartProps {
  readonly title: string;
  readonly points: readonly Point[];
  readonly format: (value: number) => string;
  readonly view: ChartView;
  readonly fromZero?: boolean;
  readonly ceiling?: number;
  /** Offers a logarithmic scale, for what falls steeply first and slowly then. */
  readonly offersLogarithmic?: boolean;
}

export function Chart(props: ChartProps): ReactNode {
  const { title, points, format, view, offersLogarithmic = false } = props;
  const [chosen, setLogarithmic] = useState<boolean>();
  const [withTable, setWithTable] = useState(false);
  const offered = offersLogarithmic && canBeLogarithmic(points);
  const logarithmic = offered && (chosen ?? isBetterLogarithmic(points));
  const { place, by } = useDrawn(props, logarithmic);
  const titleId = useId();

  const cursorAt = view.cursor && indexAt(points, view.cursor.round);
  const onKeyDown = (event: KeyboardEvent): void => {
    const last = points.length - 1;
    const at = cursorAt ?? last;
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    const zoom = { '+': 0.5, '-': 2, '0': Infinity }[event.key];
    if ((step === undefined && zoom === undefined) || last < 0 || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    if (zoom !== undefined) return view.onZoom(zoom === Infinity ? undefined : zoomBy(zoom, placeOf(points[at]!), view.shown, view.full));
    const next = Math.min(last, Math.max(0, at + (event.shiftKey ? step! * 10 : step!)));
    view.onCursor({ round: points[next]!.round, by: `${by} keys` });
  };
  const read = points[cursorAt ?? points.length - 1];
  return (
    <section className="card chart" aria-labelledby={titleId}>
      <div className="card-head">
        <h2 id={titleId}>{title}</h2>
        <span className="chart-buttons">
          {offered && <Toggle label="Logarithmic scale" text="log" pressed={logarithmic} onChange={setLogarithmic} />}
          {points.length > 0 && <Toggle label={`${title} as a table`} text="table" pressed={withTable} onChange={setWithTable} />}
        </span>
        {read && <Reading point={read} format={format} />}
      </div>
      <div
        ref={place}
        className="chart-place"
        role="img"
        tabIndex={points.length > 0 ? 0 : undefined}
        aria-label={description(title, points, format)}
        onKeyDown={onKeyDown}
        onBlur={() => view.onCursor(undefined)}
      />
      {points.length === 0 && <p className="chart-empty">Nothing measured yet</p>}
      {withTable && <ChartTable title={title} points={points} format={format} />}
    </section>
  );
}

/** Draws what the props say into `place`, and tells the others where the mouse is. */
function useDrawn({ points, view, fromZero = false, ceiling }: ChartProps, logarithmic: boolean) {
  const { roundsPerEpoch, shown, cursor, smoothing } = view;
  const place = useRef<HTMLDivElement>(null);
  const drawn = useRef<DrawnChart>(undefined);
  const by = useId();
  const latest = useRef({ points, view });
  latest.current = { points, view };
  const data = useMemo<ChartData>(() => columns(points, smoothing), [points, smoothing]);

  useEffect(() => {
    const chart = drawChart(place.current!, {
      roundsPerEpoch,
      fromZero,
      ceiling,
      logarithmic,
      onZoom: (span) => latest.current.view.onZoom(span),
      onCursor: (index) => {
        const point = index === undefined ? undefined : latest.current.points[index];
        latest.current.view.onCursor(point && { round: point.round, by });
      },
    });
    drawn.current = chart;
    return () => chart.remove();
  }, [by, roundsPerEpoch, fromZero, ceiling, logarithmic]);

  const [from, to] = shown;
  useEffect(() => drawn.current?.show(data, [from, to]), [data, from, to, roundsPerEpoch, fromZero, ceiling, logarithmic]);

  useEffect(() => {
    // The mouse moves the cursor of its own chart.
    if (cursor?.by !== by) drawn.current?.moveCursor(cursor && indexAt(latest.current.points, cursor.round));
  }, [cursor, by, data, from, to, logarithmic]);
  return { place, by };
}

interface ToggleProps {
  readonly label: string;
  readonly text: string;
  readonly pressed: boolean;
  readonly onChange: (pressed: boolean) => void;
}

function Toggle({ label, text, pressed, onChange }: ToggleProps): ReactNode {
  return (
    <button
      type="button"
      className="button small"
      aria-label={label}
      title={label}
      aria-pressed={pressed}
      onClick={() => onChange(!pressed)}
    >
      {text}
    </button>
  );
}

function Reading({ point, format }: { point: Point; format: (value: number) => string }): ReactNode {
  return (
    <span className="reading">
      <strong>{format(point.value)}</strong> <span className="faint">{roundsOf(point)}</span>
    </span>
  );
}

const roundsOf = (point: Point): string =>
  point.rounds > 1 ? `rounds ${count(firstRoundOf(point))}–${count(placeOf(point))}` : `round ${count(placeOf(point))}`;

function columns(points: readonly Point[], smoothing: number): ChartData {
  const means = points.map((p) => p.value);
  const isSmooth = smoothing > 0;
  return [
    points.map(placeOf),
    isSmooth ? smoothed(points, smoothing) : means,
    isSmooth ? means : means.map(() => null),
    points.map((p) => p.max),
    points.map((p) => p.min),
  ];
}

function description(title: string, points: readonly Point[], format: (value: number) => string): string {
  const [first, last] = [points[0], points.at(-1)];
  if (!first || !last) return `${title}: nothing measured yet`;
  return `${title}: from ${format(first.value)} at round ${count(placeOf(first))} to ${format(last.value)} at round ${count(placeOf(last))}. Arrow keys read single points.`;
}
