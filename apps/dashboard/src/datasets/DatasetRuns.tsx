import type { ReactNode } from 'react';
import { Card } from '../components/Card.js';
import { Status } from '../components/Status.js';
import { Link, runPath } from '../router.js';
import { dateAndTime, shortTime } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import type { DatasetContent } from './statistics.js';

/** The newest runs on this version. */
export function DatasetRuns({ runs }: { runs: DatasetContent['runs'] }): ReactNode {
  return (
    <Card title="Runs on this version">
      {runs.length === 0 ? (
        <p className="nothing">No run has used it yet.</p>
      ) : (
        <ol className="history">
          {runs.map((run) => (
            <li key={run.id}>
              <Link to={runPath(run.id)}>{plainText(run.name, 100) || run.id}</Link>
              <Status status={run.status} />
              <time className="note" dateTime={run.createdAt} title={dateAndTime(run.createdAt)}>
                {shortTime(run.createdAt)}
              </time>
            </li>
          ))}
        </ol>
      )}
    </Card>
  );
}
