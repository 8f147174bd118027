/** Series of a run by name, in as many requests as the api's bound on names asks for. */
import { ApiFault } from '../graphql/api-fault.js';
import { Metrics } from '../graphql/generated/operations.js';
import type { Api } from '../session/api-context.js';
import { fromHistory, OF_VALIDATION, SPEED, type MetricsByName } from './series.js';

/** Points of a series; a chart is seldom wider. */
export const MAX_POINTS = 300;
/** Names of one request: the api takes 50. */
const NAMES_AT_ONCE = 48;

/** What a page draws. @param measures names of metrics, without the loss @param validates whether they are measured on the evaluation split while training too */
export function seriesNames(measures: readonly string[], validates: boolean): readonly string[] {
  const measured = ['loss', ...measures];
  return [...measured, ...(validates ? measured.map((name) => `${OF_VALIDATION}${name}`) : []), SPEED];
}

interface Asked {
  readonly id: string;
  readonly names: readonly string[];
  readonly fromRound?: number;
  readonly toRound?: number;
}

/** @throws ApiFault */
export async function askMetrics(ask: Api['ask'], { id, names, ...span }: Asked, signal: AbortSignal): Promise<MetricsByName> {
  const parts = Array.from({ length: Math.ceil(names.length / NAMES_AT_ONCE) }, (_, i) =>
    names.slice(i * NAMES_AT_ONCE, (i + 1) * NAMES_AT_ONCE),
  );
  const answers = await Promise.all(
    parts.map((part) => ask(Metrics, Object.assign({ id, names: part, maxPoints: MAX_POINTS }, span), signal)),
  );
  return fromHistory(
    answers.flatMap(({ run }) => {
      if (!run) throw new ApiFault('REFUSED', 'There is no such run.');
      return run.metrics;
    }),
  );
}
