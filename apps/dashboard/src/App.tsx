import { useCallback, useState, type ReactNode } from 'react';
import type { ViewerResult } from './graphql/generated/operations.js';
import { ConnectionState } from './live/ConnectionState.js';
import { useSilence } from './live/use-stale.js';
import { Logo } from './components/Logo.js';
import { Problem } from './components/Problem.js';
import { Shortcuts } from './components/Shortcuts.js';
import { nextTheme, readTheme, setTheme } from './components/theme.js';
import { ThemeSwitch } from './components/ThemeSwitch.js';
import { DatasetPage } from './datasets/DatasetPage.js';
import { DatasetsPage } from './datasets/DatasetsPage.js';
import { Link, routeOf, useAddress } from './router.js';
import { RunPage } from './run/RunPage.js';
import { RunsPage } from './runs/RunsPage.js';
import { useApi } from './session/api-context.js';
import { Session } from './session/Session.js';
import { plainText } from './text/plain-text.js';

export function App(): ReactNode {
  return <Session>{(viewer, signOut) => <Shell viewer={viewer} signOut={signOut} />}</Session>;
}

function Shell({ viewer, signOut }: { viewer: ViewerResult['viewer']; signOut: () => void }): ReactNode {
  const { connection } = useApi();
  const silentForMs = useSilence(connection);
  const [theme, setShownTheme] = useState(readTheme);
  const changeTheme = useCallback(() => {
    const next = nextTheme(readTheme());
    setTheme(next);
    setShownTheme(next);
  }, []);
  return (
    <>
      <a className="skip" href="#content">
        Skip to content
      </a>
      <header className="bar">
        <Link to="/" className="brand" label="Paceline: all runs">
          <Logo /> Paceline
        </Link>
        <Pages />
        <ConnectionState silentForMs={silentForMs} />
        <span className="who" title={`API key ${plainText(viewer.apiKey.name, 60)} (${plainText(viewer.apiKey.prefix, 30)}…)`}>
          {plainText(viewer.team.name, 60)}
        </span>
        <ThemeSwitch theme={theme} onNext={changeTheme} />
        <button type="button" className="button quiet" onClick={signOut}>
          Sign out
        </button>
      </header>
      <main id="content" tabIndex={-1} className={silentForMs === undefined ? undefined : 'stale'}>
        <Page />
      </main>
      <Shortcuts onTheme={changeTheme} />
    </>
  );
}

function Pages(): ReactNode {
  const { page } = routeOf(useAddress().pathname);
  return (
    <nav className="bar-pages" aria-label="Pages of Paceline">
      <Link to="/" current={page === 'runs'} className={page === 'run' ? 'within' : undefined}>
        Runs
      </Link>
      <Link to="/datasets" current={page === 'datasets'} className={page === 'dataset' ? 'within' : undefined}>
        Datasets
      </Link>
    </nav>
  );
}

function Page(): ReactNode {
  const { pathname, search } = useAddress();
  const route = routeOf(pathname);
  if (route.page === 'datasets') return <DatasetsPage search={search} />;
  if (route.page === 'dataset') return <DatasetPage key={route.name} name={route.name} search={search} />;
  if (route.page === 'runs') return <RunsPage search={search} />;
  if (route.page === 'run') return <RunPage key={route.id} id={route.id} />;
  return <Problem title="There is no such page" text="The address may be mistyped." />;
}
