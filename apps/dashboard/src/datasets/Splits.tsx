import type { ReactNode } from 'react';
import { Card } from '../components/Card.js';
import { bytes, count } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import type { DatasetContent } from './statistics.js';

export function Splits({ splits }: { splits: DatasetContent['schema']['splits'] }): ReactNode {
  const all = splits.reduce((sum, split) => sum + split.rows, 0);
  const hasSeries = splits.some(({ series }) => series !== null);
  return (
    <Card title="Splits">
      <table className="members">
        <thead>
          <tr>
            <th scope="col">Split</th>
            <th scope="col" className="figure-cell">
              Rows
            </th>
            <th scope="col" className="figure-cell">
              Share
            </th>
            {hasSeries && (
              <th scope="col" className="figure-cell" title="Rows that follow one another in time: no window has rows of two">
                Series
              </th>
            )}
            <th scope="col" className="figure-cell">
              Size
            </th>
          </tr>
        </thead>
        <tbody>
          {splits.map(({ name, rows, bytes: size, shards, series }) => (
            <tr key={name}>
              <th scope="row">{plainText(name, 20)}</th>
              <td className="figure-cell">{count(rows)}</td>
              <td className="figure-cell">{all === 0 ? '–' : `${((rows / all) * 100).toFixed(1)}\u202f%`}</td>
              {hasSeries && <td className="figure-cell">{series === null ? '–' : count(series)}</td>}
              <td className="figure-cell" title={`${count(shards)} ${shards === 1 ? 'shard' : 'shards'}`}>
                {bytes(size)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Card>
  );
}
