/** The main thread's side of the compute thread: starts it, passes steps on, and gives gradient memory back. */
import { Worker } from 'node:worker_threads';
import type { ChunkBytes, MemberChunk, Recording, Rows, WorkItem } from '@paceline/exchange';
import { Codec } from '@paceline/protocol';
import type { RunRowsSettings } from '@paceline/data';
import type { EngineDevice, LeakLimits } from '@paceline/engine';
import type { SeatCompute, SeatComputeEvents } from '@paceline/hosting';
import type { StepTaskJob } from '@paceline/control-plane';
import type { BackendName } from '@paceline/spec';
import {
  CELL_COMMITTED,
  CELL_PROGRESS,
  CELL_STOPPING,
  CELLS,
  type ComputeInit,
  type EngineChoice,
  type FromCompute,
  type ToCompute,
} from './compute-protocol.js';
import { endingOf } from './end-thread.js';
import { GradientReader, type Vector } from './gradient-memory.js';
import type { Leak } from './leak-guard.js';

const START_DEADLINE_MS = 60_000;
/** Long, because a step that is still being computed is no reason to lose the process. A process that is told to end has a shorter deadline. */
const STOP_DEADLINE_MS = 60_000;
/** Engines whose native code aborts the whole process if their thread is terminated in the middle of it. */
const ENDS_BY_ITSELF: readonly BackendName[] = ['webgpu'];

const ENTRY = new URL('./compute-thread.js', import.meta.url);
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

export interface ComputeOptions {
  /** Growth of its memory at which a worker begins anew. */
  readonly leakLimits: LeakLimits;
  /** Where prepared datasets lie. */
  readonly rowsSettings: RunRowsSettings;
}

export class Compute implements SeatCompute {
  private readonly cells: Int32Array;
  private gradients: GradientReader | undefined;
  fingerprint = '';
  devices: readonly EngineDevice[] = [];
  /** The thread's memory grows: it has to be ended when the run can do without it. Told once. */
  onLeak: ((leak: Leak) => void) | undefined;
  private onTraced: ((recording: Recording) => void) | undefined;
  private stopped = false;
  /** Gradient memory that nobody reads any more. */
  private readonly freed: Vector[] = [];
  private readonly end: () => Promise<void>;

  private constructor(
    private readonly thread: Worker,
    cells: SharedArrayBuffer,
    endsByItself: boolean,
    stepDeadlineMs: number,
  ) {
    this.cells = new Int32Array(cells);
    const ask = (): void => {
      Atomics.store(this.cells, CELL_STOPPING, 1);
      thread.postMessage({ kind: 'stop' } satisfies ToCompute);
    };
    this.end = endingOf(thread, endsByItself ? ask : undefined, Math.max(STOP_DEADLINE_MS, stepDeadlineMs));
  }

  /** Starts the thread: loads the engine and the dataset. @throws ComputeStartError */
  static async start(
    job: StepTaskJob,
    engine: EngineChoice,
    parameters: SharedArrayBuffer,
    { leakLimits, rowsSettings }: ComputeOptions,
  ): Promise<Compute> {
    const cells = new SharedArrayBuffer(CELLS * 4);
    const { spec, data, model } = job;
    const init: ComputeInit = {
      spec,
      data,
      rowsSettings,
      engine,
      description: model,
      servers: job.servers.length,
      parameters,
      cells,
      leakLimits,
    };
    const thread = new Worker(engine.backend === 'tensorflow' ? UNBUNDLED_ENTRY : ENTRY, { workerData: init });
    const compute = new Compute(thread, cells, ENDS_BY_ITSELF.includes(engine.backend), job.spec.stepDeadlineMs);
    await compute.ready();
    return compute;
  }

  listen(events: SeatComputeEvents): void {
    this.thread.on('message', (message: FromCompute) => this.pass(message, events));
    this.thread.on('error', (error) => events.failed('ENGINE_CRASHED', (error as Error).message, 0, -1));
    this.thread.on('exit', (code) => {
      if (!this.stopped) events.failed('ENGINE_EXITED', `the compute thread ended with code ${code}`, 0, -1);
    });
  }

  /** A count that moves whenever the thread moves. */
  get progress(): number {
    return Atomics.load(this.cells, CELL_PROGRESS);
  }

  step(round: number, replicas: readonly number[], codec?: string): void {
    this.post({ kind: 'step', round, replicas, codec, free: this.freed.splice(0) });
  }

  item(item: WorkItem, next: WorkItem | undefined): void {
    this.post({ kind: 'item', item, next });
  }

  evaluate(generation: number, blocks: readonly { from: number; to: number }[]): void {
    this.post({ kind: 'evaluate', generation, blocks });
  }

  rows(generation: number, group: number, rows: Rows): void {
    this.post({ kind: 'rows', generation, group, rows });
  }

  /** The thread records its spans from now on. */
  startTrace(): void {
    this.post({ kind: 'trace', isOn: true });
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

  committed(round: number): void {
    Atomics.store(this.cells, CELL_COMMITTED, round + 1);
  }

  /** Does not wait for the present step, except for engines that have to end by themselves. Never rejects. */
  async stop(): Promise<void> {
    this.stopped = true;
    await this.end();
    this.gradients = undefined; // the memory is shared with the thread: who still holds this object does not hold that
  }

  /** With the next step, which follows at once as a rule: a message costs more than what it says. */
  private free(vector: Vector): void {
    if (this.freed.push(vector) > 1) return;
    setImmediate(() => {
      if (this.freed.length > 0) this.post({ kind: 'free', vectors: this.freed.splice(0) });
    });
  }

  private post(message: ToCompute): void {
    if (!this.stopped) this.thread.postMessage(message);
  }

  private ready(): Promise<void> {
    const { thread } = this;
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
      const onExit = (code: number): void => fail(`the compute thread ended with code ${code} before it was ready`);
      const onMessage = (message: FromCompute): void => {
        if (message.kind !== 'ready') return fail(message.kind === 'failed' ? message.message : `unexpected ${message.kind}`);
        this.gradients = new GradientReader(message.gradients.memories, message.gradients.parts);
        this.fingerprint = message.fingerprint;
        this.devices = message.devices;
        settle(resolve);
      };
      thread.on('error', onError).on('exit', onExit).on('message', onMessage);
    });
  }

  private pass(message: FromCompute, events: SeatComputeEvents): void {
    switch (message.kind) {
      case 'contribution':
        return events.contribution(message.round, message.replica, message.examples, message.sums, message.lost);
      case 'node': {
        const { round, lo, hi, vector, contribution, encoded, groups = [] } = message;
        if (contribution) this.pass(contribution, events);
        const { gradients } = this;
        if (!gradients) return; // it has been stopped
        const chunkOf = (chunk: Pick<MemberChunk, 'index' | 'offset' | 'length'>): ChunkBytes => {
          const rows = groups.find(({ group }) => group === chunk.index);
          return rows ? { codec: Codec.rows, bytes: rows.bytes } : gradients.chunk(vector, encoded, chunk);
        };
        return events.node({ round, lo, hi, chunk: chunkOf, release: () => this.free(vector) });
      }
      case 'evaluated':
        return events.evaluated(message.generation, message.from, message.to, message.examples, message.sums);
      case 'wants':
        return events.wants?.(message.generation, message.group, message.ids);
      case 'traced':
        return this.onTraced?.(message.recording);
      case 'leak':
        return this.onLeak?.(message.leak);
      case 'non-finite':
        return events.nonFinite(message.round, message.replica);
      case 'failed':
        return events.failed(message.code, message.message, message.round, message.replica);
      case 'ready':
        throw new Error('the compute thread was ready twice');
    }
  }
}
