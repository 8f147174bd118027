/**
 * What a chart's axes show. The x axis counts committed rounds: the point of round k stands at k, with 0 before the first; a point of the
 * API names its last round from 0 (`Point.round`), so it stands at `round + 1`.
 */
import { compact } from '../text/format.js';
import type { MetricsByName, Point } from './series.js';

/** From and to, in committed rounds. */
export type Span = readonly [from: number, to: number];

/** Where the point stands on the x axis. */
export const placeOf = ({ round }: Pick<Point, 'round'>): number => round + 1;
/** The first round that the point stands for, counted from one. */
export const firstRoundOf = ({ round, rounds }: Pick<Point, 'round' | 'rounds'>): number => round - rounds + 2;

/** The part of the run that was trained, the same for all charts; before anything was measured, all of the run. */
export function trainedSpan(metrics: MetricsByName, totalRounds: number): Span {
  const series = [...metrics.values()].filter((points) => points.length > 0);
  if (series.length === 0) return [0, Math.max(1, totalRounds)];
  const from = Math.min(...series.map((points) => firstRoundOf(points[0]!) - 1));
  const to = Math.max(...series.map((points) => placeOf(points.at(-1)!)));
  return [from, Math.max(from + 1, to)];
}

/** Fewer rounds than this cannot be zoomed into. */
const LEAST_ROUNDS = 4;

/** The span of a drag, or undefined when it is too short or all that there is. */
export function zoomTo([a, b]: Span, full: Span): Span | undefined {
  const from = Math.max(full[0], Math.floor(Math.min(a, b)));
  const to = Math.min(full[1], Math.ceil(Math.max(a, b)));
  if (to - from < LEAST_ROUNDS || (from === full[0] && to === full[1])) return undefined;
  return [from, to];
}

/** Nearer to (below 1) or farther from a place by a factor, which stays where it is. */
export function zoomBy(factor: number, place: number, shown: Span, full: Span): Span | undefined {
  const reach = (end: number): number => place + (end - place) * factor;
  const next: Span = [reach(shown[0]), reach(shown[1])];
  return factor < 1 && next[1] - next[0] < LEAST_ROUNDS ? shown : zoomTo(next, full);
}

/** Means that are this many times apart are a flat line and a wall on a linear scale. */
const TOO_WIDE = 10_000;

export const canBeLogarithmic = (points: readonly Point[]): boolean => points.length > 0 && points.every(({ min }) => min > 0);

/** Whether a logarithmic scale is the better one to begin with: a loss that diverged, or fell by orders of magnitude. */
export function isBetterLogarithmic(points: readonly Point[]): boolean {
  if (!canBeLogarithmic(points)) return false;
  const means = points.map(({ value }) => value);
  return Math.max(...means) / Math.min(...means) >= TOO_WIDE;
}

/** A label of at most seven characters: 0.25, 40K, 3.4e21, 1e-5 */
export function tickLabel(value: number, asPercent: boolean): string {
  if (asPercent) return `${Number((value * 100).toFixed(2))}\u202f%`;
  const size = Math.abs(value);
  if (size === 0) return '0';
  if (size < 1e-3 || size >= 1e15) return exponential(value);
  return size >= 1000 ? compact(value) : String(Number(value.toFixed(size < 0.01 ? 4 : 3)));
}

const exponential = (value: number): string => value.toExponential(1).replace('.0e', 'e').replace('e+', 'e');

const MOST_DECADES = 6;

/** Lines of a logarithmic scale at powers of ten only; with many powers every second, third, … */
export function decadesOnly(splits: readonly (number | null)[]): (number | null)[] {
  const powers = splits.map((value) => (value === null || value <= 0 ? Number.NaN : Math.log10(value)));
  const whole = powers.filter(isWhole);
  const step = Math.max(1, Math.ceil(whole.length / MOST_DECADES));
  return splits.map((value, i) => (isWhole(powers[i]!) && Math.round(powers[i]!) % step === 0 ? value : null));
}

const isWhole = (power: number): boolean => Math.abs(power - Math.round(power)) < 1e-6;

export interface ValueScale {
  readonly fromZero: boolean;
  readonly ceiling: number | undefined;
  /** Shares are labelled in percent. */
  readonly isShare?: boolean;
  /** Needs values above zero. */
  readonly logarithmic: boolean;
}

/** Some air above and below, but not past what the metric can be. */
export function valueRange(low: number | null, high: number | null, { fromZero, ceiling, logarithmic }: ValueScale): [number, number] {
  if (low === null || high === null || !Number.isFinite(low) || !Number.isFinite(high)) return logarithmic ? [0.1, 1] : [0, 1];
  if (logarithmic) return [low / 1.2, high * 1.2];
  const air = (high - low || Math.abs(high) || 1) * 0.08;
  const bottom = fromZero || (low >= 0 && low < air * 3) ? 0 : low - air;
  return [bottom, ceiling === undefined ? high + air : Math.min(ceiling, high + air)];
}
