/**
 * The points of one chart: what the server downsampled (buckets of several rounds), then single rows as they arrive.
 * A point stands for `rounds` rounds, the last of them being `round`. A series never grows past twice `maxPoints`: then neighbours are
 * merged in pairs (mean weighted by rounds, lowest and highest kept), so a run of days costs as much as one of seconds.
 */
export interface Point {
  readonly round: number;
  readonly rounds: number;
  readonly value: number;
  readonly min: number;
  readonly max: number;
}

/** A metric row as the subscription brings it. */
export interface Row {
  readonly round: number;
  readonly rounds: number;
  /** Loss and metrics in training, by name. */
  readonly values: unknown;
  /** What was measured on the evaluation split in these rounds, if anything was. */
  readonly validation?: unknown;
  readonly examplesPerSecond: number;
}

/** In front of the name of what was measured on the evaluation split. */
export const OF_VALIDATION = 'val_';
export const SPEED = 'examplesPerSecond';

/** By name, as the api calls them: `loss`, `val_loss`, `price_meanAbsoluteError`. */
export type MetricsByName = ReadonlyMap<string, readonly Point[]>;
export const NO_METRICS: MetricsByName = new Map();
const NO_POINTS: readonly Point[] = [];

export const seriesOf = (metrics: MetricsByName, name: string): readonly Point[] => metrics.get(name) ?? NO_POINTS;

export function fromHistory(series: readonly { readonly name: string; readonly points: readonly Point[] }[]): MetricsByName {
  return new Map(
    series.map(({ name, points }) => [name, points.filter(({ value }) => Number.isFinite(value)).sort((a, b) => a.round - b.round)]),
  );
}

/** The last round that is known; where a subscription goes on. -1 when there is none. */
export const lastRound = (metrics: MetricsByName): number =>
  Math.max(-1, ...[...metrics.values()].map((points) => points.at(-1)?.round ?? -1));

/** Rows of rounds that are known already are dropped: a reconnect may bring them again. */
export function withRows(metrics: MetricsByName, rows: readonly Row[], maxPoints: number): MetricsByName {
  const named = rows.map((row) => ({ row, values: valuesOf(row) }));
  const names = new Set([...metrics.keys(), ...named.flatMap(({ values }) => [...values.keys()])]);
  const extended = (name: string): readonly Point[] => {
    const points = seriesOf(metrics, name);
    let last = points.at(-1)?.round ?? -1;
    const fresh: Point[] = [];
    for (const { row, values } of named) {
      const value = values.get(name);
      if (row.round <= last || value === undefined) continue;
      last = row.round;
      fresh.push({ round: row.round, rounds: Math.max(1, row.rounds), value, min: value, max: value });
    }
    return fresh.length === 0 ? points : thinned([...points, ...fresh], maxPoints);
  };
  return new Map([...names].map((name) => [name, extended(name)]));
}

/** Numbers by name as the api sends them; what is unknown is left out. */
export function numbersOf(values: unknown): ReadonlyMap<string, number> {
  const entries = Object.entries((values ?? {}) as Readonly<Record<string, unknown>>);
  return new Map(entries.filter((entry): entry is [string, number] => Number.isFinite(entry[1])));
}

/** What a validation has measured, by name; nothing where it is none. */
export const validationValues = (validation: unknown): ReadonlyMap<string, number> =>
  numbersOf(((validation ?? {}) as { readonly values?: unknown }).values);

function valuesOf({ values, validation, examplesPerSecond }: Row): ReadonlyMap<string, number> {
  const validated = [...validationValues(validation)].map(([name, value]): [string, number] => [`${OF_VALIDATION}${name}`, value]);
  const speed: [string, number][] = Number.isFinite(examplesPerSecond) ? [[SPEED, examplesPerSecond]] : [];
  return new Map([...numbersOf(values), ...validated, ...speed]);
}

export function thinned(points: readonly Point[], maxPoints: number): readonly Point[] {
  let kept = points;
  while (kept.length > 2 * maxPoints) {
    const half: Point[] = [];
    for (let i = 0; i < kept.length; i += 2) half.push(i + 1 < kept.length ? merged(kept[i]!, kept[i + 1]!) : kept[i]!);
    kept = half;
  }
  return kept;
}

function merged(a: Point, b: Point): Point {
  const rounds = a.rounds + b.rounds;
  return {
    round: b.round,
    rounds,
    value: (a.value * a.rounds + b.value * b.rounds) / rounds,
    min: Math.min(a.min, b.min),
    max: Math.max(a.max, b.max),
  };
}

/** The point that stands for the round, or the nearest there is; undefined without points. */
export function indexAt(points: readonly Point[], round: number): number | undefined {
  if (points.length === 0) return undefined;
  const found = points.findIndex((point) => point.round >= round);
  return found < 0 ? points.length - 1 : found;
}

/** Finer points in place of the coarse ones between two of them: what lies before and behind stays. */
export function withDetail(coarse: MetricsByName, detail: MetricsByName): MetricsByName {
  const joined = (name: string): readonly Point[] => {
    const [points, finer] = [seriesOf(coarse, name), seriesOf(detail, name)];
    const [first, last] = [finer[0], finer.at(-1)];
    if (!first || !last) return points;
    const before = points.filter(({ round }) => round <= first.round - first.rounds);
    return [...before, ...finer, ...points.filter(({ round }) => round > last.round)];
  };
  return new Map([...coarse.keys()].map((name) => [name, joined(name)]));
}

/**
 * The mean of each point and those before it, each counting `weight` times what the next one counts; without the pull towards zero
 * that such a mean has at its start.
 * @param weight 0 (each point alone) to below 1
 */
export function smoothed(points: readonly Point[], weight: number): number[] {
  let sum = 0;
  let total = 0;
  return points.map(({ value }) => {
    sum = sum * weight + value * (1 - weight);
    total = total * weight + (1 - weight);
    return sum / total;
  });
}

/** The newest validation up to a point. */
export const validatedAt = (validation: readonly Point[], { round }: Point): Point | undefined =>
  validation.findLast((each) => each.round <= round);

/** The points as a file that spreadsheets read; rounds are counted from one. Beside each what was measured on the evaluation split in its rounds. */
export function csvOf(points: readonly Point[], validation: readonly Point[] = NO_POINTS): string {
  const isValidated = validation.length > 0;
  const lines = points.map((point) => {
    const { round, rounds, value, min, max } = point;
    const validated = isValidated ? [validatedWithin(validation, point)?.value ?? ''] : [];
    return [round - rounds + 2, round + 1, value, min, max, ...validated].join(',');
  });
  return `${[`first_round,last_round,mean,lowest,highest${isValidated ? ',validation' : ''}`, ...lines].join('\n')}\n`;
}

/** The validation in the rounds of a point, the newest of several. */
export const validatedWithin = (validation: readonly Point[], { round, rounds }: Point): Point | undefined =>
  validation.findLast((each) => each.round <= round && each.round > round - rounds);
