/** The thread of a worker in which functions of a coordinator's program run, one after the other. What it keeps lives as long as the worker. */
import { parentPort } from 'node:worker_threads';
import { startBackend } from '@paceline/engine';
import * as tfc from '@tensorflow/tfjs-core';
import type { WorkerContext, ServedParameters } from '../coordinator/worker-context.js';
import { decode, encode, mapLeaves } from '../replicas/per-replica.js';
import type { NamedFunction } from '../replicas/replica-function.js';
import type { Argument, DatasetSource, FromFunctions, FunctionCall, ServedValues, ToFunctions } from './function-protocol.js';
import { CODES } from './messages.js';

type Called = (context: WorkerContext, ...args: unknown[]) => unknown;

class Refused extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

const backend = startBackend('wasm');
const state: Record<string, unknown> = {};
const datasets = new Map<number, AsyncIterableIterator<unknown>>();
const waiting = new Map<number, { resolve(served: ServedValues | undefined): void; reject(error: Error): void }>();
let asked = 0;

const say = (message: FromFunctions): void => parentPort!.postMessage(message);

async function functionOf({ module, name }: NamedFunction): Promise<Called> {
  let loaded: Readonly<Record<string, unknown>>;
  try {
    loaded = (await import(module)) as Readonly<Record<string, unknown>>;
  } catch (error) {
    throw new Refused(CODES.function, `${name} of ${module}: the module cannot be loaded in the worker: ${(error as Error).message}`);
  }
  const found = loaded[name];
  if (typeof found === 'function') return found as Called;
  throw new Refused(CODES.function, `${name} of ${module}: the module exports ${Object.keys(loaded).join(', ') || 'nothing'}`);
}

type Question = { readonly kind: 'read'; readonly model: number } | Omit<Extract<FromFunctions, { kind: 'push' }>, 'id'>;

function ask(question: Question): Promise<ServedValues | undefined> {
  const id = ++asked;
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject });
    say({ ...question, id });
  });
}

/** A model as a function sees it: the present parameters of the servers, and updates of them. */
function servedModel(model: number, usualRate: number, made: tfc.Tensor[]): ServedParameters {
  let variables: ServedValues['variables'] | undefined;
  let length = 0;
  return {
    read: async () => {
      const served = (await ask({ kind: 'read', model }))!;
      variables = served.variables;
      length = served.values.length;
      return Object.fromEntries(
        served.variables.map(({ path, shape, offset, length: size }) => {
          const tensor = tfc.tensor(served.values.slice(offset, offset + size), [...shape], 'float32');
          made.push(tensor);
          return [path, tensor];
        }),
      );
    },
    applyGradients: async (gradients, learningRate = usualRate) => {
      if (!variables) throw new Error('applyGradients needs the parameters that the gradients are of: await read() before');
      const known = new Set(variables.map(({ path }) => path));
      const unknown = Object.keys(gradients).filter((path) => !known.has(path));
      if (unknown.length > 0)
        throw new TypeError(`applyGradients: there is no parameter ${unknown.join(', ')}; there are ${[...known].join(', ')}`);
      const gradient = new Float32Array(length);
      const missing = variables.filter(({ path, isTrained }) => isTrained && !(gradients[path] instanceof tfc.Tensor));
      if (missing.length > 0) throw new TypeError(`applyGradients: no gradient of ${missing.map(({ path }) => path).join(', ')}`);
      for (const { path, offset, length: size, isTrained } of variables) {
        if (!isTrained) continue;
        const values = gradients[path]!.dataSync<'float32'>();
        if (values.length !== size)
          throw new TypeError(`applyGradients: the gradient of ${path} has ${values.length} elements, and it has ${size}`);
        gradient.set(values, offset);
      }
      await ask({ kind: 'push', model, rate: learningRate, gradient });
    },
  };
}

async function datasetOf({ id, args, ...fn }: DatasetSource, context: WorkerContext): Promise<AsyncIterableIterator<unknown>> {
  const known = datasets.get(id);
  if (known) return known;
  const source = (await (
    await functionOf(fn)
  )(context, ...args.map((arg) => decode(arg)))) as Record<PropertyKey, (() => unknown) | undefined>;
  const begin = source['iterator'] ?? source[Symbol.asyncIterator] ?? source[Symbol.iterator];
  if (typeof begin !== 'function') throw new TypeError(`the dataset of ${fn.name} cannot be iterated`);
  const iterator = (await begin.call(source)) as AsyncIterableIterator<unknown>;
  datasets.set(id, iterator);
  return iterator;
}

async function run(call: FunctionCall): Promise<FromFunctions> {
  (await backend).activate();
  const made: tfc.Tensor[] = [];
  try {
    const { workerIndex, numWorkers } = call;
    const context: WorkerContext = { workerIndex, numWorkers, tf: tfc, state };
    const given = async (arg: Argument): Promise<unknown> => {
      if (arg.kind === 'data') return decode(arg.value, (tensor) => made.push(tensor));
      return arg.kind === 'model' ? servedModel(arg.model, arg.rate, made) : datasetOf(arg.dataset, context);
    };
    const fn = await functionOf(call);
    const result: unknown = await fn(context, ...(await Promise.all(call.args.map(given))));
    const value = encode(result, undefined, 'the result');
    mapLeaves(result, (leaf) => (leaf instanceof tfc.Tensor ? made.push(leaf) : 0));
    return { kind: 'result', value };
  } catch (error) {
    const code = error instanceof Refused ? error.code : CODES.replica;
    return { kind: 'failed', code, message: error instanceof Error ? error.message : String(error) };
  } finally {
    for (const tensor of made) if (!tensor.isDisposed && !tensor.kept && !(tensor instanceof tfc.Variable)) tensor.dispose();
  }
}

parentPort!.on('message', (message: ToFunctions) => {
  if (message.kind === 'call') return void run(message.call).then(say);
  const asker = waiting.get(message.id);
  waiting.delete(message.id);
  if (message.kind === 'refused') asker?.reject(new Refused(message.code, message.message));
  else asker?.resolve(message.kind === 'read' ? message.served : undefined);
  return undefined;
});
