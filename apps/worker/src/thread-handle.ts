/** The main thread's side of one compute thread: starts it, speaks to it, and ends it. */
import { Worker } from 'node:worker_threads';
import type { EngineDevice } from '@paceline/engine';
import type { Recording } from '@paceline/exchange';
import { stagesOf, type BackendName } from '@paceline/spec';
import { CELL_BELLS, CELL_STOPPING, type ComputeInit, type FromCompute, type StageSizes, type ToCompute } from './compute-protocol.js';
import { endingOf } from './end-thread.js';
import type { AttachedMemory } from './gradient-memory.js';
import { ring, type Bell } from './thread-messages.js';

const START_DEADLINE_MS = 60_000;
/** Long, because a step that is still being computed is no reason to lose the process. A process that is told to end has a shorter deadline. */
const STOP_DEADLINE_MS = 60_000;
/** Engines whose native code aborts the whole process if their thread is terminated in the middle of it. */
const ENDS_BY_ITSELF: readonly BackendName[] = ['webgpu'];

const ENTRY = new URL('./compute-thread.js', import.meta.url);
const STAGE_ENTRY = new URL('./stage-thread.js', import.meta.url);
const EXECUTION_ENTRY = new URL('./execution-thread.js', import.meta.url);
/** The package of the engine tensorflow shares tf.js with the thread, which a bundle keeps for itself. */
const UNBUNDLED_ENTRY = new URL('../dist/compute-thread.js', import.meta.url);

export class ComputeStartError extends Error {
  override readonly name = 'ComputeStartError';

  constructor(
    message: string,
    /** Code of the failure in the compute thread, if it has one. */
    readonly code = 'COMPUTE_START',
  ) {
    super(message);
  }
}

export interface ThreadEvents {
  message(message: FromCompute): void;
  failed(code: string, message: string): void;
}

function entryOf({ engine, spec, execution }: Pick<ComputeInit, 'engine' | 'spec' | 'execution'>): URL {
  if (execution) return EXECUTION_ENTRY;
  if (stagesOf(spec.strategy) !== undefined) return STAGE_ENTRY;
  return engine.backend === 'tensorflow' ? UNBUNDLED_ENTRY : ENTRY;
}

/** In errors. */
export function threadName({ spec, thread, threads }: Pick<ComputeInit, 'spec' | 'thread' | 'threads'>): string {
  if (threads === 1) return 'the compute thread';
  return stagesOf(spec.strategy) === undefined ? `compute thread ${thread} of ${threads}` : `stage ${thread} of ${threads}`;
}

export class ThreadHandle {
  fingerprint = '';
  devices: readonly EngineDevice[] = [];
  /** Its own; undefined where vectors are lent to it. */
  gradients: AttachedMemory | undefined;
  /** With the strategy model-parallel: the stage that it has. */
  stage: StageSizes | undefined;
  private onTraced: ((recording: Recording) => void) | undefined;
  private stopped = false;
  private readonly end: () => Promise<void>;
  private readonly bell: Bell;

  private constructor(
    private readonly thread: Worker,
    /** How it is called in errors. */
    private readonly name: string,
    { cells, engine, spec, thread: number }: Pick<ComputeInit, 'cells' | 'engine' | 'spec' | 'thread'>,
  ) {
    this.bell = { cells: new Int32Array(cells), cell: CELL_BELLS + number };
    const ask = (): void => {
      Atomics.store(this.bell.cells, CELL_STOPPING, 1);
      thread.postMessage({ kind: 'stop' } satisfies ToCompute);
      ring(this.bell);
    };
    const endsByItself = ENDS_BY_ITSELF.includes(engine.backend);
    this.end = endingOf(thread, endsByItself ? ask : undefined, Math.max(STOP_DEADLINE_MS, spec.stepDeadlineMs));
  }

  /** Loads the engine and the dataset. @throws ComputeStartError */
  static async start(init: ComputeInit): Promise<ThreadHandle> {
    const thread = new Worker(entryOf(init), { workerData: init });
    const handle = new ThreadHandle(thread, threadName(init), init);
    await handle.ready();
    return handle;
  }

  listen({ message, failed }: ThreadEvents): void {
    this.thread.on('message', (told: FromCompute) => {
      if (told.kind === 'traced') this.onTraced?.(told.recording);
      else message(told);
    });
    this.thread.on('error', (error) => failed('ENGINE_CRASHED', `${this.name}: ${(error as Error).message}`));
    this.thread.on('exit', (code) => {
      if (!this.stopped) failed('ENGINE_EXITED', `${this.name} ended with code ${code}`);
    });
  }

  /** There is something to do before the next message. */
  ring(): void {
    ring(this.bell);
  }

  /** @param transfer memory that the thread gets instead of a copy */
  post(message: ToCompute, transfer: readonly ArrayBuffer[] = []): void {
    if (this.stopped) return;
    this.thread.postMessage(message, transfer);
    ring(this.bell);
  }

  /** What it has recorded, once it is between two steps; nothing when that takes longer than the deadline. */
  async stopTrace(deadlineMs: number): Promise<Recording | undefined> {
    this.post({ kind: 'trace', isOn: false });
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(undefined), deadlineMs);
      this.onTraced = (recording) => {
        clearTimeout(timer);
        resolve(recording);
      };
    });
  }

  /** Does not wait for the present step, except for engines that have to end by themselves. Never rejects. */
  async stop(): Promise<void> {
    this.stopped = true;
    await this.end();
    this.gradients = undefined;
  }

  private ready(): Promise<void> {
    const { thread, name } = this;
    return new Promise((resolve, reject) => {
      const settle = (act: () => void): void => {
        clearTimeout(timer);
        thread.off('error', onError).off('exit', onExit).off('message', onMessage);
        act();
      };
      const fail = (message: string, code?: string): void =>
        settle(() => {
          void this.stop();
          reject(new ComputeStartError(message, code));
        });
      const timer = setTimeout(() => fail(`the engine was not ready after ${START_DEADLINE_MS} ms`), START_DEADLINE_MS);
      const onError = (error: unknown): void => {
        const { message, code } = error as Error & { code?: unknown };
        fail(message, typeof code === 'string' ? code : undefined);
      };
      const onExit = (code: number): void => fail(`${name} ended with code ${code} before it was ready`);
      const onMessage = (message: FromCompute): void => {
        if (message.kind !== 'ready') return fail(message.kind === 'failed' ? message.message : `unexpected ${message.kind}`);
        this.gradients = message.gradients;
        this.fingerprint = message.fingerprint;
        this.devices = message.devices;
        this.stage = message.stage;
        settle(resolve);
      };
      thread.on('error', onError).on('exit', onExit).on('message', onMessage);
    });
  }
}
