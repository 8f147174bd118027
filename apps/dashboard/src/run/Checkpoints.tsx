import type { ReactNode } from 'react';
import { Card } from '../components/Card.js';
import { bytes, count, dateAndTime, loss, shortTime } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import type { RunDetails } from './run-details.js';

export function Checkpoints({ checkpoints, attempts }: { checkpoints: RunDetails['checkpoints']; attempts: number }): ReactNode {
  if (checkpoints.length === 0) return null;
  return (
    <Card title="Checkpoints">
      <table className="members">
        <thead>
          <tr>
            <th scope="col">Round</th>
            <th scope="col">Written</th>
            <th scope="col">Loss</th>
            <th scope="col">Size</th>
          </tr>
        </thead>
        <tbody>
          {checkpoints.map((checkpoint) => (
            <tr key={`${checkpoint.attempt}-${checkpoint.round}`}>
              <th scope="row">
                {count(checkpoint.round)}
                {attempts > 1 && <span className="note">attempt {count(checkpoint.attempt)}</span>}
              </th>
              <td>
                <time dateTime={checkpoint.createdAt} title={dateAndTime(checkpoint.createdAt)}>
                  {shortTime(checkpoint.createdAt)}
                </time>
                <span className="note">{noteOf(checkpoint)}</span>
              </td>
              <td>{loss(checkpoint.loss)}</td>
              <td>{bytes(checkpoint.bytes)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Card>
  );
}

/** What it was written for; what is wrong with it, where something is. */
function noteOf({ state, reason }: RunDetails['checkpoints'][number]): string {
  if (state === 'VOID') return 'a restore went back before it';
  if (state === 'INVALID') return 'could not be loaded';
  return plainText(reason, 30);
}
