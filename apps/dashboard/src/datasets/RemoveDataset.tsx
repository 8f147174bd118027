/** Removes the version that is shown, or the dataset with all of its versions, after a confirmation. A refusal is shown as the api says it. */
import { useId, useRef, useState, type ReactNode } from 'react';
import { asFault } from '../graphql/api-fault.js';
import { RemoveDataset as RemoveDatasetOperation } from '../graphql/generated/operations.js';
import { useStale } from '../live/use-stale.js';
import { datasetPath, navigate } from '../router.js';
import { useApi } from '../session/api-context.js';
import { count } from '../text/format.js';
import { sentence } from '../text/plain-text.js';
import type { DatasetDetails } from './dataset-details.js';
import { shortVersion } from './versions.js';

interface Props {
  readonly dataset: DatasetDetails;
  /** The version that is shown. */
  readonly version: string | undefined;
  readonly onRemoved: () => void;
}

type What = 'dataset' | 'version';

export function RemoveDataset({ dataset, version, onRemoved }: Props): ReactNode {
  const { ask, onFault } = useApi();
  const stale = useStale();
  const dialog = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  const several = dataset.versions.length > 1;
  const [what, setWhat] = useState<What>('dataset');
  const [force, setForce] = useState(false);
  const [state, setState] = useState<{ readonly busy: boolean; readonly problem?: string }>({ busy: false });
  const chosen: What = several && version !== undefined ? what : 'dataset';

  const open = (): void => {
    setState({ busy: false });
    setForce(false);
    dialog.current?.showModal();
  };
  const remove = async (): Promise<void> => {
    setState({ busy: true });
    try {
      const reference = chosen === 'version' ? `${dataset.name}@${version}` : dataset.name;
      const { removeDataset } = await ask(RemoveDatasetOperation, { dataset: reference, force });
      if (removeDataset.__typename !== 'RemoveDatasetSuccess') return setState({ busy: false, problem: sentence(removeDataset.message) });
      dialog.current?.close();
      setState({ busy: false });
      onRemoved();
      navigate(chosen === 'version' ? datasetPath(dataset.name) : '/datasets');
    } catch (error) {
      const fault = asFault(error);
      if (!onFault(fault)) setState({ busy: false, problem: fault.message });
    }
  };
  return (
    <div className="dataset-actions">
      <button type="button" className="button danger" disabled={stale} onClick={open}>
        Remove…
      </button>
      <dialog
        ref={dialog}
        className="card dialog"
        aria-labelledby={titleId}
        onCancel={(event) => void (state.busy && event.preventDefault())}
      >
        <h2 id={titleId}>Remove “{dataset.name}”?</h2>
        <p>New runs cannot use it any more. It is refused while a run trains on it.</p>
        <form onSubmit={(event) => (event.preventDefault(), void remove())}>
          {several && version !== undefined && (
            <WhatIsRemoved chosen={chosen} versions={dataset.versions.length} version={version} onChoose={setWhat} />
          )}
          <label className="choice">
            <input type="checkbox" checked={force} onChange={(event) => setForce(event.target.checked)} />
            <span>Also when finished runs were trained on it</span>
          </label>
          {force && <p className="note">Those runs keep their weights, but can neither be extended nor repeated.</p>}
          <p className="problem" role="alert">
            {state.problem}
          </p>
          <div className="dialog-buttons">
            <button type="button" className="button" autoFocus disabled={state.busy} onClick={() => dialog.current?.close()}>
              Keep it
            </button>
            <button type="submit" className="button danger-solid" disabled={state.busy || stale}>
              {state.busy ? 'Removing…' : 'Remove'}
            </button>
          </div>
        </form>
      </dialog>
    </div>
  );
}

interface WhatProps {
  readonly chosen: What;
  readonly versions: number;
  readonly version: string;
  readonly onChoose: (what: What) => void;
}

function WhatIsRemoved({ chosen, versions, version, onChoose }: WhatProps): ReactNode {
  return (
    <fieldset className="choices" aria-label="What is removed">
      <Choice checked={chosen === 'dataset'} onChoose={() => onChoose('dataset')} text={`All ${count(versions)} versions`} />
      <Choice checked={chosen === 'version'} onChoose={() => onChoose('version')} text={`Version ${shortVersion(version)} alone`} />
    </fieldset>
  );
}

function Choice({ checked, onChoose, text }: { checked: boolean; onChoose: () => void; text: string }): ReactNode {
  return (
    <label className="choice">
      <input type="radio" name="removed" checked={checked} onChange={onChoose} />
      <span>{text}</span>
    </label>
  );
}
