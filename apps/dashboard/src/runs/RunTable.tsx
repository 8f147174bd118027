import type { ReactNode } from 'react';
import type { RunsResult } from '../graphql/operations.js';
import { useNow } from '../live/use-now.js';
import { ProgressBar } from '../parts/ProgressBar.js';
import { Status } from '../parts/Status.js';
import { isOver, toneOf } from '../parts/status-table.js';
import { Link, runPath } from '../router.js';
import { modelName } from '../run/spec-facts.js';
import { DASH, accuracy, age, compact, dateAndTime, loss, percent, rate } from '../text/format.js';
import { plainText, sentence } from '../text/plain-text.js';

type ListedRun = RunsResult['runs']['edges'][number]['node'];

const COLUMNS = ['Run', 'Status', 'Model', 'Progress', 'Loss', 'Accuracy', 'Examples/s', 'Age'] as const;

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
  const fraction = progress.totalRounds > 0 ? progress.round / progress.totalRounds : 0;
  const reason = sentence(run.statusReason, 200);
  const showReason = reason !== '' && (toneOf(status) === 'bad' || toneOf(status) === 'waiting');
  const evaluated = result !== null;
  return (
    <tr role="row">
      <td role="cell" className="c-run">
        <Link to={runPath(run.id)} className="row-link">
          {plainText(run.name, 100) || run.id}
        </Link>
        {showReason && <span className="row-reason">{reason}</span>}
      </td>
      <td role="cell" className="c-status">
        <Status status={status} />
      </td>
      <td role="cell" className="c-model" data-label="Model" title={`${compact(run.parameterCount)} parameters`}>
        {modelName(run.spec)}
      </td>
      <td role="cell" className="c-progress">
        {status === 'SUCCEEDED' ? (
          <span className="faint">done</span>
        ) : (
          <span className="mini-progress">
            <ProgressBar label={`Progress of ${plainText(run.name, 100)}`} fraction={fraction} tone={toneOf(status)} />
            <span>{percent(fraction)}</span>
          </span>
        )}
      </td>
      <Figure
        name="loss"
        label="Loss"
        value={loss(result?.loss ?? progress.loss)}
        of={evaluated ? 'on the evaluation split' : 'of the newest rounds'}
      />
      <Figure
        name="accuracy"
        label="Accuracy"
        value={accuracy(result?.accuracy ?? progress.accuracy)}
        of={evaluated ? 'on the evaluation split' : 'of the newest rounds'}
      />
      <Figure
        name="examples-s"
        label="Examples/s"
        value={rate(result?.examplesPerSecond ?? (isOver(status) ? null : progress.examplesPerSecond))}
        of="trained per second"
      />
      <td role="cell" className="c-age" title={dateAndTime(run.createdAt)}>
        {age(run.createdAt, nowMs)}
      </td>
    </tr>
  );
}

function Figure({ name, label, value, of }: { name: string; label: string; value: string; of: string }): ReactNode {
  return (
    <td role="cell" className={`c-${name}`} data-label={label} title={value === DASH ? undefined : `${label} ${of}`}>
      {value}
    </td>
  );
}
