import type { ReactNode } from 'react';
import type { RunsResult } from '../graphql/generated/operations.js';
import { useNow } from '../live/use-now.js';
import { ProgressBar } from '../components/ProgressBar.js';
import { Status } from '../components/Status.js';
import { isOver, toneOf } from '../components/status-table.js';
import { Link, runPath } from '../router.js';
import { hasSpeed, isStalled, scoresOf, type Scores } from '../run/run-state.js';
import { modelName, optimizerName } from '../run/spec-facts.js';
import { DASH, age, compact, dateAndTime, duration, percent, rate } from '../text/format.js';
import { plainText, sentence } from '../text/plain-text.js';

type ListedRun = RunsResult['runs']['edges'][number]['node'];

const COLUMNS = ['Run', 'Status', 'Model', 'Optimizer', 'Progress', 'Loss', 'Accuracy', 'Examples/s', 'Duration', 'Age'] as const;

/** Roles are written out because the narrow layout makes cards of the rows, which would take a table's own roles away. */
export function RunTable({ runs }: { runs: readonly ListedRun[] }): ReactNode {
  const nowMs = useNow(1_000);
  return (
    <table className="runs" role="table" aria-label="Runs">
      <thead role="rowgroup">
        <tr role="row">
          {COLUMNS.map((name) => (
            <th key={name} role="columnheader" scope="col" className={`c-${name.toLowerCase().replace('/', '-')}`}>
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody role="rowgroup">
        {runs.map((run) => (
          <Row key={run.id} run={run} nowMs={nowMs} />
        ))}
      </tbody>
    </table>
  );
}

function Row({ run, nowMs }: { run: ListedRun; nowMs: number }): ReactNode {
  const { progress, result, status } = run;
  const reason = sentence(run.statusReason, 200);
  const showReason = reason !== '' && (toneOf(status) === 'bad' || toneOf(status) === 'waiting' || isStalled(run));
  const scores = scoresOf(run);
  const speed = isOver(status) ? result?.examplesPerSecond : hasSpeed(run) ? progress.examplesPerSecond : null;
  return (
    <tr role="row">
      <td role="cell" className="c-run">
        <Link to={runPath(run.id)} className="row-link">
          {plainText(run.name, 100) || run.id}
        </Link>
        {showReason && <span className="row-reason">{reason}</span>}
      </td>
      <td role="cell" className="c-status">
        <Status status={status} stalled={isStalled(run)} />
      </td>
      <td role="cell" className="c-model" data-label="Model" title={`${compact(run.parameterCount)} parameters`}>
        {modelName(run.shortSpec)}
      </td>
      <td role="cell" className="c-optimizer" data-label="Optimizer" title="Optimizer and learning rate">
        {optimizerName(run.shortSpec)}
      </td>
      <td role="cell" className="c-progress">
        <Progress run={run} />
      </td>
      <Score name="loss" label="Loss" value={scores.loss} of={scores.of} />
      <Score name="accuracy" label="Accuracy" value={scores.accuracy} of={scores.of} />
      <td role="cell" className="c-examples-s" data-label="Examples/s">
        {rate(speed)}
      </td>
      <td role="cell" className="c-duration" data-label="Duration" title="From start to end">
        {duration(secondsOf(run, nowMs))}
      </td>
      <td role="cell" className="c-age" title={`Created ${dateAndTime(run.createdAt)}`}>
        {age(run.createdAt, nowMs)}
      </td>
    </tr>
  );
}

/** A bar says how far a run is that goes on; of one that is over a word does. */
function Progress({ run: { name, status, progress } }: { run: ListedRun }): ReactNode {
  const fraction = progress.totalRounds > 0 ? progress.round / progress.totalRounds : 0;
  if (status === 'SUCCEEDED') return <span className="faint">done</span>;
  if (isOver(status)) return <span className="faint">{progress.round === 0 ? 'not begun' : `ended at ${percent(fraction)}`}</span>;
  return (
    <span className="mini-progress">
      <ProgressBar label={`Progress of ${plainText(name, 100)}`} fraction={fraction} tone={toneOf(status)} />
      <span>{percent(fraction)}</span>
    </span>
  );
}

/** A figure of the training stands beside one of the evaluation, so it is marked. */
function Score({ name, label, value, of }: { name: string; label: string; value: string; of: Scores['of'] }): ReactNode {
  const whose = of !== 'training' ? 'on the evaluation split' : 'in training, of the newest rounds: not comparable with an evaluation';
  return (
    <td role="cell" className={`c-${name}`} data-label={label} title={value === DASH ? undefined : `${label} ${whose}`}>
      {value}
      {value !== DASH && of === 'training' && <span className="mark">training</span>}
    </td>
  );
}

function secondsOf({ startedAt, finishedAt }: ListedRun, nowMs: number): number | null {
  return startedAt ? Math.max(0, ((finishedAt ? Date.parse(finishedAt) : nowMs) - Date.parse(startedAt)) / 1000) : null;
}
