/** The thread of a program that speaks to its parameter servers and workers, while the main thread waits for a step. */
import { parentPort, workerData } from 'node:worker_threads';
import { ClusterError, COORDINATOR, processClock, TaskError, Tasks } from '@paceline/collectives';
import { Coordinator, MemberGone, type Written } from './coordinator.js';
import {
  ANSWERED,
  LINK_ENDED,
  type CoordinatorInit,
  type FromCoordinator,
  type LaterAnswer,
  type LaterCall,
  type ToCoordinator,
} from './link-protocol.js';
import { CODES } from './messages.js';

const init = workerData as CoordinatorInit;
const cells = new Int32Array(init.cells);
const { tasks: addresses, names, group, secret, transport: kind, port } = init;

process.on('exit', () => {
  Atomics.store(cells, LINK_ENDED, 1);
  Atomics.notify(cells, ANSWERED);
});

const roster = { tasks: addresses, names, group };
const tasks = new Tasks({ roster, self: COORDINATOR, secret, kind, clock: processClock });
const placesOf = (type: string): number[] => addresses.flatMap(({ task }, place) => (task.type === type ? [place] : []));
const coordinator = new Coordinator({ ...init, tasks, workers: placesOf('worker'), servers: placesOf('ps') });
const begun = coordinator.begin();
begun.catch(() => undefined); // whoever asks first is told

const floats = (buffer: SharedArrayBuffer): Float32Array => new Float32Array(buffer);
const written = ({ steps, parameters, slots }: Extract<ToCoordinator, { kind: 'write' }>): Written => ({
  steps,
  parameters: parameters && floats(parameters),
  slots: slots?.map(floats),
});

async function take(message: Exclude<ToCoordinator, { kind: 'end' }>): Promise<unknown> {
  await begun;
  switch (message.kind) {
    case 'describe':
      return coordinator.describe(message.spec, message.format);
    case 'open':
      return coordinator.open(message.opened);
    case 'close':
      return coordinator.close(message.model);
    case 'train':
      return coordinator.train(message.model, message.ranges);
    case 'write':
      return coordinator.write(message.model, written(message));
    case 'read':
      return coordinator.read(message.model, floats(message.into));
    case 'slots':
      return coordinator.readSlots(message.model, message.into.map(floats));
    case 'step':
      return coordinator.step(message.numbers, message.rate, message.buffers);
    case 'predict':
      return coordinator.predict(message.numbers, message.rowsAtOnce, message.buffers);
    case 'run':
      return coordinator.run(message.fn, message.args);
    case 'about':
      return coordinator.about();
  }
}

function faultOf(error: unknown): FromCoordinator {
  if (error instanceof MemberGone) return { kind: 'gone', places: error.places, message: error.message };
  if (error instanceof ClusterError) return { kind: 'cluster', message: error.message };
  if (error instanceof TaskError && error.code === CODES.function) return { kind: 'function', message: error.message };
  if (error instanceof TaskError && error.code === CODES.unsupported) {
    const [what, reason] = JSON.parse(error.message) as [string, string];
    return { kind: 'unsupported', what, reason };
  }
  return { kind: 'fault', message: error instanceof Error ? error.message : String(error) };
}

/** What a function in a worker has failed with, or the question whether the worker is back. */
function failedLater({ id, worker }: LaterCall, error: unknown, hasBegun: boolean): LaterAnswer {
  const isGone = error instanceof MemberGone && error.places.every((place) => place === placesOf('worker')[worker]);
  if (!hasBegun || (error instanceof MemberGone && !isGone)) return { kind: 'call-lost', id, fault: faultOf(error) };
  const { message } = error as Error;
  return { kind: 'call-failed', id, code: error instanceof TaskError ? error.code : 'INTERNAL', isGone, message };
}

async function takeLater(message: LaterCall): Promise<void> {
  const { id, worker } = message;
  let hasBegun = false;
  let answer: LaterAnswer;
  try {
    await begun;
    hasBegun = true;
    const value = message.kind === 'call' ? await coordinator.call(worker, message.call, message.deadlineMs) : undefined;
    if (message.kind === 'revive') await coordinator.revive(worker);
    answer = { kind: 'called', id, value };
  } catch (error) {
    answer = failedLater(message, error, hasBegun);
  }
  parentPort!.postMessage(answer);
}

let last: Promise<void> = Promise.resolve();
parentPort!.on('message', (message: ToCoordinator | LaterCall) => {
  if (message.kind === 'call' || message.kind === 'revive') return void takeLater(message);
  if (message.kind === 'end') {
    coordinator.end();
    setTimeout(() => process.exit(), 50); // what was said last leaves
    return undefined;
  }
  last = last
    .then(() => take(message))
    .then(
      (value) => port.postMessage({ kind: 'ok', value } satisfies FromCoordinator),
      (error: unknown) => port.postMessage(faultOf(error)),
    )
    .then(() => {
      Atomics.add(cells, ANSWERED, 1);
      Atomics.notify(cells, ANSWERED);
    });
  return undefined;
});
