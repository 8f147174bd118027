/**
 * `describeModel` in a thread of its own, with a deadline and a memory limit, for processes that must go on whatever a
 * person's topology does to tf.js. At most MAX_THREADS run at once; more wait for their turn within their deadline.
 */
import { existsSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import type { ModelDescription } from '@paceline/spec';
import type { DescribeOptions, ModelPart } from './describe.js';
import { ModelError } from './model-error.js';

/** Posted by the thread, once. */
export type DescribeReply =
  | { readonly kind: 'described'; readonly description: ModelDescription }
  | { readonly kind: 'refused'; readonly path: string; readonly message: string }
  | { readonly kind: 'failed'; readonly message: string };

export interface DescribeInThreadOptions extends DescribeOptions {
  /** For everything, the wait for a free thread included. */
  readonly deadlineMs?: number;
  readonly heapMegabytes?: number;
}

/** No thread was free before the deadline: nothing is known about the model. */
export class DescribeBusyError extends Error {
  readonly code = 'DESCRIBE_BUSY';
}

const MAX_THREADS = 2;
const DEFAULT_DEADLINE_MS = 10_000;
/** tf.js itself takes about 60 MB. */
const DEFAULT_HEAP_MEGABYTES = 256;
const STACK_MEGABYTES = 4;

let running = 0;
const waiting: (() => void)[] = [];

/**
 * @throws ModelError also when the deadline passes or the memory does not suffice while the model is built
 * @throws DescribeBusyError
 */
export async function describeModelInThread(spec: ModelPart, options: DescribeInThreadOptions = {}): Promise<ModelDescription> {
  const { deadlineMs = DEFAULT_DEADLINE_MS, heapMegabytes = DEFAULT_HEAP_MEGABYTES, ...describeOptions } = options;
  const endMs = performance.now() + deadlineMs;
  await turn(deadlineMs);
  try {
    return await inThread(spec, describeOptions, Math.max(1, endMs - performance.now()), deadlineMs, heapMegabytes);
  } finally {
    const next = waiting.shift();
    if (next) next();
    else running--;
  }
}

/** Resolves when this caller may start a thread; the slot is handed over by the one that ends. */
function turn(deadlineMs: number): Promise<void> {
  if (running < MAX_THREADS) {
    running++;
    return Promise.resolve();
  }
  return new Promise((resolve, reject) => {
    const mine = (): void => {
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(() => {
      waiting.splice(waiting.indexOf(mine), 1);
      reject(new DescribeBusyError(`${MAX_THREADS} other models were being checked for ${deadlineMs} ms: try again`));
    }, deadlineMs);
    waiting.push(mine);
  });
}

function inThread(
  spec: ModelPart,
  options: DescribeOptions,
  leftMs: number,
  deadlineMs: number,
  heapMegabytes: number,
): Promise<ModelDescription> {
  const root = typeof spec.model === 'string' ? 'model' : 'model.topology';
  const worker = new Worker(entry(), {
    workerData: { spec, options },
    execArgv: [],
    env: {},
    resourceLimits: { maxOldGenerationSizeMb: heapMegabytes, maxYoungGenerationSizeMb: 32, stackSizeMb: STACK_MEGABYTES },
  });
  return new Promise<ModelDescription>((resolve, reject) => {
    const timer = setTimeout(
      () => reject(new ModelError(root, `the model could not be built within ${deadlineMs} ms: make it simpler`)),
      leftMs,
    );
    worker.once('message', (reply: DescribeReply) => {
      clearTimeout(timer);
      if (reply.kind === 'described') resolve(reply.description);
      else if (reply.kind === 'refused') reject(new ModelError(reply.path, reply.message));
      else reject(new Error(`describing a model failed: ${reply.message}`));
    });
    worker.once('error', (cause: NodeJS.ErrnoException) => {
      clearTimeout(timer);
      if (cause.code !== 'ERR_WORKER_OUT_OF_MEMORY') return reject(cause);
      reject(new ModelError(root, `building the model takes more than ${heapMegabytes} MB: make it simpler`, { cause }));
    });
    worker.once('exit', (status) => {
      clearTimeout(timer);
      // Without effect when the reply or the error came first.
      reject(new Error(`the thread that describes models ended with status ${status} and no answer`));
    });
  }).finally(() => worker.terminate());
}

/** Threads run JavaScript: when this file is run from its source (unit tests), the built neighbour is taken. */
function entry(): URL {
  const beside = new URL('./describe-worker.js', import.meta.url);
  if (existsSync(beside)) return beside;
  const built = new URL('../dist/describe-worker.js', import.meta.url);
  if (!existsSync(built)) throw new Error('libs/engine is not built: run npm run build');
  return built;
}
