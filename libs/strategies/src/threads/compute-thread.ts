/**
 * A compute thread: waits for commands in shared memory, and computes its replicas of the models that are open. It answers messages, and in a step
 * says only what failed. See cells.ts for who waits for what.
 */
import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { ARRIVED, arrive, COMMAND, DONE, END, ENDED, FAILED, KIND, MODEL, PROGRESS, REDUCED, STEP, SUMMED, waitFor } from './cells.js';
import type { FromThread, ThreadInit, ToGroup, ToThread } from './protocol.js';
import type { ReplicaSession } from './replica-session.js';

const { index, threads, cells: memory, port, collect } = workerData as ThreadInit;
const cells = new Int32Array(memory);
const models = new Map<number, ReplicaSession>();
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
  const [engine, session] = await Promise.all([import('@paceline/engine'), import('./replica-session.js')]);
  return Object.assign({}, engine, session);
};
let loaded: Awaited<ReturnType<typeof load>> | undefined;

function failed(error: unknown, replica?: number): Extract<FromThread, { kind: 'failed' }> {
  const { message } = error instanceof Error ? error : new Error(String(error));
  const where = replica === undefined ? {} : { replica, layer: loaded?.failedLayer(error) };
  return Object.assign(
    { kind: 'failed' as const, message, path: loaded && error instanceof loaded.ModelError ? error.path : undefined },
    where,
  );
}

async function take(message: ToThread): Promise<FromThread> {
  switch (message.kind) {
    case 'describe':
      return { kind: 'ok', description: await loaded!.describeModel(loaded!.engineSpec(message.spec), message.format) };
    case 'open':
      models.set(message.model, await loaded!.ReplicaSession.open(message, index, threads));
      break;
    case 'buffers':
      models.get(message.model)!.useBuffers(message.buffers);
      break;
    case 'freeze':
      models.get(message.model)!.freeze(message.paths);
      break;
    case 'close':
      models.get(message.model)?.close();
      models.delete(message.model);
      break;
  }
  return { kind: 'ok' };
}

async function messages(): Promise<void> {
  for (let next = receiveMessageOnPort(parentPort!); next; next = receiveMessageOnPort(parentPort!)) {
    const message = next.message as ToThread;
    say(await take(message).catch((error: unknown) => failed(error)));
  }
}

/** @param steps so far, with this one */
function step(steps: number): ReplicaSession | undefined {
  const arrivals = Math.imul(steps, threads);
  const session = models.get(Atomics.load(cells, MODEL))!;
  let replica: number | undefined;
  try {
    session.load();
    for (replica of session.replicas) {
      session.replica(replica);
      Atomics.add(cells, PROGRESS, 1);
    }
  } catch (error) {
    const failure = failed(error, replica);
    say(failure);
    if (collect) tellGroup(failure);
    Atomics.store(cells, FAILED, 1);
  }
  arrive(cells, ARRIVED, arrivals);
  waitFor(cells, ARRIVED, arrivals);
  if (collect) reduce(session, steps, arrivals);
  if (Atomics.load(cells, FAILED) === 1) return undefined;
  session.updateChunks();
  Atomics.add(cells, PROGRESS, 1);
  return session;
}

/** Has the sums of this process added to those of the others. */
function reduce(session: ReplicaSession, steps: number, arrivals: number): void {
  if (Atomics.load(cells, FAILED) === 0) session.sumNodes();
  arrive(cells, SUMMED, arrivals);
  if (index === 0) {
    waitFor(cells, SUMMED, arrivals);
    tellGroup({ kind: 'reduce', model: Atomics.load(cells, MODEL), steps });
  }
  waitFor(cells, REDUCED, steps);
}

async function run(): Promise<void> {
  loaded = await load();
  let steps = 0;
  for (let command = 1; ; command = (command + 1) | 0) {
    waitFor(cells, COMMAND, command);
    const kind = Atomics.load(cells, KIND);
    if (kind === END) return;
    const done = Math.imul(command, threads);
    if (kind === STEP) {
      steps = (steps + 1) | 0;
      const session = step(steps);
      arrive(cells, DONE, done);
      if (!session) continue;
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
