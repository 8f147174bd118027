/** What may be asked of a run in its status: pause or resume at once; workers, and a longer training, by a small dialog; cancelling after a confirmation. */
import { useState, type ReactNode } from 'react';
import { shardHostsIn } from '@paceline/spec/shard-holders';
import { asFault } from '../graphql/api-fault.js';
import { ExtendRun, PauseRun, ResumeRun, ScaleRun } from '../graphql/generated/operations.js';
import { useStale } from '../live/use-stale.js';
import { isOver } from '../components/status-table.js';
import { useApi } from '../session/api-context.js';
import { plainText } from '../text/plain-text.js';
import { CancelRun } from './CancelRun.js';
import { MOST, extendedOf, totalText, type Unit } from './extension.js';
import { NumberDialog } from './NumberDialog.js';
import type { RunDetails } from './run-details.js';
import { hasEvenEpochs } from './spec-facts.js';
import { workerBounds } from './worker-bounds.js';

type Answer = { readonly __typename: string; readonly message?: string };

export function RunActions({ run, onChanged }: { run: RunDetails; onChanged: () => void }): ReactNode {
  const { ask } = useApi();
  const stale = useStale();
  const { sending, problem, request } = useRequest(onChanged);
  const { id, status } = run;
  /** Nothing can be asked of an api that does not answer. */
  const busy = sending || stale;
  const isPaused = status === 'PAUSED';
  const isFinished = status === 'SUCCEEDED';
  if (isOver(status) && !isFinished) return null;
  const extend = (
    <ExtendRunDialog
      run={run}
      busy={busy}
      problem={problem}
      send={(more, unit, idempotencyKey) => request(async () => (await ask(ExtendRun, { id, [unit]: more, idempotencyKey })).extendRun)}
    />
  );
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
        <Plain busy={busy} text="Resume run" onClick={() => request(async () => (await ask(ResumeRun, { id })).resumeRun)} />
      ) : (
        <Plain
          busy={busy || status === 'PAUSING'}
          text={status === 'PAUSING' ? 'Pausing…' : 'Pause run'}
          onClick={() => request(async () => (await ask(PauseRun, { id })).pauseRun)}
        />
      )}
      {isPaused && extend}
      <ScaleRunDialog
        run={run}
        busy={busy}
        problem={problem}
        send={(workers) => request(async () => (await ask(ScaleRun, { id, workers })).scaleRun)}
      />
      <CancelRun id={id} name={plainText(run.name, 100)} disabled={stale} onCancelled={onChanged} />
      {said}
    </div>
  );
}

/** One request at a time, and why the last one came to nothing. */
function useRequest(onChanged: () => void) {
  const { onFault } = useApi();
  const [sending, setSending] = useState(false);
  const [problem, setProblem] = useState('');
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
      onChanged(); // it may have been done, though no answer came
    } finally {
      setSending(false);
    }
    return false;
  };
  return { sending, problem, request };
}

function Plain({ busy, text, onClick }: { busy: boolean; text: string; onClick: () => Promise<unknown> }): ReactNode {
  return (
    <button type="button" className="button" disabled={busy} onClick={() => void onClick()}>
      {text}
    </button>
  );
}

interface ScaleProps {
  readonly run: RunDetails;
  readonly busy: boolean;
  readonly problem: string;
  readonly send: (workers: number) => Promise<boolean>;
}

function ScaleRunDialog({ run, busy, problem, send }: ScaleProps): ReactNode {
  const bounds = workerBounds(run.spec, run.progress.replicas);
  if (!bounds) return null;
  const { least, most } = bounds;
  return (
    <NumberDialog
      busy={busy}
      problem={problem}
      button="Workers…"
      title="Workers of this run"
      explanation={
        shardHostsIn(run.spec) === 'servers'
          ? 'The most workers that may train at the same time. The weights do not depend on it.'
          : 'Each holds a shard of the parameters. The run writes a checkpoint and goes on with this many workers, as soon as they are connected.'
      }
      units={[{ unit: 'workers', label: `Workers, ${least} to ${most}`, min: least, max: most }]}
      initial={String(run.workersWanted)}
      submit="Set"
      send={send}
    />
  );
}

interface ExtendProps {
  readonly run: RunDetails;
  readonly busy: boolean;
  readonly problem: string;
  readonly send: (more: number, unit: Unit, key: string) => Promise<boolean>;
}

function ExtendRunDialog({ run, busy, problem, send }: ExtendProps): ReactNode {
  return (
    <NumberDialog<Unit>
      busy={busy}
      problem={problem}
      button="Extend run…"
      title="Train this run for longer"
      explanation="It goes on from its last checkpoint, in a new attempt."
      units={[
        { unit: 'epochs', label: 'Epochs more', min: 1, max: MOST.epochs },
        { unit: 'rounds', label: 'Rounds more', min: 1, max: MOST.rounds },
      ]}
      initial=""
      submit="Extend"
      preview={(typed, unit) => totalText(typed, unit, extendedOf(run), hasEvenEpochs(run.spec))}
      send={send}
    />
  );
}
