/** A thread that simulates its share of the seeds and posts a tally now and then; `npm run simulate` starts one per core. */
import { parentPort, workerData } from 'node:worker_threads';
import { simulateSeed, type CheckMode } from './simulate.js';
import { addSeed, emptyTally } from './checks/tally.js';
import { drawMode, type RunMode } from './run/async-run.js';

export interface SeedsOrder {
  readonly first: number;
  readonly count: number;
  /** Every `step`-th seed from `first` on is this thread's. */
  readonly step: number;
  readonly check: CheckMode | undefined;
  readonly mode: RunMode | undefined;
}

const POST_EVERY = 50;
const { first, count, step, check, mode } = workerData as SeedsOrder;
let tally = emptyTally();
for (let i = 0; i < count; i++) {
  const seed = first + i * step;
  addSeed(tally, await simulateSeed({ seed, check, mode: mode ?? drawMode(seed) }));
  if (tally.seeds < POST_EVERY && i + 1 < count) continue;
  parentPort!.postMessage(tally);
  tally = emptyTally();
}
