/** The points of the zoomed part of a run, as fine as the server has them for so many points. */
import { useEffect, useMemo, useRef, useState } from 'react';
import { askUntilAnswered } from '../live/ask-until-answered.js';
import { useApi } from '../session/api-context.js';
import { askMetrics } from './ask-metrics.js';
import type { Span } from './chart-scale.js';
import { withDetail, type MetricsByName } from './series.js';

interface Detail {
  readonly of: string;
  readonly metrics: MetricsByName;
}

/** @param attempt what was measured belongs to it: a new one may have gone back to an earlier round */
export function useDetail(runId: string, attempt: number, coarse: MetricsByName, zoom: Span | undefined): MetricsByName {
  const { ask, onFault } = useApi();
  const named = useRef<readonly string[]>([]);
  named.current = [...coarse.keys()];
  const [detail, setDetail] = useState<Detail>();
  const of = zoom ? `${runId} ${attempt} ${zoom.join(' ')}` : '';
  const [from, to] = zoom ?? [];

  useEffect(() => {
    if (from === undefined || to === undefined) return;
    const controller = new AbortController();
    // Rounds are counted from 0 there: the one that stands at `from` begins what is asked for.
    const span = { fromRound: from, toRound: to - 1 };
    // Meanwhile the coarse points stay, and the header tells of an api that is away.
    void askUntilAnswered(
      (signal) => askMetrics(ask, { id: runId, names: named.current, ...span }, signal),
      (metrics) => setDetail({ of, metrics }),
      onFault,
      controller.signal,
    );
    return () => controller.abort();
  }, [ask, onFault, runId, from, to, of]);

  return useMemo(() => (zoom && detail?.of === of ? withDetail(coarse, detail.metrics) : coarse), [coarse, detail, of, zoom]);
}
