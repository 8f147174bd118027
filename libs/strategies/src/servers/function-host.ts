/** The function thread of a worker, seen from the thread that has its sockets. */
import { Worker } from 'node:worker_threads';
import { TaskError } from '@paceline/collectives';
import type { Encoded } from '../replicas/per-replica.js';
import { threadEntry } from '../threads/thread-entry.js';
import type { FromFunctions, FunctionCall, ServedValues, ToFunctions } from './function-protocol.js';
import { CODES } from './messages.js';

export interface FunctionSurroundings {
  read(model: number): Promise<ServedValues>;
  push(model: number, rate: number, gradient: Float32Array): Promise<void>;
}

interface Running {
  resolve(value: Encoded): void;
  reject(error: Error): void;
}

export class FunctionHost {
  private worker: Worker | undefined;
  private running: Running | undefined;

  constructor(private readonly surroundings: FunctionSurroundings) {}

  /** @throws TaskError FUNCTION, REPLICA for what the function throws, THREAD when it ends the thread */
  call(call: FunctionCall): Promise<Encoded> {
    if (this.running) return Promise.reject(new TaskError(CODES.thread, 'a worker takes one function at a time'));
    const worker = (this.worker ??= this.started());
    return new Promise<Encoded>((resolve, reject) => {
      this.running = { resolve, reject };
      worker.postMessage({ kind: 'call', call } satisfies ToFunctions);
    }).finally(() => (this.running = undefined));
  }

  async close(): Promise<void> {
    const { worker } = this;
    this.worker = undefined;
    await worker?.terminate();
  }

  private started(): Worker {
    const worker = new Worker(threadEntry('servers/function-thread.js'), { execArgv: [] });
    let why = 'it was ended';
    worker.on('error', (error) => (why = error.message));
    worker.on('exit', () => {
      if (this.worker === worker) this.worker = undefined;
      this.running?.reject(new TaskError(CODES.thread, `the function has ended its thread: ${why}`));
    });
    worker.on('message', (message: FromFunctions) => void this.heard(worker, message));
    return worker;
  }

  private async heard(worker: Worker, message: FromFunctions): Promise<void> {
    if (message.kind === 'result') return this.running?.resolve(message.value);
    if (message.kind === 'failed') return this.running?.reject(new TaskError(message.code, message.message));
    const { id, model } = message;
    const tell = (said: ToFunctions): void => worker.postMessage(said);
    try {
      if (message.kind === 'read') tell({ kind: 'read', id, served: await this.surroundings.read(model) });
      else {
        await this.surroundings.push(model, message.rate, message.gradient);
        tell({ kind: 'done', id });
      }
    } catch (error) {
      const code = error instanceof TaskError ? error.code : CODES.thread;
      tell({ kind: 'refused', id, code, message: (error as Error).message });
    }
    return undefined;
  }
}
