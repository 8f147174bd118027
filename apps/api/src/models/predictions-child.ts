/** The predictions of one run in their process, seen from the api. */
import { runInProcess } from '../child-process.js';
import type { BeginPredictions, FromPredictions } from './predictions-process.js';

const HEAP_MEGABYTES = 768;
const MEMORY_BYTES = 2 ** 30;
const DEADLINE_MS = 300_000;
const ELSEWHERE = 'On your machine: paceline evaluate.';

/** @returns the document as JSON @throws WorkFailedError */
export function predictInProcess(begin: Omit<BeginPredictions, 'kind' | 'memoryBytes'>, signal: AbortSignal): Promise<string> {
  return runInProcess<FromPredictions, string>(
    {
      entry: 'models/predictions-process.js',
      begin: Object.assign({ kind: 'begin', memoryBytes: MEMORY_BYTES }, begin),
      heapMegabytes: HEAP_MEGABYTES,
      deadlineMs: DEADLINE_MS,
      said: {
        tooLong: `They took more than ${DEADLINE_MS / 60_000} minutes here. ${ELSEWHERE}`,
        tooMuchMemory: `They take more than ${HEAP_MEGABYTES} MB of memory. ${ELSEWHERE}`,
      },
      onMessage(message, { done, fail }) {
        if (message.kind === 'done') return done(message.report);
        return fail(`${message.message}. ${ELSEWHERE}`, message.isOfUser);
      },
    },
    signal,
  );
}
