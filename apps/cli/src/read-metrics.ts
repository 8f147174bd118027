/** The numbers of a run, read in pages that the api takes, and put together round by round. */
import type { MetricsQuery, MetricSeries, PacelineClient, RunSummary } from '@paceline/client';

export type Points = MetricSeries['points'];

/** This many series of 2000 points stay below the cost limit of one query. */
const NAMES_AT_ONCE = 15;

/** As many requests as the names need, one after the other. */
export async function readSeries(client: Pick<PacelineClient, 'metrics'>, id: string, query: MetricsQuery): Promise<Map<string, Points>> {
  const found = new Map<string, Points>();
  for (let at = 0; at < query.names.length; at += NAMES_AT_ONCE) {
    const names = query.names.slice(at, at + NAMES_AT_ONCE);
    for (const { name, points } of await client.metrics(id, Object.assign({}, query, { names }))) found.set(name, points);
  }
  return found;
}

export interface MetricRow {
  /** The last round of the row, counted from one. */
  readonly round: number;
  /** How many it stands for. */
  readonly rounds: number;
  /** By name, those of the evaluation split with `val_`; what was not measured in these rounds is left out. */
  readonly values: Readonly<Record<string, number>>;
}

const SPEED = 'examplesPerSecond';
/** What the api gives at once of a series. */
const PAGE_ROUNDS = 2_000;

/** Each measure with its validation beside it, where the run validates while it trains. */
export function metricColumns(
  { progress, result }: Pick<RunSummary, 'progress' | 'result'>,
  order: (names: readonly string[]) => readonly string[],
): string[] {
  const measured = new Set(['loss', ...Object.keys(progress.values), ...Object.keys(result?.values ?? {})]);
  const names = order([...measured]).flatMap((name) => (progress.validation ? [name, `val_${name}`] : [name]));
  return [...names, SPEED];
}

/** Every committed round in pages, or all of them thinned to so many points. */
export async function* readRows(
  client: Pick<PacelineClient, 'metrics'>,
  id: string,
  { names, rounds, points }: { readonly names: readonly string[]; readonly rounds: number; readonly points?: number | undefined },
): AsyncGenerator<readonly MetricRow[], void, undefined> {
  if (points !== undefined) {
    yield rowsOf(await readSeries(client, id, { names, maxPoints: points }));
    return;
  }
  for (let from = 0; from < rounds; from += PAGE_ROUNDS)
    yield rowsOf(await readSeries(client, id, { names, fromRound: from, toRound: from + PAGE_ROUNDS - 1, maxPoints: PAGE_ROUNDS }));
}

/** A row where anything was measured in training; the others are told in the row whose rounds they belong to, the newest of several. */
export function rowsOf(series: ReadonlyMap<string, Points>): MetricRow[] {
  const rows = (series.get(SPEED) ?? []).map(({ round, rounds }) => ({ round, rounds, values: {} as Record<string, number> }));
  for (const [name, points] of series) {
    let at = 0;
    for (const { round, value } of points) {
      while (at < rows.length && rows[at]!.round < round) at++;
      const row = rows[at];
      if (row && round > row.round - row.rounds) row.values[name] = value;
    }
  }
  return rows.map(({ round, rounds, values }) => ({ round: round + 1, rounds, values }));
}
