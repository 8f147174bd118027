import type { ReactNode } from 'react';
import { CopyButton } from '../components/CopyButton.js';
import { Link } from '../router.js';
import { plainText } from '../text/plain-text.js';
import { FILTERS, listPath, type ListAddress } from './run-filter.js';

const COMMAND = 'npx paceline train --model mlp --epochs 5';

export function NoRuns({ filter, after, name }: ListAddress): ReactNode {
  if (after !== undefined) {
    return (
      <Empty title="No older runs">
        <Link to={listPath({ filter, name })}>Newest</Link>
      </Empty>
    );
  }
  if (name.trim() !== '') {
    return (
      <Empty
        title={`No ${filter === 'all' ? '' : `${FILTERS[filter].label.toLowerCase()} `}run has “${plainText(name.trim(), 60)}” in its name`}
      >
        <Link to={listPath({ filter })}>Any name</Link>
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
