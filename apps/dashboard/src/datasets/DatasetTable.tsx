import type { ReactNode } from 'react';
import type { DatasetsResult } from '../graphql/generated/operations.js';
import { useNow } from '../live/use-now.js';
import { Link, datasetPath } from '../router.js';
import { DASH, age, bytes, count, dateAndTime } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import { shortVersion } from './versions.js';

type ListedDataset = DatasetsResult['datasets']['edges'][number]['node'];

const COLUMNS = ['Dataset', 'Kind', 'Rows', 'Columns', 'Size', 'Newest version', 'Created'] as const;
const classOf = (name: string): string => `c-${name.toLowerCase().replace(' ', '-')}`;

/** Roles are written out because the narrow layout makes cards of the rows, which would take a table's own roles away. */
export function DatasetTable({ datasets }: { datasets: readonly ListedDataset[] }): ReactNode {
  const nowMs = useNow(10_000);
  return (
    <table className="runs datasets" role="table" aria-label="Datasets">
      <thead role="rowgroup">
        <tr role="row">
          {COLUMNS.map((name) => (
            <th key={name} role="columnheader" scope="col" className={classOf(name)}>
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody role="rowgroup">
        {datasets.map((dataset) => (
          <Row key={dataset.id} dataset={dataset} nowMs={nowMs} />
        ))}
      </tbody>
    </table>
  );
}

function Row({ dataset, nowMs }: { dataset: ListedDataset; nowMs: number }): ReactNode {
  const { name, title, isBuiltIn, newest, trainExamples, evalExamples, createdAt } = dataset;
  const rows = newest?.rows ?? trainExamples + evalExamples;
  const shownTitle = plainText(title, 200);
  return (
    <tr role="row">
      <td role="cell" className="c-dataset">
        <Link to={datasetPath(name)} className="row-link">
          {plainText(name, 100)}
        </Link>
        {shownTitle !== name && <span className="row-reason">{shownTitle}</span>}
      </td>
      <td role="cell" className="c-kind">
        <span className={`badge ${isBuiltIn ? '' : 'own'}`}>{isBuiltIn ? 'built-in' : 'team'}</span>
      </td>
      <td role="cell" className="c-rows" data-label="Rows" title={`Training split: ${count(trainExamples)} rows`}>
        {count(rows)}
      </td>
      <td role="cell" className="c-columns" data-label="Columns">
        {count(newest?.columnCount)}
      </td>
      <td role="cell" className="c-size" data-label="Size" title="Of the prepared dataset">
        {bytes(newest?.bytes)}
      </td>
      <td role="cell" className="c-newest-version" data-label="Newest version">
        {newest ? (
          <span title={dateAndTime(newest.createdAt)}>
            <code>{shortVersion(newest.version)}</code> <span className="faint">{age(newest.createdAt, nowMs)}</span>
          </span>
        ) : (
          DASH
        )}
      </td>
      <td role="cell" className="c-created" data-label="Created" title={createdAt ? dateAndTime(createdAt) : 'Comes with the release'}>
        {createdAt ? age(createdAt, nowMs) : DASH}
      </td>
    </tr>
  );
}
