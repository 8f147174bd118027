/** One run, live: its state is asked for every second, its metrics and events come by subscription. */
import { useCallback, useEffect, useState, type ReactNode } from 'react';
import { Run } from '../graphql/generated/operations.js';
import { usePoll } from '../live/use-poll.js';
import { Loading } from '../components/Loading.js';
import { Problem } from '../components/Problem.js';
import { isOver, statusLabel } from '../components/status-table.js';
import { useApi } from '../session/api-context.js';
import { percent } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import { seriesNames } from './ask-metrics.js';
import { Attempts } from './Attempts.js';
import { Charts } from './Charts.js';
import { Checkpoints } from './Checkpoints.js';
import { EventList } from './EventList.js';
import { ModelDownload } from './ModelDownload.js';
import { Ledger } from './Ledger.js';
import { hasErrors, measuresOf } from './measures.js';
import { Outcome } from './Outcome.js';
import { Predictions } from './Predictions.js';
import { isValidated } from './run-state.js';
import type { RunDetails } from './run-details.js';
import { RunHead } from './RunHead.js';
import { Servers } from './Servers.js';
import { Spec } from './Spec.js';
import { StatusHistory } from './StatusHistory.js';
import { Summary } from './Summary.js';
import { useCourse } from './use-course.js';
import { useEvents } from './use-events.js';
import { useMetrics } from './use-metrics.js';
import { useTargetScales } from './use-target-scales.js';
import { Workers } from './Workers.js';

const REFRESH_MS = 1_000;
const OVER_REFRESH_MS = 10_000;

export function RunPage({ id }: { id: string }): ReactNode {
  const { ask } = useApi();
  const load = useCallback(async (signal: AbortSignal) => (await ask(Run, { id }, signal)).run, [ask, id]);
  // What a run that is over still changes (a late ledger range, the address of the weights) is worth a slow look.
  const [over, setOver] = useState(false);
  const { data: run, trouble, refused, refresh } = usePoll('run', load, over ? OVER_REFRESH_MS : REFRESH_MS);
  const isNowOver = run ? isOver(run.status) : false;
  if (isNowOver !== over) setOver(isNowOver);

  if (refused) return <Problem title="This run cannot be shown" text={refused.message} />;
  if (run === null)
    return <Problem title="There is no such run" text="It does not exist, or it belongs to another team than this API key." />;
  if (run === undefined) return <Loading trouble={trouble} />;
  return <ShownRun run={run} refresh={refresh} />;
}

function ShownRun({ run, refresh }: { run: RunDetails; refresh: () => void }): ReactNode {
  const events = useEvents(run.id, run.attempt, refresh);
  const measures = measuresOf(run);
  const names = seriesNames(
    measures.map(({ name }) => name),
    isValidated(run.spec),
  );
  const { metrics, refused } = useMetrics(run.id, run.attempt, names);
  const course = useCourse(run);
  const scales = useTargetScales(run.id, hasErrors(measures));
  useTitle(run);
  return (
    <article className="run" aria-label={`Run ${plainText(run.name, 100)}`}>
      <RunHead run={run} onChanged={refresh} />
      <Summary run={run} measures={measures} scales={scales} />
      <div className="run-main">
        {refused && (
          <p className="problem" role="alert">
            The charts are not live: {refused.message} Reload the page to try again.
          </p>
        )}
        <Charts run={run} measures={measures} metrics={metrics} course={course} scales={scales} />
        <Predictions run={run} />
        <EventList {...events} attempts={run.attempt} />
        <Spec run={run} />
      </div>
      <div className="run-side">
        {run.result && <Outcome run={run} result={run.result} measures={measures} course={course} scales={scales} />}
        <ModelDownload run={run} />
        <Workers run={run} />
        <Servers servers={run.servers} status={run.status} spec={run.spec} />
        <Attempts run={run} />
        <Checkpoints run={run} />
        <Ledger run={run} />
        <StatusHistory changes={run.statusHistory} attempts={run.attempt} />
      </div>
      <p className="visually-hidden" role="status">
        Run {plainText(run.name, 100)}: {statusLabel(run.status)}
      </p>
    </article>
  );
}

function useTitle({ name, status, progress }: RunDetails): void {
  const state = status === 'RUNNING' ? percent(progress.totalRounds > 0 ? progress.round / progress.totalRounds : 0) : statusLabel(status);
  useEffect(() => {
    document.title = `${state} · ${plainText(name, 60)} · Paceline`;
  }, [name, state]);
}
