/** What may be asked of a run in its status: pause or resume at once; workers by a small dialog; cancelling after a confirmation. */
import { useId, useRef, useState, type ReactNode } from 'react';
import { asFault } from '../graphql/api-fault.js';
import { PauseRun, ResumeRun, ScaleRun } from '../graphql/operations.js';
import { isOver } from '../parts/Status.js';
import { useApi } from '../session/api-context.js';
import { plainText } from '../text/plain-text.js';
import { CancelRun } from './CancelRun.js';
import type { RunDetails } from './RunPage.js';

type Answer = { readonly __typename: string; readonly message?: string };

export function RunActions({ run, onChanged }: { run: RunDetails; onChanged: () => void }): ReactNode {
  const { ask, onFault } = useApi();
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState('');
  const { id, status } = run;

  /** @returns whether it was done */
  const request = async (send: () => Promise<Answer>): Promise<boolean> => {
    setBusy(true);
    setProblem('');
    try {
      const answer = await send();
      if (answer.__typename === 'ChangeRunSuccess') {
        onChanged();
        return true;
      }
      setProblem(plainText(answer.message));
    } catch (error) {
      const fault = asFault(error);
      if (!onFault(fault)) setProblem(fault.message);
    } finally {
      setBusy(false);
    }
    return false;
  };
  if (isOver(status)) return null;
  const isPaused = status === 'PAUSED';
  return (
    <div className="run-actions">
      {isPaused ? (
        <button
          type="button"
          className="button"
          disabled={busy}
          onClick={() => void request(async () => (await ask(ResumeRun, { id })).resumeRun)}
        >
          Resume run
        </button>
      ) : (
        <button
          type="button"
          className="button"
          disabled={busy || status === 'PAUSING'}
          onClick={() => void request(async () => (await ask(PauseRun, { id })).pauseRun)}
        >
          {status === 'PAUSING' ? 'Pausing…' : 'Pause run'}
        </button>
      )}
      <ScaleRunDialog run={run} busy={busy} send={(workers) => request(async () => (await ask(ScaleRun, { id, workers })).scaleRun)} />
      <CancelRun id={id} name={plainText(run.name, 100)} onCancelled={onChanged} />
      <p className="problem" role="alert">
        {problem}
      </p>
    </div>
  );
}

function ScaleRunDialog({ run, busy, send }: { run: RunDetails; busy: boolean; send: (workers: number) => Promise<boolean> }): ReactNode {
  const dialog = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  const inputId = useId();
  const [workers, setWorkers] = useState('');
  const { replicas } = run.progress;
  if (replicas < 2) return null;
  const open = (): void => {
    setWorkers(String(run.workersWanted));
    dialog.current?.showModal();
  };
  const submit = async (): Promise<void> => {
    await send(Number(workers));
    dialog.current?.close();
  };
  return (
    <>
      <button type="button" className="button" disabled={busy} onClick={open}>
        Workers…
      </button>
      <dialog ref={dialog} className="card dialog" aria-labelledby={titleId}>
        <h2 id={titleId}>Workers of this run</h2>
        <p>At most so many workers hold a seat at the same time. The weights do not depend on it.</p>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void submit();
          }}
        >
          <div className="field">
            <label htmlFor={inputId}>Workers, 1 to {replicas}</label>
            <input
              id={inputId}
              type="number"
              required
              min={1}
              max={replicas}
              step={1}
              value={workers}
              onChange={(event) => setWorkers(event.target.value)}
            />
          </div>
          <div className="dialog-buttons">
            <button type="button" className="button" onClick={() => dialog.current?.close()}>
              Leave as it is
            </button>
            <button type="submit" className="button" disabled={busy}>
              Set
            </button>
          </div>
        </form>
      </dialog>
    </>
  );
}
