import { useEffect, useRef, type ReactNode } from 'react';
import { CopyButton } from '../parts/CopyButton.js';
import { Status, isOver } from '../parts/Status.js';
import { Link } from '../router.js';
import { plainText, sentence } from '../text/plain-text.js';
import { RunActions } from './RunActions.js';
import type { RunDetails } from './RunPage.js';

export function RunHead({ run, onChanged }: { run: RunDetails; onChanged: () => void }): ReactNode {
  const heading = useRef<HTMLHeadingElement>(null);
  // Whoever came by keyboard or screen reader goes on reading here.
  useEffect(() => heading.current?.focus({ preventScroll: true }), []);
  const reason = sentence(run.statusReason);
  const waitingFor = plainText(run.progress.waitingFor);
  return (
    <header className="run-head">
      <nav aria-label="Breadcrumb" className="crumbs">
        <Link to="/">Runs</Link>
      </nav>
      <div className="run-title">
        <h1 ref={heading} tabIndex={-1}>
          {plainText(run.name, 100) || 'Run'}
        </h1>
        <Status status={run.status} />
        {run.attempt > 1 && <span className="faint">attempt {run.attempt}</span>}
        <RunActions run={run} onChanged={onChanged} />
      </div>
      {reason && <p className={`reason ${run.status === 'FAILED' ? 'bad' : ''}`}>{reason}</p>}
      {waitingFor && waitingFor !== reason && !isOver(run.status) && <p className="reason">Waiting for {waitingFor}</p>}
      <p className="run-id">
        <code>{run.id}</code> <CopyButton text={run.id} what="the id of the run" />
      </p>
    </header>
  );
}
