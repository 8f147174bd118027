/** One dataset: its versions, and what the chosen one holds. */
import { useCallback, useEffect, useRef, useState, type ReactNode } from 'react';
import { Dataset, DatasetContent as DatasetContentOperation } from '../graphql/generated/operations.js';
import { usePoll } from '../live/use-poll.js';
import { Card, Facts } from '../components/Card.js';
import { CopyButton } from '../components/CopyButton.js';
import { Loading } from '../components/Loading.js';
import { Problem } from '../components/Problem.js';
import { Link } from '../router.js';
import { useApi } from '../session/api-context.js';
import { bytes, count, dateAndTime, shortTime } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import { Columns, MOST_COLUMNS } from './Columns.js';
import { Distributions } from './Distributions.js';
import type { DatasetDetails } from './dataset-details.js';
import { DatasetRuns } from './DatasetRuns.js';
import { Preview } from './Preview.js';
import { RemoveDataset } from './RemoveDataset.js';
import { Splits } from './Splits.js';
import { untrainedText, type DatasetContent } from './statistics.js';
import { Versions } from './Versions.js';
import { shortVersion, trainCommand, versionIn } from './versions.js';

const REFRESH_MS = 10_000;

export function DatasetPage({ name, search }: { name: string; search: string }): ReactNode {
  const { ask } = useApi();
  const load = useCallback(async (signal: AbortSignal) => (await ask(Dataset, { name }, signal)).dataset, [ask, name]);
  const { data: dataset, trouble, refused, refresh } = usePoll('dataset', load, REFRESH_MS);
  const shownName = plainText(name, 100);
  useEffect(() => {
    document.title = `${shownName} · Datasets · Paceline`;
  }, [shownName]);

  if (refused) return <Problem title="This dataset cannot be shown" text={refused.message} />;
  if (dataset === null)
    return <Problem title="There is no such dataset" text="It was removed, or it belongs to another team than this API key." />;
  if (dataset === undefined) return <Loading trouble={trouble} />;
  return (
    <article className="run dataset" aria-label={`Dataset ${shownName}`}>
      {dataset.isBuiltIn ? <BuiltIn dataset={dataset} /> : <Own dataset={dataset} asked={versionIn(search)} onRemoved={refresh} />}
    </article>
  );
}

interface HeadProps {
  readonly dataset: DatasetDetails;
  readonly version?: string | undefined;
  readonly about: ReactNode;
  readonly actions?: ReactNode;
}

function Head({ dataset, version, about, actions }: HeadProps): ReactNode {
  const heading = useRef<HTMLHeadingElement>(null);
  // Whoever came by keyboard or screen reader goes on reading here.
  useEffect(() => heading.current?.focus({ preventScroll: true }), []);
  const command = trainCommand(dataset.name, version === dataset.newest?.version ? undefined : version);
  return (
    <header className="run-head">
      <nav aria-label="Breadcrumb" className="crumbs">
        <Link to="/datasets">Datasets</Link>
      </nav>
      <div className="run-title">
        <h1 ref={heading} tabIndex={-1}>
          {plainText(dataset.name, 100)}
        </h1>
        <span className={`badge ${dataset.isBuiltIn ? '' : 'own'}`}>{dataset.isBuiltIn ? 'built-in' : 'team'}</span>
        {actions}
      </div>
      <p className="faint">{about}</p>
      <div className="command train-command">
        <code>{command}</code>
        <CopyButton text={command} what="the command that trains on it" />
      </div>
    </header>
  );
}

function BuiltIn({ dataset }: { dataset: DatasetDetails }): ReactNode {
  return (
    <>
      <Head dataset={dataset} about={plainText(dataset.title, 300)} />
      <Card title="About" className="dataset-about">
        <Facts
          facts={[
            ['Training split', `${count(dataset.trainExamples)} rows`],
            ['Evaluation split', `${count(dataset.evalExamples)} rows`],
            ...formatFacts(dataset.format),
            ['License', plainText(dataset.license, 300) || '–'],
            ['Source', plainText(dataset.source, 500)],
          ]}
        />
        <p className="note">It comes with the release: it has no versions, and its rows are not kept in the data store.</p>
      </Card>
    </>
  );
}

/** Inputs and targets of one example: "784 × float32". */
function formatFacts(format: unknown): readonly (readonly [string, string])[] {
  if (format === null || typeof format !== 'object') return [];
  return Object.entries(format).map(([field, value]): [string, string] => [
    field.charAt(0).toUpperCase() + field.slice(1).replace(/([A-Z])/g, (letter) => ` ${letter.toLowerCase()}`),
    plainText(typeof value === 'string' ? value : JSON.stringify(value), 300),
  ]);
}

function Own({ dataset, asked, onRemoved }: { dataset: DatasetDetails; asked: string | undefined; onRemoved: () => void }): ReactNode {
  const { ask } = useApi();
  const { name } = dataset;
  const version = asked ?? dataset.newest?.version ?? '';
  // A page of columns belongs to its version: another may have fewer.
  const [page, setPage] = useState({ version, offset: 0 });
  const offset = page.version === version ? page.offset : 0;
  const load = useCallback(
    async (signal: AbortSignal) =>
      (await ask(DatasetContentOperation, { name, version, first: MOST_COLUMNS, offset }, signal)).dataset?.version ?? null,
    [ask, name, version, offset],
  );
  const { data: content, trouble, refused } = usePoll('dataset-content', load, REFRESH_MS);
  const isNewest = content?.version === dataset.newest?.version;
  const actions = <RemoveDataset dataset={dataset} version={content?.version} onRemoved={onRemoved} />;
  return (
    <>
      <Head
        dataset={dataset}
        version={content?.version}
        about={content ? <About content={content} isNewest={isNewest} /> : ''}
        actions={actions}
      />
      {refused ? (
        <Problem title="This version cannot be shown" text={refused.message} />
      ) : content === null ? (
        <Problem title="There is no such version" text={`No version of ${name} begins with ${shortVersion(version)}.`} />
      ) : content === undefined ? (
        <Loading trouble={trouble} />
      ) : (
        <Content dataset={dataset} content={content} offset={offset} onOffset={(to) => setPage({ version, offset: to })} />
      )}
    </>
  );
}

function About({ content, isNewest }: { content: DatasetContent; isNewest: boolean }): ReactNode {
  return (
    <>
      {isNewest ? 'Newest version' : 'Older version'} <code title={content.version}>{shortVersion(content.version)}</code>, imported{' '}
      <time dateTime={content.createdAt} title={dateAndTime(content.createdAt)}>
        {shortTime(content.createdAt)}
      </time>{' '}
      from <span className="source">{plainText(content.source, 300) || 'an unnamed source'}</span>
    </>
  );
}

interface ContentProps {
  readonly dataset: DatasetDetails;
  readonly content: DatasetContent;
  readonly offset: number;
  readonly onOffset: (offset: number) => void;
}

function Content({ dataset, content, offset, onOffset }: ContentProps): ReactNode {
  const { schema } = content;
  const untrained = untrainedText(schema);
  const about: readonly (readonly [string, ReactNode])[] = [
    ['Rows', count(content.rows)],
    ['Columns', count(content.columnCount)],
    ['Size', bytes(content.bytes)],
    ['Label', schema.label === null ? <span className="faint">none</span> : plainText(schema.label, 200)],
    ['In order', schema.isOrdered ? 'yes, as in the source' : 'no'],
    ...(schema.droppedRows > 0 ? [['Rows left out', `${count(schema.droppedRows)}, with missing values`] as const] : []),
  ];
  return (
    <>
      <div className="run-main">
        {untrained !== '' && <p className="warn untrained">{untrained}</p>}
        <Columns content={content} offset={offset} onOffset={onOffset} />
        <Preview key={content.version} name={dataset.name} content={content} />
        <Distributions columns={schema.columns} />
      </div>
      <div className="run-side">
        <Card title="Version">
          <Facts facts={about} />
          <div className="hash">
            <span className="note">SHA-256 of the manifest</span>
            <code>{content.version}</code>
            <CopyButton text={content.version} what="the version" />
          </div>
        </Card>
        <Splits splits={schema.splits} />
        <DatasetRuns runs={content.runs} />
        <Versions dataset={dataset} shown={content.version} />
      </div>
    </>
  );
}
