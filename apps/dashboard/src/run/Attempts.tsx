import type { ReactNode } from 'react';
import { Card } from '../components/Card.js';
import { count, dateAndTime, shortTime } from '../text/format.js';
import { plainText, sentence } from '../text/plain-text.js';
import type { RunDetails } from './run-details.js';

/** Shown as soon as there is more than one to tell of. */
export function Attempts({ run }: { run: RunDetails }): ReactNode {
  const { attempts, restartsLeft } = run;
  if (attempts.length < 2 && !attempts.some(({ fromRound }) => fromRound > 0)) return null;
  return (
    <Card title="Attempts">
      <table className="members attempts">
        <thead>
          <tr>
            <th scope="col">Attempt</th>
            <th scope="col">From round</th>
            <th scope="col">Ended</th>
          </tr>
        </thead>
        <tbody>
          {attempts.map((attempt) => (
            <tr key={attempt.number}>
              <th scope="row">
                {count(attempt.number)}
                <span className="note">
                  <time dateTime={attempt.createdAt} title={dateAndTime(attempt.createdAt)}>
                    {shortTime(attempt.createdAt)}
                  </time>
                </span>
              </th>
              <td>
                {count(attempt.fromRound)}
                {attempt.parentRunId && <span className="note">of another run</span>}
              </td>
              <td>
                {attempt.endedAt === null ? 'goes on' : ended(attempt.endCause, attempt.endRound)}
                {attempt.endReason && <span className="note">{sentence(attempt.endReason, 300)}</span>}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <p className="note">
        {count(restartsLeft)} restart{restartsLeft === 1 ? '' : 's'} left without progress
      </p>
    </Card>
  );
}

function ended(cause: string | null, round: number | null): string {
  const word = plainText(cause, 40).toLowerCase().replaceAll('_', ' ') || 'ended';
  return round === null ? word : `${word} in round ${count(round)}`;
}
