import { useState, type ReactNode } from 'react';
import { asFault } from '../graphql/api-fault.js';
import { useApi } from '../session/api-context.js';
import { saveFile } from '../session/download.js';

/** The name of a run as the beginning of a file's name. */
export const asFileName = (name: string): string => name.replace(/[^\w.-]+/g, '-').replace(/^[-.]+|-+$/g, '');

interface Props {
  readonly path: string;
  readonly fileName: string;
  readonly text: string;
  /** What is fetched, where the text alone does not say it. */
  readonly label?: string;
  readonly isSmall?: boolean;
}

/** Fetches a file of the api with the key, and hands it to the browser's downloads. */
export function Download({ path, fileName, text, label, isSmall = false }: Props): ReactNode {
  const { download, onFault } = useApi();
  const [state, setState] = useState<{ readonly busy: boolean; readonly problem?: string }>({ busy: false });
  const start = async (): Promise<void> => {
    setState({ busy: true });
    try {
      saveFile(await download(path), fileName);
      setState({ busy: false });
    } catch (error) {
      const fault = asFault(error);
      if (!onFault(fault)) setState({ busy: false, problem: fault.message });
    }
  };
  return (
    <>
      <button
        type="button"
        className={isSmall ? 'button small' : 'button'}
        aria-label={label}
        disabled={state.busy}
        onClick={() => void start()}
      >
        {state.busy ? 'Downloading…' : text}
      </button>
      <p className="problem" role="alert">
        {state.problem}
      </p>
    </>
  );
}
