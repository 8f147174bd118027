/**
 * One metric over the rounds: the mean as a line, lowest to highest as a band behind it, validations as dots on a dashed line, epochs as faint verticals.
 * The newest value, or the one under the cursor, is written in the head. The cursor and the zoom are those of all charts of the page; with
 * the keyboard, the arrow keys move the cursor, + and - zoom, 0 shows all.
 */
import { useEffect, useId, useMemo, useRef, useState, type KeyboardEvent, type ReactNode } from 'react';
import { count } from '../text/format.js';
import { ChartTable } from './ChartTable.js';
import { canBeLogarithmic, firstRoundOf, isBetterLogarithmic, placeOf, zoomBy, type Span } from './chart-scale.js';
import { drawChart, type ChartData, type ChartMark, type DrawnChart } from './draw-chart.js';
import { indexAt, smoothed, validatedAt, type Point } from './series.js';

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
  /** The same on the evaluation split, as a second line. */
  readonly validation?: readonly Point[];
  readonly format: (value: number | undefined) => string;
  readonly view: ChartView;
  readonly fromZero?: boolean;
  readonly ceiling?: number | undefined;
  /** The axis is labelled in percent. */
  readonly isShare?: boolean;
  /** Which is better, where that is to be said. */
  readonly better?: 'higher' | 'lower';
  readonly marks?: readonly ChartMark[];
  /** Offers a logarithmic scale, for what falls steeply first and slowly then. */
  readonly offersLogarithmic?: boolean;
}

export function Chart(props: ChartProps): ReactNode {
  const { title, points, validation = NO_POINTS, format, view, better, marks = NO_MARKS, offersLogarithmic = false } = props;
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
  const isReadByKeys = read !== undefined && view.cursor?.by === `${by} keys`;
  return (
    <section className="card chart" aria-labelledby={titleId}>
      <div className="card-head">
        <h2 id={titleId}>
          {title}
          {better && (
            <span className="better" aria-hidden="true" title={`${better} is better`}>
              {better === 'lower' ? '↓' : '↑'}
            </span>
          )}
        </h2>
        <span className="chart-buttons">
          {offered && <Toggle label="Logarithmic scale" text="log" pressed={logarithmic} onChange={setLogarithmic} />}
          {points.length > 0 && <Toggle label={`${title} as a table`} text="table" pressed={withTable} onChange={setWithTable} />}
        </span>
        {read && <Reading point={read} validation={validatedAt(validation, read)} format={format} />}
      </div>
      <div
        ref={place}
        className="chart-place"
        role="img"
        tabIndex={points.length > 0 ? 0 : undefined}
        aria-label={description(props, marks)}
        onKeyDown={onKeyDown}
        onBlur={() => view.onCursor(undefined)}
      />
      <span className="visually-hidden" role="status">
        {isReadByKeys && readingText(read, validatedAt(validation, read), format)}
      </span>
      {points.length === 0 && <p className="chart-empty">Nothing measured yet</p>}
      {withTable && <ChartTable title={title} points={points} validation={validation} format={format} />}
    </section>
  );
}

/** Draws what the props say into `place`, and tells the others where the mouse is. */
function useDrawn(props: ChartProps, logarithmic: boolean) {
  const { points, validation = NO_POINTS, view, fromZero = false, ceiling, isShare = false, better, marks = NO_MARKS } = props;
  const { roundsPerEpoch, shown, cursor, smoothing } = view;
  const place = useRef<HTMLDivElement>(null);
  const drawn = useRef<DrawnChart>(undefined);
  const by = useId();
  const data = useMemo<ChartData>(() => columns(points, validation, smoothing), [points, validation, smoothing]);
  const latest = useRef({ points, places: data[0], view });
  latest.current = { points, places: data[0], view };

  useEffect(() => {
    const chart = drawChart(place.current!, {
      roundsPerEpoch,
      fromZero,
      ceiling,
      isShare,
      better,
      logarithmic,
      onZoom: (span) => latest.current.view.onZoom(span),
      onCursor: (index) => {
        const place = index === undefined ? undefined : latest.current.places[index];
        latest.current.view.onCursor(place === undefined ? undefined : { round: place - 1, by });
      },
    });
    drawn.current = chart;
    return () => chart.remove();
  }, [by, roundsPerEpoch, fromZero, ceiling, isShare, better, logarithmic]);

  const [from, to] = shown;
  useEffect(
    () => drawn.current?.show(data, [from, to], marks),
    [data, from, to, marks, roundsPerEpoch, fromZero, ceiling, isShare, better, logarithmic],
  );

  useEffect(() => {
    // The mouse moves the cursor of its own chart.
    if (cursor?.by !== by) drawn.current?.moveCursor(cursor && placeAt(latest.current, cursor.round));
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

interface ReadingProps {
  readonly point: Point;
  readonly validation: Point | undefined;
  readonly format: (value: number | undefined) => string;
}

/** With a second line both are named, each beside its stroke. */
function Reading({ point, validation, format }: ReadingProps): ReactNode {
  return (
    <span className="reading">
      {validation && (
        <>
          <span className="stroke" aria-hidden="true" /> <span className="faint">train</span>{' '}
        </>
      )}
      <strong>{format(point.value)}</strong>{' '}
      {validation && (
        <>
          <span className="stroke validation" aria-hidden="true" />{' '}
          <span className="validation">
            val <strong>{format(validation.value)}</strong>
          </span>{' '}
        </>
      )}
      <span className="faint">{roundsOf(point)}</span>
    </span>
  );
}

/** The same for those who hear it. */
const readingText = (point: Point, validation: Point | undefined, format: ReadingProps['format']): string =>
  [format(point.value), ...(validation ? [`validation ${format(validation.value)}`] : []), roundsOf(point)].join(', ');

const roundsOf = (point: Point): string =>
  point.rounds > 1 ? `rounds ${count(firstRoundOf(point))}–${count(placeOf(point))}` : `round ${count(placeOf(point))}`;

/** Where the cursor of another chart stands in this one. */
function placeAt(
  { points, places }: { readonly points: readonly Point[]; readonly places: readonly number[] },
  round: number,
): number | undefined {
  const at = indexAt(points, round);
  return at === undefined ? undefined : places.indexOf(placeOf(points[at]!));
}

const NO_POINTS: readonly Point[] = [];
const NO_MARKS: readonly ChartMark[] = [];

function columns(points: readonly Point[], validation: readonly Point[], smoothing: number): ChartData {
  const places = [...new Set([...points, ...validation].map(placeOf))].sort((a, b) => a - b);
  const isSmooth = smoothing > 0;
  const lines = isSmooth ? smoothed(points, smoothing) : points.map(({ value }) => value);
  const column = (of: readonly Point[], value: (point: Point, index: number) => number | null): (number | null)[] => {
    const byPlace = new Map(of.map((point, i) => [placeOf(point), value(point, i)]));
    return places.map((place) => byPlace.get(place) ?? null);
  };
  return [
    places,
    column(points, (_, i) => lines[i]!),
    column(points, ({ value }) => (isSmooth ? value : null)),
    column(points, ({ max }) => max),
    column(points, ({ min }) => min),
    column(validation, ({ value }) => value),
  ];
}

function description({ title, points, validation = NO_POINTS, format, better }: ChartProps, marks: readonly ChartMark[]): string {
  const [first, last] = [points[0], points.at(-1)];
  if (!first || !last) return `${title}: nothing measured yet`;
  const span = (of: Point, to: Point): string =>
    `from ${format(of.value)} at round ${count(placeOf(of))} to ${format(to.value)} at round ${count(placeOf(to))}`;
  const validated = validation.length > 0 ? [`; validation ${span(validation[0]!, validation.at(-1)!)}`] : [];
  const marked = marks.map(({ place, text }) => ` Round ${count(place)}: ${text}.`);
  const which = better ? ` ${better === 'lower' ? 'Lower' : 'Higher'} is better.` : '';
  return `${title}: ${span(first, last)}${validated.join('')}. Arrow keys read single points.${which}${marked.join('')}`;
}
