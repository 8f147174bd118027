/** One import in its process, seen from the api. */
import { runInProcess } from '../child-process.js';
import { Fault } from '../fault.js';
import type { BeginImport, FromImport, ToImport } from './import-process.js';

const HEAP_MEGABYTES = 768;
const DEADLINE_MS = 6 * 3_600_000;

export interface ImportPorts {
  /** @throws Fault that is shown to whoever asked for the import */
  answer(what: 'has' | 'announce' | 'stored', sha256: string, bytes: number): Promise<'go' | 'present' | 'stored'>;
  progress(progress: Extract<FromImport, { kind: 'progress' }>): void;
}

export interface Imported {
  /** As JSON. */
  readonly manifest: string;
  readonly warnings: readonly string[];
}

/** @throws WorkFailedError */
export function importInProcess(begin: BeginImport, ports: ImportPorts, signal: AbortSignal): Promise<Imported> {
  return runInProcess<FromImport, Imported>(
    {
      entry: 'datasets/import-process.js',
      begin: begin as unknown as object,
      heapMegabytes: HEAP_MEGABYTES,
      deadlineMs: DEADLINE_MS,
      said: {
        tooLong: `The import took more than ${DEADLINE_MS / 3_600_000} hours. Import it in parts.`,
        tooMuchMemory: `The import took more than ${HEAP_MEGABYTES} MB of memory. Import it from your machine: paceline data import.`,
      },
      onMessage(message, { done, fail, send }) {
        if (message.kind === 'progress') return ports.progress(message);
        if (message.kind === 'done') return done({ manifest: message.manifest, warnings: message.warnings });
        if (message.kind === 'failed') return fail(message.message, message.isOfUser);
        const { n, what, sha256, bytes } = message;
        const answer = (said: Omit<Extract<ToImport, { kind: 'answer' }>, 'kind' | 'n'>): void =>
          send(Object.assign({ kind: 'answer', n }, said));
        return void ports.answer(what, sha256, bytes).then(
          (said) => answer({ answer: said }),
          (error: unknown) =>
            error instanceof Fault ? answer({ answer: 'refused', message: error.message }) : fail((error as Error).message, false),
        );
      },
    },
    signal,
  );
}
