/** The thread that reads the rows of one trial: it opens the data of the run as the loader thread does, reads the rows, and ends. */
import { parentPort, workerData } from 'node:worker_threads';
import { rowsOfRun, type TrialAnswer, type TrialInit } from './trial-rows.js';

const { job, settings } = workerData as TrialInit;
const answer = await rowsOfRun(job, settings).then(
  (rows): TrialAnswer => ({ kind: 'rows', rows }),
  (error: unknown): TrialAnswer => ({ kind: 'refused', message: (error as Error).message }),
);
parentPort!.postMessage(answer);
