import type { ReactNode } from 'react';
import { Card } from '../components/Card.js';
import { Status } from '../components/Status.js';
import { count, dateAndTime, shortTime } from '../text/format.js';
import { sentence } from '../text/plain-text.js';
import type { RunDetails } from './run-details.js';

export function StatusHistory({ changes, attempts }: { changes: RunDetails['statusHistory']; attempts: number }): ReactNode {
  return (
    <Card title="Status history" className="history-card">
      <ol className="history">
        {changes.map((change, i) => (
          <li key={i}>
            <Status status={change.to} past={i < changes.length - 1} />
            <time dateTime={change.at} title={dateAndTime(change.at)}>
              {shortTime(change.at)}
            </time>
            <span className="note">
              {sentence(change.reason, 500)}
              {attempts > 1 && ` · attempt ${count(change.attempt)}`}
            </span>
          </li>
        ))}
      </ol>
    </Card>
  );
}
