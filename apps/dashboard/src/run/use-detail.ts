/** The points of the zoomed part of a run, as fine as the server has them for so many points. */
import { useEffect, useMemo, useState } from 'react';
import { asFault } from '../graphql/api-fault.js';
import { Metrics } from '../graphql/operations.js';
import { useApi } from '../session/api-context.js';
import type { Span } from './chart-scale.js';
import { METRIC_NAMES, fromHistory, withDetail, type MetricsByName } from './series.js';
import { MAX_POINTS } from './use-metrics.js';

interface Detail {
  readonly of: string;
  readonly metrics: MetricsByName;
}

/** @param attempt what was measured belongs to it: a new one may have gone back to an earlier round */
export function useDetail(runId: string, attempt: number, coarse: MetricsByName, zoom: Span | undefined): MetricsByName {
  const { ask, onFault } = useApi();
  const [detail, setDetail] = useState<Detail>();
  const of = zoom ? `${runId} ${attempt} ${zoom.join(' ')}` : '';
  const [from, to] = zoom ?? [];

  useEffect(() => {
    if (from === undefined || to === undefined) return;
    const controller = new AbortController();
    // Rounds are counted from 0 there: the one that stands at `from` begins what is asked for.
    const span = { fromRound: from, toRound: to - 1 };
    ask(Metrics, { id: runId, names: METRIC_NAMES, maxPoints: MAX_POINTS, ...span }, controller.signal)
      .then(({ run }) => void (run && setDetail({ of, metrics: fromHistory(run.metrics) })))
      // The coarse points stay, and the header tells of an api that is away.
      .catch((error: unknown) => void (controller.signal.aborted || onFault(asFault(error))));
    return () => controller.abort();
  }, [ask, onFault, runId, from, to, of]);

  return useMemo(() => (zoom && detail?.of === of ? withDetail(coarse, detail.metrics) : coarse), [coarse, detail, of, zoom]);
}
