import { useEffect, useRef, type ReactNode } from 'react';
import { CopyButton } from '../components/CopyButton.js';
import { Status } from '../components/Status.js';
import { parseReference, shortVersion } from '../datasets/versions.js';
import { Link, datasetPath } from '../router.js';
import { count } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import { RunActions } from './RunActions.js';
import { resumeCommand } from './resume-command.js';
import type { RunDetails } from './run-details.js';
import { isStalled, reasonsOf } from './run-state.js';

export function RunHead({ run, onChanged }: { run: RunDetails; onChanged: () => void }): ReactNode {
  const heading = useRef<HTMLHeadingElement>(null);
  // Whoever came by keyboard or screen reader goes on reading here.
  useEffect(() => heading.current?.focus({ preventScroll: true }), []);
  const reference = parseReference((run.spec as { readonly dataset?: unknown } | null)?.dataset);
  const version = reference?.version && shortVersion(reference.version);
  const resume = resumeCommand(run);
  return (
    <header className="run-head">
      <nav aria-label="Breadcrumb" className="crumbs">
        <Link to="/">Runs</Link>
      </nav>
      <div className="run-title">
        <h1 ref={heading} tabIndex={-1}>
          {plainText(run.name, 100) || 'Run'}
        </h1>
        <Status status={run.status} stalled={isStalled(run)} />
        {run.attempt > 1 && <span className="faint">attempt {run.attempt}</span>}
        <RunActions run={run} onChanged={onChanged} />
      </div>
      {reasonsOf(run).map((reason) => (
        <p key={reason} className={`reason ${run.status === 'FAILED' ? 'bad' : ''}`}>
          {reason}
        </p>
      ))}
      {resume && (
        <div className="resume">
          <span className="hint">The checkpoint of round {count(resume.round)} is kept. This goes on from it, as a new run:</span>
          <div className="command train-command">
            <code>{resume.command}</code>
            <CopyButton text={resume.command} what="the command that goes on from the checkpoint" />
          </div>
        </div>
      )}
      <p className="run-id">
        {reference && (
          <>
            <span>
              on{' '}
              <Link to={datasetPath(reference.name, version)}>
                {reference.name}
                {version !== undefined && `@${version}`}
              </Link>
            </span>
            <span aria-hidden="true">·</span>
          </>
        )}
        <code>{run.id}</code> <CopyButton text={run.id} what="the id of the run" />
      </p>
    </header>
  );
}
