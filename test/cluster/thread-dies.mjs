/**
 * Planted into a worker: its second compute thread ends once, when it is asked for round 5, or with PLANTED_AT `evaluate` when it is asked to measure the parameters that round 5
 * begins with. The file that is named keeps it from happening again.
 */
import { existsSync, writeFileSync } from 'node:fs';
import { isMainThread, parentPort, workerData } from 'node:worker_threads';

const file = /** @type {string} */ (process.env['PLANTED_DEATH']);
const at = process.env['PLANTED_AT'] ?? 'step';
if (!isMainThread && workerData?.thread === 1)
  parentPort?.on('message', (/** @type {{kind: string, round?: number, generation?: number}} */ { kind, round, generation }) => {
    if (kind !== at || (round ?? generation) !== 5 || existsSync(file)) return;
    writeFileSync(file, '');
    process.exit(7); // of a thread: it ends that thread alone
  });
