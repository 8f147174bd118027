/**
 * What a run measures: which metric at which output of its model, and where the sums of each lie in the vector that replicas and blocks of the evaluation deliver.
 * The engine that adds the sums and the coordinator that finishes them make the same plan of the same spec, rows and outputs.
 */
import {
  CLASSIFYING,
  fieldsOfEnds,
  defaultLoss,
  lossOfOutput,
  measuredOf,
  type MeasuredName,
  type ModelEnd,
  type RowFormat,
  type RunSpec,
} from '@paceline/spec';
import {
  ALL_SUMS_MAX,
  METRICS,
  METRIC_NAME_BYTES,
  METRIC_SUMS_MAX,
  metricTarget,
  type MetricOptions,
  type MetricTarget,
} from './metric-table.js';

export type MeasuredPart = Partial<Pick<RunSpec, 'loss' | 'losses' | 'metrics' | 'metricOptions'>>;

export interface PlannedMetric {
  readonly metric: MeasuredName;
  /** Name as the run reports it: that of the metric, with the output in front if several outputs are measured. */
  readonly name: string;
  readonly options: MetricOptions;
  /** Index of the output in the model. */
  readonly output: number;
  readonly target: MetricTarget;
  /** Index of its first sum in the vector; the loss is at 0. */
  readonly at: number;
  readonly length: number;
}

/** The loss of one output of several, before its factor in `lossWeights`: a sum over the examples. */
export interface PlannedLoss {
  readonly name: string;
  readonly output: number;
  /** Index of its sum in the vector. */
  readonly at: number;
}

export interface MetricPlan {
  readonly planned: readonly PlannedMetric[];
  /** None of a model with a single output, whose loss is that of the run. */
  readonly losses: readonly PlannedLoss[];
  /** The name that each sum belongs to: `loss`, then the metrics, then the losses of outputs. */
  readonly sumNames: readonly string[];
  /** Names whose number is a mean over rows. */
  readonly means: ReadonlySet<string>;
  /**
   * By name, `loss` first. A metric at several outputs is told for each, and as their mean; null where it is unknown.
   * @param sums the loss, then those of the metrics, then the losses of outputs
   * @param examples that they were measured on
   */
  finish(sums: ArrayLike<number>, examples: number): Record<string, number | null>;
}

/** A metric that says nothing of the outputs of the model, or would keep too much of them. */
export class MetricUnfitError extends Error {
  override readonly name = 'MetricUnfitError';
}

/**
 * @param outputs of the model, in its order
 * @throws MetricUnfitError
 */
export function createMetricPlan(spec: MeasuredPart, format: RowFormat, outputs: readonly ModelEnd[]): MetricPlan {
  const ends = measuredEnds(spec, format, outputs);
  const { topK, threshold, average, aucThresholds, aucCurve, weighted } = spec.metricOptions ?? {};
  const options = { k: topK, threshold, average, thresholds: aucThresholds, curve: aucCurve, weighted };
  const planned: PlannedMetric[] = [];
  let at = 1;
  for (const metric of measuredOf(spec, format)) {
    const measured = outputsOf(metric, ends);
    for (const output of measured) {
      const { name, target } = ends[output]!;
      const length = METRICS[metric].sums(target, options);
      if (length > METRIC_SUMS_MAX)
        throw new MetricUnfitError(
          `${metric} would keep ${length} sums of the output ${name}; at most ${METRIC_SUMS_MAX} are kept: leave it out, or measure accuracy`,
        );
      const own = measured.length > 1 ? `${name}_${metric}` : metric;
      if (!isShort(own))
        throw new MetricUnfitError(`${own} is longer than ${METRIC_NAME_BYTES} bytes: give that output of the model a shorter name`);
      planned.push({ metric, name: own, options, output, target, at, length });
      at += length;
    }
  }
  if (at > ALL_SUMS_MAX) {
    const largest = planned.reduce((a, b) => (b.length > a.length ? b : a));
    throw new MetricUnfitError(
      `the metrics would keep ${at - 1} sums together; at most ${ALL_SUMS_MAX - 1} are kept, and ${largest.name} keeps ${largest.length}: leave out the largest`,
    );
  }
  const losses = lossesOf(ends, at);
  const lossNames = losses.map(({ name }) => name);
  return {
    planned,
    losses,
    means: new Set(['loss', ...planned.flatMap(({ metric, name }) => (METRICS[metric].isMean ? [metric, name] : [])), ...lossNames]),
    sumNames: ['loss', ...planned.flatMap(({ name, length }) => Array.from({ length }, () => name)), ...lossNames],
    finish: (sums, examples) => finished(planned, losses, sums, examples),
  };
}

const isShort = (name: string): boolean => new TextEncoder().encode(name).length <= METRIC_NAME_BYTES;

/** Where a message has no room for them any more, and of an output whose name is too long, they are left out: nobody has asked for them. */
function lossesOf(ends: readonly MeasuredEnd[], at: number): PlannedLoss[] {
  const losses = ends.map(({ name }, output) => ({ name: `${name}_loss`, output })).filter(({ name }) => isShort(name));
  if (ends.length === 1 || at + losses.length > ALL_SUMS_MAX) return [];
  return losses.map((loss, i) => Object.assign(loss, { at: at + i }));
}

/**
 * The metrics of a new run that names none, where it has outputs of classes and of values; undefined where those that follow from its targets measure every
 * output. They are written into its spec: a run that was stored without goes on with what it has measured.
 */
export function metricsOfBoth(spec: MeasuredPart, format: RowFormat, outputs: readonly ModelEnd[]): MeasuredName[] | undefined {
  if (spec.metrics) return undefined;
  const kinds = new Set(measuredEnds(spec, format, outputs).map(({ isClassified }) => isClassified));
  return kinds.size === 2 ? ['accuracy', 'meanAbsoluteError'] : undefined;
}

interface MeasuredEnd {
  readonly name: string;
  readonly target: MetricTarget;
  readonly isClassified: boolean;
}

function measuredEnds(spec: MeasuredPart, format: RowFormat, outputs: readonly ModelEnd[]): MeasuredEnd[] {
  const fields = fieldsOfEnds(outputs, format.targets);
  return outputs.map(({ name, shape }, i) => {
    const target = format.targets[fields[i]!]!;
    const loss = lossOfOutput(spec, name) ?? defaultLoss(target, shape.at(-1) ?? 1);
    const isClassified = target.kind === 'classes' || CLASSIFYING.includes(typeof loss === 'string' ? loss : loss.name);
    return { name, target: metricTarget(target), isClassified };
  });
}

function outputsOf(metric: MeasuredName, ends: readonly MeasuredEnd[]): number[] {
  const { about } = METRICS[metric];
  const all = [...ends.keys()];
  const fitting = all.filter((i) =>
    about === 'labels' ? ends[i]!.target.classes > 0 : about === 'classes' ? ends[i]!.isClassified : !ends[i]!.isClassified,
  );
  if (fitting.length > 0) return fitting;
  // Errors are told of the one-hot form of classes where there is nothing else.
  if (about === 'values' && metric !== 'r2Score' && metric !== 'meanAbsolutePercentageError') return all;
  throw new MetricUnfitError(
    about === 'values'
      ? `${metric} needs a target of values: use accuracy for classes`
      : `${metric} needs a target of classes${about === 'classes' ? ', or a loss of classes' : ''}: use meanAbsoluteError or meanSquaredError`,
  );
}

function finished(
  planned: readonly PlannedMetric[],
  losses: readonly PlannedLoss[],
  sums: ArrayLike<number>,
  examples: number,
): Record<string, number | null> {
  const meanAt = (at: number): number | null => (examples > 0 && Number.isFinite(sums[at]) ? sums[at]! / examples : null);
  const values: Record<string, number | null> = { loss: meanAt(0) };
  for (const { name, at } of losses) values[name] = meanAt(at);
  const byMetric = new Map<MeasuredName, (number | null)[]>();
  for (const { metric, name, options, at, length } of planned) {
    const own = Array.from({ length }, (_, i) => sums[at + i] ?? Number.NaN);
    const value = own.every(Number.isFinite) ? METRICS[metric].finish(own, options) : null;
    values[name] = value;
    byMetric.set(metric, [...(byMetric.get(metric) ?? []), value]);
  }
  for (const [metric, of] of byMetric)
    if (of.length > 1) values[metric] = of.includes(null) ? null : of.reduce<number>((sum, value) => sum + value!, 0) / of.length;
  return values;
}
