import { useId, useRef, useState, type ReactNode } from 'react';
import { asFault } from '../graphql/api-fault.js';
import { CancelRun as CancelRunOperation } from '../graphql/generated/operations.js';
import { useApi } from '../session/api-context.js';
import { plainText } from '../text/plain-text.js';

interface Props {
  readonly id: string;
  readonly name: string;
  readonly disabled: boolean;
  readonly onCancelled: () => void;
}

export function CancelRun({ id, name, disabled, onCancelled }: Props): ReactNode {
  const { ask, onFault } = useApi();
  const dialog = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  const [state, setState] = useState<{ readonly busy: boolean; readonly asked?: boolean; readonly problem?: string }>({ busy: false });

  const open = (): void => {
    setState({ busy: false });
    dialog.current?.showModal();
  };
  const cancel = async (): Promise<void> => {
    setState({ busy: true });
    try {
      const { cancelRun } = await ask(CancelRunOperation, { id });
      if (cancelRun.__typename !== 'CancelRunSuccess') return setState({ busy: false, problem: plainText(cancelRun.message) });
      dialog.current?.close();
      setState({ busy: false, asked: true });
      onCancelled();
    } catch (error) {
      const fault = asFault(error);
      if (!onFault(fault)) setState({ busy: false, problem: fault.message });
    }
  };
  return (
    <>
      <button type="button" className="button danger" disabled={state.asked || disabled} onClick={open}>
        {state.asked ? 'Cancelling…' : 'Cancel run'}
      </button>
      <dialog
        ref={dialog}
        className="card dialog"
        aria-labelledby={titleId}
        onCancel={(event) => void (state.busy && event.preventDefault())}
      >
        <h2 id={titleId}>Cancel “{name}”?</h2>
        <p>Training stops after the present round and cannot be resumed. Everything recorded so far is kept.</p>
        <p className="problem" role="alert">
          {state.problem}
        </p>
        <div className="dialog-buttons">
          <button type="button" className="button" autoFocus disabled={state.busy} onClick={() => dialog.current?.close()}>
            Keep running
          </button>
          <button type="button" className="button danger-solid" disabled={state.busy || disabled} onClick={() => void cancel()}>
            {state.busy ? 'Cancelling…' : 'Cancel run'}
          </button>
        </div>
      </dialog>
    </>
  );
}
