/** Imports by the api that go on, or ended lately: how far they are, and why one failed. */
import type { ReactNode } from 'react';
import type { DatasetImportsResult } from '../graphql/generated/operations.js';
import { Card } from '../components/Card.js';
import { ProgressBar } from '../components/ProgressBar.js';
import { Link, datasetPath } from '../router.js';
import { age, bytes, count, dateAndTime } from '../text/format.js';
import { plainText, sentence } from '../text/plain-text.js';
import { shortVersion } from './versions.js';

type Import = DatasetImportsResult['datasetImports'][number];

const LATELY_MS = 3_600_000;

export const isUnderWay = ({ state }: Pick<Import, 'state'>): boolean => state === 'PENDING' || state === 'IMPORTING';

/** One that ended long ago is no news. */
export const isShown = (each: Pick<Import, 'state' | 'finishedAt'>, nowMs: number): boolean =>
  isUnderWay(each) || (each.finishedAt !== null && nowMs - Date.parse(each.finishedAt) < LATELY_MS);

export function Imports({ imports, nowMs }: { imports: readonly Import[]; nowMs: number }): ReactNode {
  const shown = imports.filter((each) => isShown(each, nowMs));
  if (shown.length === 0) return null;
  return (
    <Card title="Imports" className="imports">
      <ol className="history">
        {shown.map((each) => (
          <li key={each.id}>
            <span className="import-name">
              {each.state === 'READY' ? <Link to={datasetPath(each.name)}>{plainText(each.name, 100)}</Link> : plainText(each.name, 100)}
            </span>
            <time dateTime={each.createdAt} title={dateAndTime(each.createdAt)}>
              {age(each.createdAt, nowMs)}
            </time>
            <ImportState each={each} />
          </li>
        ))}
      </ol>
    </Card>
  );
}

function ImportState({ each }: { each: Import }): ReactNode {
  const { state, reason, rows, bytes: read, totalBytes, version, name } = each;
  const why = sentence(reason);
  if (state === 'FAILED') return <p className="problem import-state">{why || 'It failed.'}</p>;
  if (state === 'READY')
    return (
      <p className="import-state note">
        Ready: version <code>{shortVersion(version ?? '')}</code>
        {why && ` ${why}`}
      </p>
    );
  const told =
    state === 'PENDING'
      ? why || 'Waits for its turn'
      : `${count(rows)} rows, ${bytes(read)}${totalBytes ? ` of ${bytes(totalBytes)}` : ''} read`;
  return (
    <div className="import-state">
      <ProgressBar
        label={`Import of ${plainText(name, 100)}`}
        fraction={totalBytes ? read / totalBytes : 0}
        tone={state === 'PENDING' ? 'waiting' : 'going'}
        text={told}
      />
      <span className="note">{told}</span>
    </div>
  );
}
