/** What may be asked of a run in its status: pause or resume at once; workers, and rounds more, by a small dialog; cancelling after a confirmation. */
import { useId, useRef, useState, type ReactNode } from 'react';
import { asFault } from '../graphql/api-fault.js';
import { ExtendRun, PauseRun, ResumeRun, ScaleRun } from '../graphql/operations.js';
import { useStale } from '../live/use-stale.js';
import { isOver } from '../parts/status-table.js';
import { useApi } from '../session/api-context.js';
import { plainText } from '../text/plain-text.js';
import { CancelRun } from './CancelRun.js';
import type { RunDetails } from './RunPage.js';

/** `rounds` of a spec; the api says when the sum is beyond it. */
const MOST_ROUNDS = 100_000_000;

type Answer = { readonly __typename: string; readonly message?: string };

export function RunActions({ run, onChanged }: { run: RunDetails; onChanged: () => void }): ReactNode {
  const { ask, onFault } = useApi();
  const stale = useStale();
  const [sending, setSending] = useState(false);
  const [problem, setProblem] = useState('');
  const { id, status } = run;
  /** Nothing can be asked of an api that does not answer. */
  const busy = sending || stale;

  /** @returns whether it was done */
  const request = async (send: () => Promise<Answer>): Promise<boolean> => {
    setSending(true);
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
      setSending(false);
    }
    return false;
  };
  const isPaused = status === 'PAUSED';
  const isFinished = status === 'SUCCEEDED';
  if (isOver(status) && !isFinished) return null;
  const extend = <ExtendRunDialog busy={busy} send={(rounds) => request(async () => (await ask(ExtendRun, { id, rounds })).extendRun)} />;
  const said = (
    <p className="problem" role="alert">
      {problem}
    </p>
  );
  if (isFinished)
    return (
      <div className="run-actions">
        {extend}
        {said}
      </div>
    );
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
      {isPaused && extend}
      <ScaleRunDialog run={run} busy={busy} send={(workers) => request(async () => (await ask(ScaleRun, { id, workers })).scaleRun)} />
      <CancelRun id={id} name={plainText(run.name, 100)} disabled={stale} onCancelled={onChanged} />
      {said}
    </div>
  );
}

/** A dialog that asks for one whole number. */
function NumberDialog({
  busy,
  button,
  title,
  explanation,
  label,
  max,
  initial,
  submit,
  send,
}: {
  busy: boolean;
  button: string;
  title: string;
  explanation: string;
  label: string;
  max: number;
  initial: () => string;
  submit: string;
  send: (value: number) => Promise<boolean>;
}): ReactNode {
  const dialog = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  const inputId = useId();
  const [value, setValue] = useState('');
  const open = (): void => {
    setValue(initial());
    dialog.current?.showModal();
  };
  return (
    <>
      <button type="button" className="button" disabled={busy} onClick={open}>
        {button}
      </button>
      <dialog ref={dialog} className="card dialog" aria-labelledby={titleId}>
        <h2 id={titleId}>{title}</h2>
        <p>{explanation}</p>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void send(Number(value)).then(() => dialog.current?.close());
          }}
        >
          <div className="field">
            <label htmlFor={inputId}>{label}</label>
            <input
              id={inputId}
              type="number"
              required
              min={1}
              max={max}
              step={1}
              value={value}
              onChange={(event) => setValue(event.target.value)}
            />
          </div>
          <div className="dialog-buttons">
            <button type="button" className="button" onClick={() => dialog.current?.close()}>
              Leave as it is
            </button>
            <button type="submit" className="button" disabled={busy}>
              {submit}
            </button>
          </div>
        </form>
      </dialog>
    </>
  );
}

type Send = (value: number) => Promise<boolean>;

function ScaleRunDialog({ run, busy, send }: { run: RunDetails; busy: boolean; send: Send }): ReactNode {
  const { replicas } = run.progress;
  if (replicas < 2) return null;
  return (
    <NumberDialog
      busy={busy}
      button="Workers…"
      title="Workers of this run"
      explanation="At most so many workers hold a seat at the same time. The weights do not depend on it."
      label={`Workers, 1 to ${replicas}`}
      max={replicas}
      initial={() => String(run.workersWanted)}
      submit="Set"
      send={send}
    />
  );
}

function ExtendRunDialog({ busy, send }: { busy: boolean; send: Send }): ReactNode {
  return (
    <NumberDialog
      busy={busy}
      button="Extend run…"
      title="Train this run for longer"
      explanation="It goes on from its last checkpoint, in a new attempt."
      label="Rounds more"
      max={MOST_ROUNDS}
      initial={() => ''}
      submit="Extend"
      send={send}
    />
  );
}
