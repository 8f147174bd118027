/** Sends files one after the other and asks for their import. */
import { useEffect, useRef, useState } from 'react';
import { asFault } from '../graphql/api-fault.js';
import { ImportDataset } from '../graphql/generated/operations.js';
import { useApi } from '../session/api-context.js';
import { plainText, sentence } from '../text/plain-text.js';
import type { MissingId } from './import-options.js';
import { SentFiles } from './sent-files.js';

export interface Wanted {
  readonly files: readonly File[];
  readonly name: string;
  readonly label: string;
  readonly shares: readonly number[] | null;
  readonly inOrder: boolean;
  readonly missing: MissingId;
  /** The files are parts of one series. */
  readonly oneSeries: boolean;
  /** Null: as the import reads it by itself. */
  readonly decimal: string | null;
  readonly delimiter: string | null;
}

export interface Sending {
  /** The file that is on its way; undefined while the import is asked for. */
  readonly file: string | undefined;
  readonly sentBytes: number;
  readonly allBytes: number;
}

export interface ImportForm {
  readonly sending: Sending | undefined;
  readonly problems: readonly string[];
  readonly start: (wanted: Wanted) => void;
  readonly cancel: () => void;
  /** Other files were chosen. */
  readonly reset: () => void;
}

/** @param onStarted the api has the files and has begun, or will */
export function useImport(onStarted: () => void): ImportForm {
  const { ask, upload, onFault } = useApi();
  const [sending, setSending] = useState<Sending>();
  const [problems, setProblems] = useState<readonly string[]>([]);
  const controller = useRef<AbortController>(undefined);
  const [sent] = useState(() => new SentFiles());
  useEffect(() => () => controller.current?.abort(), []);

  const run = async (wanted: Wanted, signal: AbortSignal): Promise<void> => {
    const allBytes = wanted.files.reduce((sum, file) => sum + file.size, 0);
    const uploads: string[] = [];
    let before = 0;
    for (const file of wanted.files) {
      const tell = (bytes: number): void => setSending({ file: file.name, sentBytes: Math.min(allBytes, before + bytes), allBytes });
      tell(0);
      uploads.push(await sent.idOf(file, () => upload(file, tell, signal)));
      before += file.size;
    }
    setSending({ file: undefined, sentBytes: allBytes, allBytes });
    const { name, label, shares, inOrder, missing, oneSeries, decimal, delimiter } = wanted;
    const options = { label: label || null, split: shares, inOrder, missing, oneSeries, decimal, delimiter };
    const request = { name, uploads, options };
    const { importDataset } = await ask(ImportDataset, { ...request, idempotencyKey: sent.keyOf(request) }, signal);
    // Uploads are used up by an import; those that are not found are older than a day.
    if (importDataset.__typename === 'ImportDatasetSuccess' || importDataset.__typename === 'NotFound') sent.forget();
    if (importDataset.__typename === 'ImportDatasetSuccess') return onStarted();
    if (importDataset.__typename === 'NotFound') return setProblems(['The files that were sent are gone: import them again.']);
    const issues = importDataset.__typename === 'InvalidInput' ? importDataset.issues : [];
    setProblems(
      issues.length > 0
        ? issues.map(({ path, message }) => `${plainText(path, 60)}: ${plainText(message)}`)
        : [sentence(importDataset.message)],
    );
  };
  const start = (wanted: Wanted): void => {
    controller.current?.abort();
    const made = new AbortController();
    controller.current = made;
    setProblems([]);
    run(wanted, made.signal)
      .catch((error: unknown) => {
        if (made.signal.aborted) return;
        const fault = asFault(error);
        if (!onFault(fault)) setProblems([fault.message]);
      })
      .finally(() => setSending(undefined));
  };
  const reset = (): void => {
    sent.forget();
    setProblems([]);
  };
  return { sending, problems, start, cancel: () => controller.current?.abort(), reset };
}
