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
  readonly loss: number | null;
  readonly accuracy: number | null;
  readonly examplesPerSecond: number;
}

export const METRIC_NAMES = ['loss', 'accuracy', 'examplesPerSecond'] as const;
export type MetricName = (typeof METRIC_NAMES)[number];
export type MetricsByName = Readonly<Record<MetricName, readonly Point[]>>;

export const NO_METRICS: MetricsByName = { loss: [], accuracy: [], examplesPerSecond: [] };

export function fromHistory(series: readonly { readonly name: string; readonly points: readonly Point[] }[]): MetricsByName {
  const pointsOf = (name: MetricName): readonly Point[] =>
    (series.find((found) => found.name === name)?.points ?? [])
      .filter((point) => Number.isFinite(point.value))
      .sort((a, b) => a.round - b.round);
  return { loss: pointsOf('loss'), accuracy: pointsOf('accuracy'), examplesPerSecond: pointsOf('examplesPerSecond') };
}

/** The last round that is known; where a subscription goes on. -1 when there is none. */
export function lastRound(metrics: MetricsByName): number {
  return Math.max(-1, ...METRIC_NAMES.map((name) => metrics[name].at(-1)?.round ?? -1));
}

/** Rows of rounds that are known already are dropped: a reconnect may bring them again. */
export function withRows(metrics: MetricsByName, rows: readonly Row[], maxPoints: number): MetricsByName {
  const extended = (name: MetricName): readonly Point[] => {
    const points = metrics[name];
    let last = points.at(-1)?.round ?? -1;
    const fresh: Point[] = [];
    for (const row of rows) {
      const value = row[name];
      if (row.round <= last || value === null || !Number.isFinite(value)) continue;
      last = row.round;
      fresh.push({ round: row.round, rounds: Math.max(1, row.rounds), value, min: value, max: value });
    }
    return fresh.length === 0 ? points : thinned([...points, ...fresh], maxPoints);
  };
  return { loss: extended('loss'), accuracy: extended('accuracy'), examplesPerSecond: extended('examplesPerSecond') };
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
  const joined = (name: MetricName): readonly Point[] => {
    const [first, last] = [detail[name][0], detail[name].at(-1)];
    if (!first || !last) return coarse[name];
    const before = coarse[name].filter(({ round }) => round <= first.round - first.rounds);
    return [...before, ...detail[name], ...coarse[name].filter(({ round }) => round > last.round)];
  };
  return { loss: joined('loss'), accuracy: joined('accuracy'), examplesPerSecond: joined('examplesPerSecond') };
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

/** The points as a file that spreadsheets read; rounds are counted from one. */
export function csvOf(points: readonly Point[]): string {
  const lines = points.map(({ round, rounds, value, min, max }) => [round - rounds + 2, round + 1, value, min, max].join(','));
  return `${['first_round,last_round,mean,lowest,highest', ...lines].join('\n')}\n`;
}
