/**
 * What a run is measured by beside its loss: which of the names that it tells are which metric, of which output, and how their figures are written. What is
 * known of a metric stands in libs/spec (metric-forms.ts).
 */
import { measureParts, METRIC_FORMS, type MeasureParts } from '@paceline/spec/metric-forms';
import { accuracy, loss, value } from '../text/format.js';
import { numbersOf } from './series.js';

export interface Measure extends MeasureParts {
  /** As the api calls it. */
  readonly name: string;
  readonly label: string;
  readonly format: (value: number | null | undefined) => string;
  readonly better: 'higher' | 'lower';
  readonly unit: 'share' | 'error' | 'squared-error' | 'number';
  /** The most that it can be. */
  readonly ceiling: number | undefined;
}

/** An error has the unit of the target: a large one is a figure of that unit. */
const error = (given: number | null | undefined): string =>
  typeof given === 'number' && Math.abs(given) >= 1000 && Math.abs(given) < 1e9 ? value(Math.round(given)) : loss(given);

const ORDER = Object.keys(METRIC_FORMS);

/** Undefined for a name of no metric. */
export function measureOf(name: string): Measure | undefined {
  const parts = measureParts(name);
  if (!parts) return undefined;
  const { label, better, unit, most } = METRIC_FORMS[parts.metric];
  const format = unit === 'share' ? accuracy : unit === 'number' ? (most === 1 ? value : loss) : error;
  return Object.assign({ name, label, format, better, unit, ceiling: most }, parts);
}

/** Losses of values. */
const OF_VALUES: ReadonlySet<unknown> = new Set([
  'meanSquaredError',
  'meanAbsoluteError',
  'meanAbsolutePercentageError',
  'meanSquaredLogarithmicError',
  'huber',
  'logCosh',
  'poisson',
  'cosineSimilarity',
]);

interface Measured {
  readonly spec: unknown;
  readonly progress: { readonly values?: unknown };
  readonly result: { readonly values?: unknown } | null;
}

/**
 * All but the loss of the run: those of the whole model before those of its outputs. What the run has told counts; before it has told anything, what its spec names, and
 * else what its loss calls for.
 */
export function measuresOf({ spec, progress, result }: Measured): readonly Measure[] {
  const told = new Set([...Object.keys(progress.values ?? {}), ...Object.keys(result?.values ?? {})]);
  const names = told.size > 0 ? [...told] : expectedOf(spec);
  return names
    .flatMap((name) => measureOf(name) ?? [])
    .filter(({ metric, output }) => metric !== 'loss' || output !== undefined)
    .sort((a, b) => ORDER.indexOf(a.metric) - ORDER.indexOf(b.metric) || (a.output ?? '').localeCompare(b.output ?? ''));
}

function expectedOf(spec: unknown): readonly string[] {
  const { metrics, loss: lossName } = (spec ?? {}) as { readonly metrics?: unknown; readonly loss?: unknown };
  if (Array.isArray(metrics)) return metrics.filter((name) => typeof name === 'string');
  return [OF_VALUES.has(lossName) ? 'meanAbsoluteError' : 'accuracy'];
}

/** What is measured of the whole model. */
export const mainMeasures = (measures: readonly Measure[]): readonly Measure[] =>
  withoutDiagonal(measures.filter(({ output }) => output === undefined));

/** The number of a confusion matrix is the share on its diagonal, which is the accuracy: it is not shown beside it. The matrix is part of the predictions. */
export function withoutDiagonal(measures: readonly Measure[]): readonly Measure[] {
  const hasAccuracy = measures.some(({ metric }) => metric === 'accuracy');
  return hasAccuracy ? measures.filter(({ metric }) => metric !== 'confusionMatrix') : measures;
}

/** Names of the outputs that are told one by one. */
export const outputsOf = (measures: readonly Measure[]): readonly string[] => [...new Set(measures.flatMap(({ output }) => output ?? []))];

/**
 * One measure for each metric: that of an output where it has one, else that of the whole model. The loss of the run is none of them.
 * @param output undefined: the mean of all outputs
 */
export function measuresAt(measures: readonly Measure[], output: string | undefined): readonly Measure[] {
  const metrics = [...new Set(measures.map(({ metric }) => metric))];
  return metrics.flatMap((metric) => {
    const of = measures.filter((measure) => measure.metric === metric);
    if (metric === 'loss') return of.filter((measure) => measure.output === output);
    return of.find((measure) => measure.output === output) ?? of.find((measure) => measure.output === undefined) ?? of[0] ?? [];
  });
}

export type FiguresOf = 'evaluation' | 'validation' | 'training';

export interface TargetScale {
  readonly output: string;
  readonly target: string;
  /** What 1 of the scaled number is in the unit of the data. */
  readonly factors: readonly number[];
}

/**
 * An error of a target in the unit of the data. Undefined where it is none, or where the numbers of the output have different scales.
 */
export function inDataUnit(
  { unit, output }: Measure,
  given: number | null | undefined,
  scales: readonly TargetScale[],
): string | undefined {
  const [scale, more] = output === undefined ? scales : scales.filter((each) => each.output === output);
  const [factor, ...others] = new Set(scale?.factors);
  if (typeof given !== 'number' || unit === 'share' || unit === 'number' || !scale || more || factor === undefined || others.length > 0)
    return undefined;
  return value(given * (unit === 'error' ? factor : factor ** 2));
}

/** Whether an error is in the unit of a scaled target, which is not that of the data. */
export const isScaled = ({ unit }: Measure, scales: readonly TargetScale[]): boolean =>
  unit.endsWith('error') && scales.some(({ factors }) => factors.some((factor) => factor !== 1));

export const hasErrors = (measures: readonly Measure[]): boolean => measures.some(({ unit }) => unit.endsWith('error'));

export const figureOf = (values: unknown, name: string): number | null => numbersOf(values).get(name) ?? null;
