/** Rows for measuring engines: the first rows of the run, so that zeros and augmentation are those of its data. */
import { Worker } from 'node:worker_threads';
import { openRunRows, rowBuffers, type RunRowsSettings } from '@paceline/data';
import { trialExamples, trialRows, type TrialRows } from '@paceline/engine/planning';
import type { StepTaskJob } from '@paceline/control-plane';
import { BatchPlan } from './batch-plan.js';

type TrialJob = Pick<StepTaskJob, 'spec' | 'data'>;

export interface TrialInit {
  readonly job: TrialJob;
  readonly settings: RunRowsSettings;
}
export type TrialAnswer = { readonly kind: 'rows'; readonly rows: TrialRows } | { readonly kind: 'refused'; readonly message: string };

/**
 * The same in a thread, because decoding images and fetching shards would block the heartbeats of the main thread.
 * @throws Error after the deadline, and if the rows cannot be read
 */
export async function rowsInThread(
  { spec, data }: TrialJob,
  settings: RunRowsSettings,
  deadlineMs: number,
  entry = new URL('./trial-thread.js', import.meta.url),
): Promise<TrialRows> {
  const thread = new Worker(entry, { workerData: { job: { spec, data }, settings } satisfies TrialInit });
  const { promise, resolve, reject } = settled<TrialAnswer>();
  const timer = setTimeout(() => reject(new Error(`the rows of the run were not read within ${deadlineMs} ms`)), deadlineMs);
  thread.once('message', resolve).once('error', reject);
  thread.once('exit', (code) => reject(new Error(`the thread that reads rows ended with code ${code}`)));
  try {
    const answer = await promise;
    if (answer.kind === 'rows') return answer.rows;
    throw new Error(answer.message);
  } finally {
    clearTimeout(timer);
    await thread.terminate();
  }
}

function settled<T>(): { promise: Promise<T>; resolve: (value: T) => void; reject: (error: unknown) => void } {
  let resolve!: (value: T) => void;
  let reject!: (error: unknown) => void;
  const promise = new Promise<T>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  return { promise, resolve, reject };
}

/** @throws DatasetError */
export async function rowsOfRun({ spec, data }: TrialJob, settings: RunRowsSettings): Promise<TrialRows> {
  const opened = await openRunRows(data, spec, settings);
  const { format, train } = opened;
  try {
    const plan = new BatchPlan({ spec, examples: data.trainExamples, heldOutExamples: data.heldOutExamples, format });
    const rows = plan.rows(0, 0).subarray(0, trialExamples(spec));
    const into = rowBuffers(format, rows.length);
    await train.gather(rows, 0, rows.length, into);
    plan.augment(0, rows, into);
    return trialRows({ inputs: into.inputs, targets: into.targets, weights: into.weights, count: rows.length }, format);
  } finally {
    await opened.close();
  }
}
