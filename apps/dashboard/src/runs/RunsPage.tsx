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
import { NameSearch } from './NameSearch.js';
import { NoRuns } from './NoRuns.js';
import { FILTERS, FILTER_NAMES, listAddress, listPath, type FilterName, type ListAddress } from './run-filter.js';
import { RunTable } from './RunTable.js';

const PAGE_SIZE = 20;
const REFRESH_MS = 2_000;

export function RunsPage({ search }: { search: string }): ReactNode {
  const { ask } = useApi();
  const { filter, after, name } = listAddress(search);
  const load = useMemo(() => {
    const page = { first: PAGE_SIZE, after: after ?? null, status: FILTERS[filter].statuses ?? null, name: name.trim() || null };
    return withMarks(
      (signal) => ask(RunMarks, page, signal),
      (signal) => ask(Runs, page, signal),
    );
  }, [ask, filter, after, name]);
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
        <NameSearch filter={filter} name={name} />
        <Filters current={filter} name={name} />
      </div>
      {data ? <List runs={data.runs} filter={filter} after={after} name={name} /> : <Loading trouble={trouble} />}
    </>
  );
}

function Filters({ current, name }: { current: FilterName; name: string }): ReactNode {
  return (
    <nav className="filters" aria-label="Runs by status">
      {FILTER_NAMES.map((filter) => (
        <Link key={filter} to={listPath({ filter, name })} current={filter === current}>
          {FILTERS[filter].label}
        </Link>
      ))}
    </nav>
  );
}

function List({ runs, filter, after, name }: ListAddress & { readonly runs: RunsResult['runs'] }): ReactNode {
  const { edges, pageInfo } = runs;
  if (edges.length === 0) return <NoRuns filter={filter} after={after} name={name} />;
  return (
    <>
      <RunTable runs={edges.map(({ node }) => node)} />
      {(after !== undefined || pageInfo.hasNextPage) && (
        <nav className="pages" aria-label="Pages">
          {after !== undefined && <Link to={listPath({ filter, name })}>Newest</Link>}
          {pageInfo.hasNextPage && pageInfo.endCursor && <Link to={listPath({ filter, name, after: pageInfo.endCursor })}>Older</Link>}
        </nav>
      )}
    </>
  );
}
