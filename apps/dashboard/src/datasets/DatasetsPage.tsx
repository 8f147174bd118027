/** The datasets that runs can name: those of the release, and the team's own; and where one is imported. */
import { useCallback, useEffect, useState, type ReactNode } from 'react';
import { DatasetImports, Datasets } from '../graphql/generated/operations.js';
import { useNow } from '../live/use-now.js';
import { usePoll } from '../live/use-poll.js';
import { Loading } from '../components/Loading.js';
import { Problem } from '../components/Problem.js';
import { Link } from '../router.js';
import { useApi } from '../session/api-context.js';
import { count } from '../text/format.js';
import { DatasetTable } from './DatasetTable.js';
import { ImportFiles } from './ImportFiles.js';
import { Imports, isUnderWay } from './Imports.js';

const PAGE_SIZE = 50;
const REFRESH_MS = 5_000;
const IMPORTS_REFRESH_MS = 5_000;
/** While one is under way. */
const IMPORTING_REFRESH_MS = 700;
const LISTED_IMPORTS = 10;

export function DatasetsPage({ search }: { search: string }): ReactNode {
  const { ask } = useApi();
  const after = new URLSearchParams(search).get('after') ?? undefined;
  const load = useCallback(
    async (signal: AbortSignal) => (await ask(Datasets, { first: PAGE_SIZE, after: after ?? null }, signal)).datasets,
    [ask, after],
  );
  const { data, trouble, refused, refresh } = usePoll('datasets', load, REFRESH_MS);
  useEffect(() => {
    document.title = 'Datasets · Paceline';
  }, []);

  if (refused) return <Problem title="The datasets cannot be shown" text={refused.message} />;
  return (
    <>
      <div className="page-head">
        <h1>Datasets</h1>
        {data && <span className="total">{count(data.totalCount)}</span>}
      </div>
      <ImportPart onReady={refresh} />
      {data ? <DatasetTable datasets={data.edges.map(({ node }) => node)} /> : <Loading trouble={trouble} />}
      {data && (after !== undefined || data.pageInfo.hasNextPage) && (
        <nav className="pages" aria-label="Pages">
          {after !== undefined && <Link to="/datasets">First</Link>}
          {data.pageInfo.hasNextPage && data.pageInfo.endCursor && (
            <Link to={`/datasets?after=${encodeURIComponent(data.pageInfo.endCursor)}`}>Next</Link>
          )}
        </nav>
      )}
    </>
  );
}

/** @param onReady an import has made a version that the list does not show yet */
function ImportPart({ onReady }: { onReady: () => void }): ReactNode {
  const { ask } = useApi();
  const nowMs = useNow(1_000);
  const [underWay, setUnderWay] = useState(0);
  const load = useCallback(
    async (signal: AbortSignal) => (await ask(DatasetImports, { first: LISTED_IMPORTS }, signal)).datasetImports,
    [ask],
  );
  const { data, refresh } = usePoll('imports', load, underWay > 0 ? IMPORTING_REFRESH_MS : IMPORTS_REFRESH_MS);
  const going = data?.filter(isUnderWay).length ?? 0;
  useEffect(() => {
    setUnderWay(going);
    onReady();
  }, [going, onReady]);
  return (
    <div className="import-part">
      <ImportFiles onStarted={refresh} />
      {data && <Imports imports={data} nowMs={nowMs} />}
    </div>
  );
}
