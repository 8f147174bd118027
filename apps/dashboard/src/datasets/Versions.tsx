import type { ReactNode } from 'react';
import { Card } from '../components/Card.js';
import { Link, datasetPath } from '../router.js';
import { bytes, count, dateAndTime, shortTime } from '../text/format.js';
import type { DatasetDetails } from './dataset-details.js';
import { shortVersion } from './versions.js';

/** Newest first. A run keeps to the version that it began with. */
export function Versions({ dataset, shown }: { dataset: DatasetDetails; shown: string }): ReactNode {
  return (
    <Card title="Versions" aside={<span className="faint">{count(dataset.versions.length)}</span>}>
      <ol className="history">
        {dataset.versions.map(({ id, version, rows, bytes: size, createdAt }) => (
          <li key={id}>
            <Link to={datasetPath(dataset.name, shortVersion(version))} current={version === shown}>
              <code>{shortVersion(version)}</code>
            </Link>
            <time dateTime={createdAt} title={dateAndTime(createdAt)}>
              {shortTime(createdAt)}
            </time>
            <span className="note">
              {count(rows)} rows, {bytes(size)}
              {version === shown && ', shown here'}
            </span>
          </li>
        ))}
      </ol>
    </Card>
  );
}
