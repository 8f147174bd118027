/**
 * A compute thread: waits for commands in shared memory, and computes its replicas of the models that are open. It answers messages, and in a step
 * says only what failed. See cells.ts for who waits for what.
 */
import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import {
  ARRIVED,
  arrive,
  COMMAND,
  DONE,
  END,
  ENDED,
  FAILED,
  GATHERED,
  KIND,
  MODEL,
  PREDICT,
  PROGRESS,
  REDUCED,
  setCell,
  STEP,
  SUMMED,
  UPDATED,
  waitFor,
} from './cells.js';
import type { FromThread, ThreadInit, ToGroup, ToThread } from './protocol.js';
import type { DeviceFunctions, DeviceLink } from '../devices/device-thread.js';
import type { ReplicaFunctions } from './replica-functions.js';
import type { ModelSession } from './model-session.js';

const { index, threads, cells: memory, port, collect, engine, device } = workerData as ThreadInit;
const cells = new Int32Array(memory);
const models = new Map<number, ModelSession>();
let functions: ReplicaFunctions | DeviceFunctions | undefined;
/** The process that computes the replicas of this thread. */
let link: DeviceLink | undefined;
const say = (message: FromThread): void => port.postMessage(message);
const tellGroup = (message: ToGroup): void => collect!.postMessage(message);

// An engine starts asynchronously: something has to keep this thread's loop alive meanwhile. It keeps no process alive.
const alive = setInterval(() => undefined, 2 ** 30);
process.on('exit', () => {
  Atomics.store(cells, ENDED, 1);
  for (const cell of [ARRIVED, DONE]) Atomics.notify(cells, cell);
});

/** Loaded when it can be told that they are missing. */
const load = async () => {
  const [engines, session, stage, own, devices] = await Promise.all([
    import('@paceline/engine'),
    import('./replica-session.js'),
    import('./stage-session.js'),
    import('./replica-functions.js'),
    import('../devices/device-thread.js'),
  ]);
  return { ...engines, ...session, ...stage, ...own, ...devices };
};
let loaded: Awaited<ReturnType<typeof load>> | undefined;

function failed(error: unknown, replica?: number): Extract<FromThread, { kind: 'failed' }> {
  const { message } = error instanceof Error ? error : new Error(String(error));
  const elsewhere = loaded?.failedOnDevice(error);
  if (elsewhere) return { kind: 'failed', message, ...elsewhere };
  const where = replica === undefined ? {} : { replica, layer: loaded?.failedLayer(error) };
  return Object.assign(
    { kind: 'failed' as const, message, path: loaded && error instanceof loaded.ModelError ? error.path : undefined },
    where,
  );
}

async function take(message: ToThread): Promise<FromThread> {
  switch (message.kind) {
    case 'describe':
      return { kind: 'ok', ...(await loaded!.describe(message)) };
    case 'open':
      models.set(
        message.model,
        message.pipeline
          ? await loaded!.StageSession.open(message, message.pipeline, index, () => Atomics.load(cells, FAILED) !== 0)
          : link
            ? await loaded!.DeviceSession.openAt(link, message, index, threads)
            : await loaded!.ReplicaSession.open(message, index, threads, engine),
      );
      break;
    case 'buffers':
      models.get(message.model)!.useBuffers(message.buffers, message.set);
      break;
    case 'freeze':
      models.get(message.model)!.freeze(message.paths);
      break;
    case 'average':
      models.get(message.model)!.average?.(message);
      break;
    case 'fragment':
      models.get(message.model)!.exchangeFragment?.(message);
      break;
    case 'load':
      functions ??= link
        ? loaded!.deviceFunctions(link, { cells, index, threads }, message)
        : loaded!.ReplicaFunctions.start({ cells, index, threads, tellGroup: collect && tellGroup, engine }, message);
      return functions.load(message);
    case 'call':
      return functions!.call(message);
    case 'counts':
      return { kind: 'ok', counts: models.get(message.model)?.counts };
    case 'close':
      models.get(message.model)?.close();
      models.delete(message.model);
      break;
  }
  return { kind: 'ok' };
}

const moved = (): void => void Atomics.add(cells, PROGRESS, 1);

async function messages(): Promise<void> {
  for (let next = receiveMessageOnPort(parentPort!); next; next = receiveMessageOnPort(parentPort!)) {
    const message = next.message as ToThread;
    say(await take(message).catch((error: unknown) => failed(error)));
  }
}

/**
 * A step, or a prediction, which ends when all outputs lie in their buffers.
 * @param command its number
 * @param steps and predictions so far, with this one
 * @returns undefined where a replica has failed
 */
async function compute(kind: number, command: number, steps: number): Promise<ModelSession | undefined> {
  const arrivals = Math.imul(steps, threads);
  const session = models.get(Atomics.load(cells, MODEL))!;
  session.useSet(Atomics.load(cells, setCell(command)));
  // Replicas that train alone meet those of other processes in averages alone, and those of workers in functions alone.
  const meets = collect !== undefined && !session.isServed && (kind === PREDICT || !session.isLocal);
  let replica: number | undefined;
  if (Atomics.load(cells, FAILED) === ((command - 1) | 0)) {
    session.ended?.(kind);
    arrive(cells, ARRIVED, arrivals); // the step before has failed: this one is left out
    return undefined;
  }
  try {
    if (kind === PREDICT || !session.isLocal) session.load();
    for (replica of session.replicas) {
      const computing = kind === STEP ? session.replica(replica, moved) : session.predict(replica, moved);
      if (computing) await computing; // by the process of a device
      moved();
    }
  } catch (error) {
    const failure = failed(error, session.microBatch ?? replica);
    say(failure);
    if (meets) tellGroup(failure);
    Atomics.store(cells, FAILED, command);
  }
  session.ended?.(kind);
  arrive(cells, ARRIVED, arrivals);
  waitFor(cells, ARRIVED, arrivals);
  if (meets) meetOthers(kind, session);
  if (Atomics.load(cells, FAILED) !== 0) return undefined;
  if (kind === PREDICT) return session;
  if (session.isServed) {
    session.sumNodes?.();
    return session;
  }
  session.updateChunks();
  Atomics.add(cells, PROGRESS, 1);
  if (session.isSharded) gather();
  return Atomics.load(cells, FAILED) !== 0 ? undefined : session;
}

/** Steps that were not left out, and whose parameters were to be gathered. */
let gathers = 0;

/** Gets the parameters that other processes have updated. */
function gather(): void {
  gathers = (gathers + 1) | 0;
  const arrivals = Math.imul(gathers, threads);
  arrive(cells, UPDATED, arrivals);
  if (index === 0) {
    waitFor(cells, UPDATED, arrivals);
    tellGroup({ kind: 'gather', model: Atomics.load(cells, MODEL), steps: gathers });
  }
  waitFor(cells, GATHERED, gathers);
}

/** Steps and predictions in which this process has met the others. */
let meetings = 0;

/** Has the sums of this process added to those of the others, or gets the rows that they have predicted. */
function meetOthers(kind: number, session: ModelSession): void {
  meetings = (meetings + 1) | 0;
  const [steps, arrivals] = [meetings, Math.imul(meetings, threads)];
  if (kind === STEP && Atomics.load(cells, FAILED) === 0) session.sumNodes?.();
  arrive(cells, SUMMED, arrivals);
  if (index === 0) {
    waitFor(cells, SUMMED, arrivals);
    tellGroup({ kind: kind === STEP ? 'reduce' : 'predicted', model: Atomics.load(cells, MODEL), steps });
  }
  waitFor(cells, REDUCED, steps);
}

async function run(): Promise<void> {
  loaded = await load();
  if (device) link = new loaded.DeviceLink(device);
  let steps = 0;
  for (let command = 1; ; command = (command + 1) | 0) {
    waitFor(cells, COMMAND, command);
    const kind = Atomics.load(cells, KIND);
    if (kind === END) return;
    const done = Math.imul(command, threads);
    if (kind === STEP || kind === PREDICT) {
      steps = (steps + 1) | 0;
      const session = await compute(kind, command, steps);
      arrive(cells, DONE, done);
      if (!session || kind === PREDICT) continue;
      waitFor(cells, DONE, done);
      session.loadEarly();
    } else {
      await messages();
      arrive(cells, DONE, done);
    }
  }
}

try {
  await run();
} catch (error) {
  say(failed(error));
  throw error;
} finally {
  clearInterval(alive);
}
