/** Planted into a worker: its second compute thread ends once, when it is asked for round 5. The file that is named keeps it from happening again. */
import { existsSync, writeFileSync } from 'node:fs';
import { isMainThread, parentPort, workerData } from 'node:worker_threads';

const file = /** @type {string} */ (process.env['PLANTED_DEATH']);
if (!isMainThread && workerData?.thread === 1)
  parentPort?.on('message', (/** @type {{kind: string, round?: number}} */ { kind, round }) => {
    if (kind !== 'step' || round !== 5 || existsSync(file)) return;
    writeFileSync(file, '');
    process.exit(7); // of a thread: it ends that thread alone
  });
