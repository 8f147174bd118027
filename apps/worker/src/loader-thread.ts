/** The loader thread: opens the data of the run and fills the slots that it is told to, one after the other. See loader-protocol.ts. */
import { parentPort, workerData } from 'node:worker_threads';
import { openRunRows, type RunRows } from '@paceline/data';
import { createLogger } from '@paceline/runtime';
import { BatchPlan, fillBatch } from './batch-plan.js';
import {
  FLAG_FAILED,
  FLAG_FILLING,
  FLAG_READY,
  type Ask,
  type LoaderFailure,
  type LoaderInit,
  type LoaderStart,
  type SlotFailure,
  type ToLoader,
} from './loader-protocol.js';

const { spec, data, settings, flags, slots, port } = workerData as LoaderInit;
const tell = (start: LoaderStart): void => parentPort!.postMessage(start);
const plan = new BatchPlan({ spec, examples: data.trainExamples, heldOutExamples: data.heldOutExamples, format: data.format });
const waiting: Ask[] = [];
let isFilling = false;

function failureOf(error: unknown): LoaderFailure {
  const { code, name, message } = error as Error & { code?: unknown };
  return { code: typeof code === 'string' ? code : name, message };
}

function settle(slot: number, flag: number): void {
  Atomics.store(flags, slot, flag);
  Atomics.notify(flags, slot);
}

function fail(slot: number, error: unknown): void {
  port.postMessage(Object.assign({ slot }, failureOf(error)) satisfies SlotFailure);
  settle(slot, FLAG_FAILED);
}

// The compute thread blocks on a slot and handles no event: the loader must settle every slot before it ends.
process.once('exit', () => {
  for (const slot of slots.keys()) if (Atomics.load(flags, slot) === FLAG_FILLING) settle(slot, FLAG_FAILED);
});

async function fill({ train, evaluation }: RunRows, { slot, wanted }: Ask): Promise<void> {
  const into = slots[slot]!;
  if (wanted.kind === 'step') return fillBatch(plan, train, wanted, into);
  const [from, to] = [wanted.from - data.evalExamples, wanted.to - data.evalExamples];
  if (from >= 0) return train.gather(plan.heldOutRows(from, to), 0, to - from, into);
  const rows = Int32Array.from({ length: wanted.to - wanted.from }, (_, i) => wanted.from + i);
  return evaluation.gather(rows, 0, rows.length, into);
}

async function fillNext(rows: RunRows): Promise<void> {
  const next = waiting.shift();
  if (!next) return void (isFilling = false);
  try {
    await fill(rows, next);
    settle(next.slot, FLAG_READY);
  } catch (error) {
    fail(next.slot, error);
  }
  // By way of the event loop: what is urgent has come in meanwhile.
  setImmediate(() => void fillNext(rows));
}

const log = createLogger('worker', { thread: 'loader' });

try {
  const rows = await openRunRows(data, spec, settings, (reason) => log.warn({ dataset: spec.dataset }, reason));
  parentPort!.on('message', ({ asks, isUrgent }: ToLoader) => {
    if (isUrgent) waiting.unshift(...asks);
    else waiting.push(...asks);
    if (isFilling) return;
    isFilling = true;
    void fillNext(rows);
  });
  tell({ kind: 'ready' });
} catch (error) {
  tell(Object.assign({ kind: 'refused' as const }, failureOf(error)));
}
