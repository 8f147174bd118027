/**
 * `describeModel` in threads of their own, with a deadline and a memory limit, for processes that must go on whatever a person's topology
 * does to tf.js. Loading tf.js takes a second or more, so a thread is kept for the next model; one that fails, takes too long or too
 * much memory is ended, and the next model gets a new one.
 *
 *     wait for a place (fair over groups, bounded) -> a warm thread or a new one -> the model is built (deadline) -> warm again
 *
 * Only the building counts into the deadline that is the model's fault. No place or no thread in time is DescribeBusyError: nothing is
 * known about the model.
 */
import { existsSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import type { RowFormat } from '@paceline/spec';
import type { DescribedModel } from './describe.js';
import { FairTurns, QueueFullError, WaitOverError } from './fair-turns.js';
import { ModelError } from '../errors/model-error.js';
import { planModel, type ModelPart } from '../topology/plan-model.js';

export interface DescribeRequest {
  readonly spec: ModelPart;
  readonly format: RowFormat;
}

/** Posted by the thread for each request: `begun`, then one of the others. */
export type DescribeReply =
  | { readonly kind: 'begun' }
  | { readonly kind: 'described'; readonly description: DescribedModel }
  | { readonly kind: 'refused'; readonly path: string; readonly message: string }
  | { readonly kind: 'failed'; readonly message: string };

export interface DescribeInThreadOptions {
  /** The caller, for example a team: free places go to the groups in turn. */
  readonly group?: string;
  /** For a place, and for the thread to load. */
  readonly waitMs?: number;
  /** For the building of the model alone. */
  readonly deadlineMs?: number;
  readonly heapMegabytes?: number;
}

/** No thread was free, or ready, in time: nothing is known about the model. */
export class DescribeBusyError extends Error {
  readonly code = 'DESCRIBE_BUSY';
}

const MAX_THREADS = 2;
const MAX_WAITING_PER_GROUP = 32;
const MAX_WAITING = 128;
const DEFAULT_WAIT_MS = 20_000;
const DEFAULT_DEADLINE_MS = 10_000;
/** tf.js itself takes about 60 MB. */
const DEFAULT_HEAP_MEGABYTES = 256;
const STACK_MEGABYTES = 4;
/** What tf.js remembers of old models is let go with the thread. */
const MODELS_PER_THREAD = 200;
const IDLE_MS = 300_000;

/** A thread without work, and when it is ended if none comes. */
interface Warm {
  readonly worker: Worker;
  readonly heapMegabytes: number;
  readonly models: number;
  readonly timer: NodeJS.Timeout;
}

const turns = new FairTurns(MAX_THREADS, MAX_WAITING_PER_GROUP, MAX_WAITING);
const warm: Warm[] = [];

/**
 * @throws ModelError also when the deadline passes or the memory does not suffice while the model is built
 * @throws DescribeBusyError
 */
export async function describeModelInThread(
  spec: ModelPart,
  format: RowFormat,
  options: DescribeInThreadOptions = {},
): Promise<DescribedModel> {
  const { group = '', waitMs = DEFAULT_WAIT_MS, deadlineMs = DEFAULT_DEADLINE_MS, heapMegabytes = DEFAULT_HEAP_MEGABYTES } = options;
  const { root } = planModel(spec, format); // what can be refused without tf.js takes no place
  try {
    return await turns.take(group, waitMs, async () => {
      const thread = takeThread(heapMegabytes);
      const end = await inThread(thread.worker, { spec, format }, root, { waitMs, deadlineMs, heapMegabytes });
      if (end.isUsable && thread.models + 1 < MODELS_PER_THREAD) keepThread(thread.worker, heapMegabytes, thread.models + 1);
      else await thread.worker.terminate();
      if ('description' in end) return end.description;
      throw end.error;
    });
  } catch (error) {
    if (error instanceof QueueFullError) throw new DescribeBusyError('too many models are waiting to be checked: try again shortly');
    if (error instanceof WaitOverError) throw new DescribeBusyError(`other models were being checked for ${waitMs} ms: try again shortly`);
    throw error;
  }
}

/** Threads that wait for a model: for tests. */
export const warmThreads = (): number => warm.length;

function takeThread(heapMegabytes: number): { worker: Worker; models: number } {
  const at = warm.findIndex((thread) => thread.heapMegabytes === heapMegabytes);
  const [found] = at < 0 ? [] : warm.splice(at, 1);
  if (found) {
    clearTimeout(found.timer);
    forget(found.worker);
    found.worker.ref();
    return found;
  }
  const worker = new Worker(entry(), {
    execArgv: [],
    env: {},
    resourceLimits: { maxOldGenerationSizeMb: heapMegabytes, maxYoungGenerationSizeMb: 32, stackSizeMb: STACK_MEGABYTES },
  });
  return { worker, models: 0 };
}

/** Our own listeners: a worker has some of Node's, without which nothing arrives any more. */
function forget(worker: Worker): void {
  for (const event of ['message', 'error', 'exit']) worker.removeAllListeners(event);
  // A thread that is being ended may still run out of memory: an error that nobody hears would end the process.
  worker.on('error', () => undefined);
}

function keepThread(worker: Worker, heapMegabytes: number, models: number): void {
  const drop = (): void => {
    const at = warm.findIndex((thread) => thread.worker === worker);
    if (at >= 0) clearTimeout(warm.splice(at, 1)[0]!.timer);
    void worker.terminate();
  };
  const timer = setTimeout(drop, IDLE_MS);
  timer.unref();
  worker.unref(); // it keeps no process alive
  worker.once('error', drop);
  worker.once('exit', drop);
  warm.push({ worker, heapMegabytes, models, timer });
  // No more are kept than run at once.
  if (warm.length > MAX_THREADS) {
    const oldest = warm.shift()!;
    clearTimeout(oldest.timer);
    forget(oldest.worker);
    void oldest.worker.terminate();
  }
}

type End = { readonly isUsable: boolean } & ({ readonly description: DescribedModel } | { readonly error: Error });

function inThread(
  worker: Worker,
  request: DescribeRequest,
  root: string,
  { waitMs, deadlineMs, heapMegabytes }: { waitMs: number; deadlineMs: number; heapMegabytes: number },
): Promise<End> {
  return new Promise<End>((resolve) => {
    let timer: NodeJS.Timeout;
    const finish = (end: End): void => {
      clearTimeout(timer);
      forget(worker);
      resolve(end);
    };
    const fail = (error: Error): void => finish({ isUsable: false, error });
    timer = setTimeout(
      () => fail(new DescribeBusyError(`no thread was ready to check the model within ${waitMs} ms: try again shortly`)),
      waitMs,
    );
    const take: Readonly<Record<DescribeReply['kind'], (reply: never) => void>> = {
      begun: () => {
        clearTimeout(timer);
        timer = setTimeout(
          () => fail(new ModelError(root, `the model could not be built within ${deadlineMs} ms: make it simpler`)),
          deadlineMs,
        );
      },
      described: ({ description }: { description: DescribedModel }) => finish({ isUsable: true, description }),
      refused: ({ path, message }: { path: string; message: string }) => finish({ isUsable: true, error: new ModelError(path, message) }),
      failed: ({ message }: { message: string }) => fail(new Error(`describing a model failed: ${message}`)),
    };
    worker.on('message', (reply: DescribeReply) => take[reply.kind](reply as never));
    worker.once('error', (cause: NodeJS.ErrnoException) => {
      if (cause.code !== 'ERR_WORKER_OUT_OF_MEMORY') return fail(cause);
      fail(new ModelError(root, `building the model takes more than ${heapMegabytes} MB: make it simpler`, { cause }));
    });
    worker.once('exit', (status) => fail(new Error(`the thread that describes models ended with status ${status} and no answer`)));
    worker.postMessage(request);
  });
}

/** Threads run JavaScript: when this file is run from its source (unit tests), the built neighbour is taken. */
function entry(): URL {
  const beside = new URL('./describe-worker.js', import.meta.url);
  if (existsSync(beside)) return beside;
  const built = new URL('../../dist/describe/describe-worker.js', import.meta.url);
  if (!existsSync(built)) throw new Error('libs/engine is not built: run npm run build');
  return built;
}
