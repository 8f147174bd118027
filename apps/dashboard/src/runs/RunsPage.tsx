/** All runs of the team, newest first, one keyset page at a time; the page that is shown is kept up to date. */
import { useEffect, useMemo, type ReactNode } from 'react';
import { RunMarks, Runs, type RunsResult } from '../graphql/generated/operations.js';
import { usePoll } from '../live/use-poll.js';
import { withMarks } from '../live/with-marks.js';
import { Loading } from '../components/Loading.js';
import { Problem } from '../components/Problem.js';
import { Link } from '../router.js';
import { useApi } from '../session/api-context.js';
import { count } from '../text/format.js';
import { NoRuns } from './NoRuns.js';
import { FILTERS, FILTER_NAMES, listAddress, listPath, type FilterName } from './run-filter.js';
import { RunTable } from './RunTable.js';

const PAGE_SIZE = 20;
const REFRESH_MS = 2_000;

export function RunsPage({ search }: { search: string }): ReactNode {
  const { ask } = useApi();
  const { filter, after } = listAddress(search);
  const load = useMemo(() => {
    const page = { first: PAGE_SIZE, after: after ?? null, status: FILTERS[filter].statuses ?? null };
    return withMarks(
      (signal) => ask(RunMarks, page, signal),
      (signal) => ask(Runs, page, signal),
    );
  }, [ask, filter, after]);
  const { data, trouble, refused } = usePoll('runs', load, REFRESH_MS);

  useEffect(() => {
    document.title = 'Runs · Paceline';
  }, []);

  if (refused) return <Problem title="The runs cannot be shown" text={refused.message} />;
  return (
    <>
      <div className="page-head">
        <h1>Runs</h1>
        {data && data.runs.totalCount > 0 && <span className="total">{count(data.runs.totalCount)}</span>}
        <Filters current={filter} />
      </div>
      {data ? <List runs={data.runs} filter={filter} after={after} /> : <Loading trouble={trouble} />}
    </>
  );
}

function Filters({ current }: { current: FilterName }): ReactNode {
  return (
    <nav className="filters" aria-label="Runs by status">
      {FILTER_NAMES.map((name) => (
        <Link key={name} to={listPath({ filter: name })} current={name === current}>
          {FILTERS[name].label}
        </Link>
      ))}
    </nav>
  );
}

function List({ runs, filter, after }: { runs: RunsResult['runs']; filter: FilterName; after: string | undefined }): ReactNode {
  const { edges, pageInfo } = runs;
  if (edges.length === 0) return <NoRuns filter={filter} after={after} />;
  return (
    <>
      <RunTable runs={edges.map(({ node }) => node)} />
      {(after !== undefined || pageInfo.hasNextPage) && (
        <nav className="pages" aria-label="Pages">
          {after !== undefined && <Link to={listPath({ filter })}>Newest</Link>}
          {pageInfo.hasNextPage && pageInfo.endCursor && <Link to={listPath({ filter, after: pageInfo.endCursor })}>Older</Link>}
        </nav>
      )}
    </>
  );
}
