import { useEffect, useRef, useState } from 'react';
import { asFault, type ApiFault } from '../graphql/api-fault.js';
import { RunMetrics } from '../graphql/generated/operations.js';
import { followRun } from '../live/follow.js';
import { useApi, type Api } from '../session/api-context.js';
import { askMetrics, MAX_POINTS } from './ask-metrics.js';
import { LiveMetrics } from './live-metrics.js';
import { NO_METRICS, type MetricsByName } from './series.js';

/** Charts are drawn at most this often; rows in between wait. */
const DRAW_EVERY_MS = 200;
const HISTORY_EVERY_MS = 15_000;
const CHANNEL = 'metrics';

export interface MetricsOfRun {
  readonly metrics: MetricsByName;
  /** Why nothing more comes: a fault that waiting does not mend. */
  readonly refused: ApiFault | undefined;
}

/**
 * @param attempt a new attempt may have gone back to an earlier round, so it starts from the history again
 * @param names of the series; what the run measures beside them comes with its rows, and is asked for with the next history
 */
export function useMetrics(runId: string, attempt: number, names: readonly string[]): MetricsOfRun {
  const api = useApi();
  const wanted = useRef(names);
  wanted.current = names;
  const [metrics, setMetrics] = useState<MetricsByName>(NO_METRICS);
  const [refused, setRefused] = useState<ApiFault>();

  useEffect(() => {
    setRefused(undefined);
    const controller = new AbortController();
    const held = new LiveMetrics(MAX_POINTS);
    const timer = setInterval(() => setMetrics(held.draw()), DRAW_EVERY_MS);
    api.connection
      .whileFollowing(followMetrics(api, { runId, names: () => wanted.current }, held, controller.signal))
      .catch((error: unknown) => {
        if (!controller.signal.aborted && !api.onFault(asFault(error))) setRefused(asFault(error));
      })
      .finally(() => {
        clearInterval(timer);
        if (!controller.signal.aborted) setMetrics(held.draw());
        api.connection.forget(CHANNEL);
      });
    return () => {
      controller.abort();
      clearInterval(timer);
    };
  }, [api, runId, attempt]);

  return { metrics, refused };
}

/** Ends when the run is over, with its whole history. @throws ApiFault */
async function followMetrics(
  { ask, live, connection }: Api,
  { runId, names }: { readonly runId: string; readonly names: () => readonly string[] },
  held: LiveMetrics,
  signal: AbortSignal,
): Promise<void> {
  const load = async (): Promise<void> => {
    held.asking(performance.now());
    held.answered(await askMetrics(ask, { id: runId, names: names() }, signal));
  };
  const open = async function* (ended: AbortSignal): AsyncGenerator<void> {
    await load();
    for await (const { runMetrics } of live.subscribe(RunMetrics, { runId, afterRound: held.afterRound }, ended)) {
      held.add(runMetrics);
      // A fault shows in the subscription as well, which then starts from the history again.
      if (held.ageMs(performance.now()) > HISTORY_EVERY_MS) load().catch(() => undefined);
      yield;
    }
  };
  await followRun(open, (state) => connection.report(CHANNEL, state), signal);
}
