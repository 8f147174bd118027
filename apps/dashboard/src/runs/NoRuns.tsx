import type { ReactNode } from 'react';
import { CopyButton } from '../components/CopyButton.js';
import { Link } from '../router.js';
import { FILTERS, listPath, type FilterName } from './run-filter.js';

const COMMAND = 'npx paceline train --model mlp --epochs 5';

export function NoRuns({ filter, after }: { filter: FilterName; after: string | undefined }): ReactNode {
  if (after !== undefined) {
    return (
      <Empty title="No older runs">
        <Link to={listPath({ filter })}>Newest</Link>
      </Empty>
    );
  }
  if (filter !== 'all') {
    return (
      <Empty title={filter === 'active' ? 'Nothing is running' : `No run has ${FILTERS[filter].label.toLowerCase()}`}>
        <Link to="/">All runs</Link>
      </Empty>
    );
  }
  return (
    <Empty title="No runs yet">
      <p>Start one on MNIST; it appears here as soon as it is created.</p>
      <div className="command">
        <code>{COMMAND}</code>
        <CopyButton text={COMMAND} what="the command" />
      </div>
    </Empty>
  );
}

function Empty({ title, children }: { title: string; children: ReactNode }): ReactNode {
  return (
    <section className="card empty">
      <h2>{title}</h2>
      {children}
    </section>
  );
}
