/**
 * The webgpu engine as its users see it: synchronous like the others. What a GPU computed can only be waited for asynchronously, so it is waited
 * for in a thread of its own (gpu-thread.ts), and a call here blocks its thread until that one has answered (decisions/022-webgpu.md).
 *
 *     STARTING ── ready ──> IDLE ── a call ──> WAITING ── answered ──> IDLE
 *         │ refused           │ dispose           │ no answer in time, or the thread has ended
 *         └─────────────> ENDED <────────────────┘   every later call fails with the reason
 */
import { existsSync } from 'node:fs';
import { MessageChannel, receiveMessageOnPort, Worker, type MessagePort } from 'node:worker_threads';
import type { Layout } from '@paceline/learning';
import type { Batch, Engine, EngineDevice, EngineOptions, StepRequest, Sums } from '../../engine.js';
import { EngineUnavailableError } from '../../errors/engine-unavailable.js';
import type { Kept } from '../../leaks/leak-trace.js';
import { messageOf } from '../../errors/model-error.js';
import {
  CELL_ANSWERS,
  CELL_ENDED,
  CELLS,
  type GpuAnswer,
  type GpuRequest,
  type GpuThreadInit,
  type GpuThreadStart,
} from './thread-protocol.js';
import { fromTransfer } from './transferred-error.js';

const START_DEADLINE_MS = 50_000;
/** For a thread that has refused to end by itself, after which its caller may end and take it along. */
const END_DEADLINE_MS = 5_000;
/**
 * At least so long is waited for an answer: requests are not all steps, and the first one compiles the shaders. That a worker makes progress is
 * the coordinator's to judge.
 */
const LEAST_ANSWER_DEADLINE_MS = 60_000;

/** @param stepDeadlineMs of the run */
export const answerDeadlineMs = (stepDeadlineMs = 0): number => Math.max(stepDeadlineMs, LEAST_ANSWER_DEADLINE_MS);

/**
 * @param deadlineMs for each answer
 * @throws EngineUnavailableError, ModelError
 */
export async function startThreadEngine(
  { spec, description, format, layout, webgpuPackage }: EngineOptions,
  deadlineMs = answerDeadlineMs(spec.stepDeadlineMs),
): Promise<Engine> {
  const { port1, port2 } = new MessageChannel();
  const cells = new Int32Array(new SharedArrayBuffer(CELLS * 4));
  const init: GpuThreadInit = { spec: trainedPart(spec), description, format, webgpuPackage, cells, port: port2 };
  const thread = new Worker(entry(), { workerData: init, transferList: [port2], execArgv: [] });
  const started = await startOf(thread).catch(async (error: unknown) => {
    await windingDown(thread, port1);
    throw error;
  });
  thread.unref(); // who forgets to dispose of an engine ends all the same
  return new ThreadEngine(thread, port1, cells, layout, deadlineMs, started);
}

/** What the other thread needs of a spec. */
export function trainedPart({
  model,
  loss,
  losses,
  lossWeights,
  lossFromLogits,
  lossOptions,
  metrics,
  metricOptions,
  engine,
  seed,
  freeze,
}: EngineOptions['spec']): GpuThreadInit['spec'] {
  return { model, loss, lossOptions, losses, lossWeights, lossFromLogits, metrics, metricOptions, engine, seed, freeze };
}

type Ready = Extract<GpuThreadStart, { kind: 'ready' }>;

function startOf(thread: Worker): Promise<Ready> {
  return new Promise((resolve, reject) => {
    const settle = (act: () => void): void => {
      clearTimeout(timer);
      thread.removeAllListeners();
      act();
    };
    const fail = (error: Error): void => settle(() => reject(error));
    const unavailable = (what: string): void => fail(new EngineUnavailableError(`${what}: take \`engine: wasm\`.`));
    const timer = setTimeout(() => unavailable(`the GPU thread was not ready after ${START_DEADLINE_MS} ms`), START_DEADLINE_MS);
    thread.once('error', (error) => unavailable(`the GPU thread failed before it was ready (${messageOf(error)})`));
    thread.once('exit', (code) => unavailable(`the GPU thread ended with code ${code} before it was ready`));
    thread.once('message', (start: GpuThreadStart) =>
      start.kind === 'ready' ? settle(() => resolve(start)) : fail(fromTransfer(start.error)),
    );
  });
}

/** Waits for the end of a thread that is not ready. It is never terminated: in the middle of one of Dawn's functions that ends the process. */
async function windingDown(thread: Worker, port: MessagePort): Promise<void> {
  thread.on('error', () => undefined); // why it is of no use has been told
  port.postMessage({ kind: 'dispose' } satisfies GpuRequest); // to one that may be ready later
  if (thread.threadId === -1) return;
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, END_DEADLINE_MS);
    thread.once('exit', () => {
      clearTimeout(timer);
      resolve();
    });
  });
  thread.unref();
}

class ThreadEngine implements Engine {
  readonly name = 'webgpu';
  readonly fingerprint: string;
  readonly devices: readonly EngineDevice[];
  readonly metricNames: readonly string[];
  /** A flat vector where the other thread reaches it, for users whose own is not in shared memory. */
  private staging: Float32Array | undefined;
  /** Why nothing is answered any more. */
  private ended: string | undefined;

  constructor(
    private readonly thread: Worker,
    private readonly port: MessagePort,
    private readonly cells: Int32Array,
    private readonly layout: Layout,
    private readonly deadlineMs: number,
    { fingerprint, devices, metricNames }: Ready,
  ) {
    this.fingerprint = fingerprint;
    this.devices = devices;
    this.metricNames = metricNames;
    // A thread that ends while no caller waits. A waiting caller gets the thread's error.
    thread.on('error', ({ message }) => (this.ended ??= `the GPU thread has failed: ${message}`));
    thread.on('exit', (code) => (this.ended ??= `the GPU thread has ended with code ${code}`));
  }

  load(flat: Float32Array): void {
    this.ask({ kind: 'load', flat: isShared(flat) ? flat : this.staged(flat) });
  }

  step(request: StepRequest): Sums {
    return this.into(request, (shared) => this.ask<Sums>({ kind: 'step', request: shared }));
  }

  evaluate(batch: Batch): Sums {
    return this.ask<Sums>({ kind: 'evaluate', batch: posted(batch) });
  }

  trace(request: StepRequest): { result: Sums; kept: Kept[] } {
    return this.into(request, (shared) => this.ask<{ result: Sums; kept: Kept[] }>({ kind: 'trace', request: shared }));
  }

  memory(): { tensors: number; buffers: number; bytes: number } {
    return this.ask<{ tensors: number; buffers: number; bytes: number }>({ kind: 'memory' });
  }

  dispose(): void {
    if (this.ended !== undefined) return;
    this.ask({ kind: 'dispose' });
    this.end('the engine has been disposed of');
    this.thread.ref(); // it ends by itself, and its caller's thread not before
  }

  /** A step whose `out` lies in shared memory; copied to the caller's where that does not. Pieces always do. */
  private into<R>({ round, replica, batches, out }: StepRequest, act: (request: StepRequest) => R): R {
    if (!(out instanceof Float32Array) || isShared(out)) return act({ round, replica, batches: batches.map(posted), out });
    const shared = this.staged(out);
    const result = act({ round, replica, batches: batches.map(posted), out: shared });
    out.set(shared);
    return result;
  }

  /** A copy in shared memory, valid until the next one. One that has another length than the layout is the other thread's to refuse. */
  private staged(values: Float32Array): Float32Array {
    const length = Math.max(values.length, this.layout.totalLength);
    if (this.staging === undefined || this.staging.length < length) this.staging = new Float32Array(new SharedArrayBuffer(length * 4));
    const staged = this.staging.subarray(0, values.length);
    staged.set(values);
    return staged;
  }

  /** @throws Error what the other thread failed with, or why there is no answer */
  private ask<R>(request: GpuRequest): R {
    const { cells, port } = this;
    if (this.ended !== undefined) throw new Error(`${this.ended}: ${request.kind} is not answered`);
    const before = Atomics.load(cells, CELL_ANSWERS);
    const until = performance.now() + this.deadlineMs;
    port.postMessage(request);
    while (Atomics.load(cells, CELL_ANSWERS) === before && Atomics.load(cells, CELL_ENDED) === 0) {
      const leftMs = until - performance.now();
      if (leftMs > 0) Atomics.wait(cells, CELL_ANSWERS, before, leftMs);
      else throw this.end(`the GPU thread has not answered ${request.kind} within ${this.deadlineMs} ms`);
    }
    const answer = receiveMessageOnPort(port)?.message as GpuAnswer | undefined;
    if (answer?.kind === 'done') return answer.value as R;
    if (Atomics.load(cells, CELL_ENDED) === 1 || !answer)
      throw this.end(`the GPU thread has ended${answer ? `: ${answer.error.message}` : ''}`);
    throw fromTransfer(answer.error);
  }

  /** The thread is not terminated: Dawn ends the whole process when that happens in the middle of one of its functions. */
  private end(why: string): Error {
    this.ended = why;
    this.port.close();
    return new Error(why);
  }
}

const isShared = ({ buffer }: Float32Array): boolean => buffer instanceof SharedArrayBuffer;

/** Shared memory is passed as it is; of other memory the clone is as long as the view, not as what lies behind it. */
function posted({ inputs, targets, weights, count }: Batch): Batch {
  const compact = (view: Float32Array): Float32Array =>
    isShared(view) || view.byteLength === view.buffer.byteLength ? view : view.slice();
  return { inputs: inputs.map(compact), targets: targets.map(compact), weights: weights && compact(weights), count };
}

/** Threads run JavaScript: when this file is run from its source (unit tests), the built neighbour is taken. */
function entry(): URL {
  const beside = new URL('./gpu-thread.js', import.meta.url);
  if (existsSync(beside)) return beside;
  const built = new URL('../../../dist/backends/webgpu/gpu-thread.js', import.meta.url);
  if (!existsSync(built)) throw new Error('libs/engine is not built: run npm run build');
  return built;
}
