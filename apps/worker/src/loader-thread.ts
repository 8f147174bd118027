/** The loader thread: gathers batches into the slots it is told to. See batch-loader.ts. */
import { parentPort, workerData } from 'node:worker_threads';
import { openDataset } from '@paceline/data';
import type { LoaderInit, ToLoader } from './batch-loader.js';
import { BatchPlan, fillBatch } from './batch-plan.js';

const init = workerData as LoaderInit;
const plan = new BatchPlan(init.plan);
const flags = new Int32Array(init.flags);
const slots = init.slots.map(({ x, y }) => ({ x: new Float32Array(x), y: new Int32Array(y) }));
const dataset = await openDataset(init.dataset);

parentPort!.on('message', (message: ToLoader) => {
  if (message.kind === 'stop') return void parentPort!.close();
  const { x, y } = slots[message.slot]!;
  fillBatch(plan, dataset.train, message.round, message.replica, x, y);
  Atomics.store(flags, message.slot, 1);
  Atomics.notify(flags, message.slot);
});
