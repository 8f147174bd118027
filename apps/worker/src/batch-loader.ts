/**
 * Rows for the compute thread, read by a loader thread: the batches of the next rounds are prefetched while the present one computes. Rows that were not
 * prefetched (first round, replicas taken over in the middle of a round, all slots full) are requested and waited for.
 *
 * What a replica sees is a pure function of (seed, epoch, round, replica): prefetch changes time, never bytes. See loader-protocol.ts for the slots.
 */
import { MessageChannel, receiveMessageOnPort, Worker, type MessagePort } from 'node:worker_threads';
import { rowBuffers, rowsWithin, type RowBuffers, type RunRowsSettings } from '@paceline/data';
import type { Batch } from '@paceline/engine';
import { EVALUATION_EXAMPLES, exampleBytes, type RunData, type RunSpec } from '@paceline/spec';
import { BatchPlan } from './batch-plan.js';
import {
  FLAG_FILLING,
  FLAG_FREE,
  FLAG_READY,
  RowsUnreadableError,
  type Ask,
  type LoaderInit,
  type LoaderStart,
  type SlotFailure,
  type ToLoader,
  type Wanted,
} from './loader-protocol.js';

/** Bound on all prefetched batches together: with large images fewer fit. */
const PREPARED_BYTES = 256 << 20;
const MOST_PREPARED = 16;
/** Small batches are prefetched for more than the next round: a message to the loader costs more than it takes to fill one. */
const PREPARED_AHEAD = 8;
const AHEAD_BYTES = 16 << 20;
const EVALUATION_BYTES = 32 << 20;
/** Share of the step deadline after which the worker says why it cannot go on, before it is declared lost. */
const WAIT_SHARE = 0.75;
const LOOK_EVERY_MS = 250;

export interface BatchLoaderOptions {
  readonly spec: RunSpec;
  readonly data: RunData;
  readonly settings: RunRowsSettings;
  /** Compute threads of the seat, each with a loader of its own: they share the bounds on memory. */
  readonly threads?: number;
  /** Loaders that share the bounds on memory; as many as threads where it is left out. */
  readonly sharers?: number;
  /** True when nothing that is waited for is wanted any more. */
  readonly isStopping?: () => boolean;
}

interface Slot {
  key: string | undefined;
  readonly rows: RowBuffers;
}

const keyOf = (wanted: Wanted): string =>
  wanted.kind === 'step' ? `${wanted.round}/${wanted.replica}/${wanted.localStep}` : `evaluation ${wanted.from}..${wanted.to}`;
const inWords = (wanted: Wanted): string =>
  wanted.kind === 'step'
    ? `the rows of round ${wanted.round}, replica ${wanted.replica}${wanted.localStep > 0 ? `, step ${wanted.localStep}` : ''}`
    : `the evaluation examples ${wanted.from} to ${wanted.to}`;

export class BatchLoader {
  readonly plan: BatchPlan;
  /** Examples that an evaluation takes at once. */
  readonly evaluationExamples: number;
  private readonly failures = new Map<number, SlotFailure>();
  /** Why the thread is of no use any more. */
  private failure: Error | undefined;

  private constructor(
    private readonly options: BatchLoaderOptions,
    private readonly thread: Worker,
    private readonly port: MessagePort,
    private readonly flags: Int32Array,
    /** Slots of steps, then one for rows that were not prefetched, then two for the evaluation. */
    private readonly slots: readonly Slot[],
    private readonly prepared: number,
  ) {
    const { spec, data } = options;
    this.plan = new BatchPlan({ spec, examples: data.trainExamples, heldOutExamples: data.heldOutExamples, format: data.format });
    this.evaluationExamples = evaluationExamples(data);
    thread.on('error', (error) => (this.failure = error as Error));
    thread.on('exit', (code) => (this.failure ??= new RowsUnreadableError('LOADER_EXITED', `the loader thread ended with code ${code}`)));
    thread.unref();
  }

  /** Starts the thread and opens the data. @throws RowsUnreadableError with the code of the DatasetError */
  static async open(options: BatchLoaderOptions): Promise<BatchLoader> {
    const { spec, data, threads = 1, sharers = threads } = options;
    const { memoryBytes } = options.settings;
    const settings = memoryBytes === undefined ? options.settings : { ...options.settings, memoryBytes: Math.floor(memoryBytes / sharers) };
    const { format } = data;
    const maxExamples = Math.ceil(spec.globalBatch / spec.replicas);
    const fitInto = (bytes: number): number => Math.floor(bytes / sharers / (maxExamples * exampleBytes(format)));
    const wanted = Math.max(2 * Math.ceil(spec.replicas / threads), Math.min(PREPARED_AHEAD, fitInto(AHEAD_BYTES)));
    const prepared = Math.max(1, Math.min(wanted, MOST_PREPARED, fitInto(PREPARED_BYTES)));
    const shared = (bytes: number): SharedArrayBuffer => new SharedArrayBuffer(bytes);
    const sizes = [...Array.from({ length: prepared + 1 }, () => maxExamples), evaluationExamples(data), evaluationExamples(data)];
    const slots = sizes.map((examples): Slot => ({ key: undefined, rows: rowBuffers(format, examples, shared) }));
    const flags = new Int32Array(new SharedArrayBuffer(slots.length * 4));
    const { port1, port2 } = new MessageChannel();
    const init: LoaderInit = { spec, data, settings, flags, slots: slots.map(({ rows }) => rows), port: port2 };
    const thread = new Worker(new URL('./loader-thread.js', import.meta.url), { workerData: init, transferList: [port2] });
    port1.unref();
    await started(thread);
    return new BatchLoader(options, thread, port1, flags, slots, prepared);
  }

  /**
   * Asks for batches that are needed later: of a round to come, or of the next local step. What finds no free slot is asked for when it is needed.
   * @param rounds with something of `round` the same of the rounds behind it is asked for, as far as there are slots
   */
  prefetch(round: number, replicas: readonly number[], localStep = 0, rounds = 1): void {
    if (this.failure) return;
    const asks: Ask[] = [];
    const end = Math.min(round + rounds, this.plan.totalRounds);
    for (let next = round; next < end; next++) if (!this.reserve(next, replicas, localStep, asks) || asks.length === 0) break;
    this.ask(asks, false);
  }

  /**
   * Asks for batches of a round with several steps, from one on, and then of the round behind it: as many as there are slots, unless those of that step were asked for
   * already. So one message asks for several steps.
   */
  prefetchSteps(round: number, replicas: readonly number[], step: number): void {
    if (this.failure) return;
    const steps = round < this.plan.totalRounds ? this.plan.localSteps(round) : 0;
    const [first, from] = step < steps ? [round, step] : [round + 1, 0];
    if (
      first >= this.plan.totalRounds ||
      replicas.every((replica) => this.isTaken({ kind: 'step', round: first, replica, localStep: from }))
    )
      return;
    const asks: Ask[] = [];
    let isFull = false;
    for (let local = from; local < this.plan.localSteps(first) && !isFull; local++) isFull = !this.reserve(first, replicas, local, asks);
    if (!isFull && first === round && round + 1 < this.plan.totalRounds) this.reserve(round + 1, replicas, 0, asks);
    this.ask(asks, false);
  }

  private isTaken(wanted: Extract<Wanted, { kind: 'step' }>): boolean {
    return this.slotOf(wanted) >= 0 || this.plan.count(wanted.round, wanted.replica, wanted.localStep) === 0;
  }

  /** @param asks gets what is not asked for yet @returns false when there are too few slots */
  private reserve(round: number, replicas: readonly number[], localStep: number, asks: Ask[]): boolean {
    for (const replica of replicas) {
      const wanted: Wanted = { kind: 'step', round, replica, localStep };
      if (this.slotOf(wanted) >= 0 || this.plan.count(round, replica, localStep) === 0) continue;
      const slot = this.slots.findIndex(({ key }, i) => i < this.prepared && key === undefined);
      if (slot < 0) return false;
      asks.push(this.filling(slot, wanted));
    }
    return true;
  }

  /**
   * The micro-batches of a replica step, or of one of its local steps; valid until `release` of the same.
   * @throws RowsUnreadableError
   */
  take(round: number, replica: number, localStep = 0): Batch[] {
    const parts = this.plan.microBatches(round, replica, localStep);
    if (parts.length === 0) return [];
    const rows = this.wait({ kind: 'step', round, replica, localStep }, this.prepared);
    return parts.map(({ from, to }) => this.batch(rows, from, to));
  }

  release(round: number, replica: number, localStep = 0): void {
    this.free(this.slotOf({ kind: 'step', round, replica, localStep }));
  }

  /** Prepares examples of the evaluation split, or of those held out, which are counted after it; at most `evaluationExamples`. */
  prefetchEvaluation(from: number, to: number): void {
    const wanted: Wanted = { kind: 'evaluation', from, to };
    if (this.failure || this.slotOf(wanted) >= 0) return;
    const index = this.slots.findIndex((slot, i) => i > this.prepared && slot.key === undefined);
    if (index >= 0) this.ask([this.filling(index, wanted)], false);
  }

  /** Examples of the evaluation split; valid until `releaseEvaluation` of the same. @throws RowsUnreadableError */
  takeEvaluation(from: number, to: number): Batch {
    return this.batch(this.wait({ kind: 'evaluation', from, to }, this.slots.length - 1), 0, to - from);
  }

  releaseEvaluation(from: number, to: number): void {
    this.free(this.slotOf({ kind: 'evaluation', from, to }));
  }

  /** Whether the loader has prepared this batch, and nobody has released it. */
  isReady(round: number, replica: number): boolean {
    const index = this.slotOf({ kind: 'step', round, replica, localStep: 0 });
    return index >= 0 && Atomics.load(this.flags, index) === FLAG_READY;
  }

  /** Slots of rounds that will not be asked for any more are free again once the loader is done with them. */
  forget(before: number): void {
    this.slots.forEach(({ key }, i) => {
      if (i < this.prepared && key !== undefined && Number(key.split('/')[0]) < before) this.free(i);
    });
  }

  async stop(): Promise<void> {
    await this.thread.terminate();
  }

  /** Blocks until the rows are there. @param spare the slot for what was not prepared */
  private wait(wanted: Wanted, spare: number): RowBuffers {
    let index = this.slotOf(wanted);
    if (index < 0) {
      // Its user is done with it: one is taken at a time. The loader may not be, after a wait that was given up.
      this.settled(spare, wanted);
      this.ask([this.filling((index = spare), wanted)], true);
    }
    if (this.settled(index, wanted) === FLAG_READY) return this.slots[index]!.rows;
    this.free(index);
    const { code, message } = this.failureOf(index);
    throw new RowsUnreadableError(code, `${inWords(wanted)} cannot be read: ${message}`);
  }

  /** Blocks until the loader is done with a slot. @throws RowsUnreadableError after the deadline */
  private settled(index: number, wanted: Wanted): number {
    const deadlineMs = this.options.spec.stepDeadlineMs * WAIT_SHARE;
    // Counted in looks: the time for which the process was stopped is no wait.
    let leftMs = deadlineMs;
    for (;;) {
      const flag = Atomics.load(this.flags, index);
      if (flag !== FLAG_FILLING) return flag;
      if (this.options.isStopping?.()) throw new RowsUnreadableError('STOPPED', 'the worker stops');
      if (leftMs <= 0)
        throw new RowsUnreadableError(
          'DATASET_AWAY',
          `${inWords(wanted)} were not read within ${deadlineMs} ms: see whether the data store answers, or set a longer stepDeadlineMs`,
        );
      const lookMs = Math.min(leftMs, LOOK_EVERY_MS);
      if (Atomics.wait(this.flags, index, FLAG_FILLING, lookMs) === 'timed-out') leftMs -= lookMs;
    }
  }

  private filling(slot: number, wanted: Wanted): Ask {
    this.slots[slot]!.key = keyOf(wanted);
    Atomics.store(this.flags, slot, FLAG_FILLING);
    return { slot, wanted };
  }

  private ask(asks: readonly Ask[], isUrgent: boolean): void {
    if (asks.length > 0) this.thread.postMessage({ asks, isUrgent } satisfies ToLoader);
  }

  /** A slot that the loader still fills (nobody waited for it any longer) stays taken until it is found filled. */
  private free(index: number): void {
    if (index < 0 || Atomics.load(this.flags, index) === FLAG_FILLING) return;
    this.slots[index]!.key = undefined;
    Atomics.store(this.flags, index, FLAG_FREE);
  }

  private failureOf(index: number): { code: string; message: string } {
    for (let next = receiveMessageOnPort(this.port); next; next = receiveMessageOnPort(this.port)) {
      const failure = next.message as SlotFailure;
      this.failures.set(failure.slot, failure);
    }
    const found = this.failures.get(index);
    this.failures.delete(index);
    return found ?? { code: 'LOADER_EXITED', message: this.failure?.message ?? 'the loader thread has ended' };
  }

  private slotOf(wanted: Wanted): number {
    const key = keyOf(wanted);
    return this.slots.findIndex((slot) => slot.key === key);
  }

  private batch(rows: RowBuffers, from: number, to: number): Batch {
    return Object.assign(rowsWithin(this.plan.format, rows, from, to), { count: to - from });
  }
}

/** Examples that an evaluation takes at once. */
export const evaluationExamples = ({ format, evalExamples, heldOutExamples = 0 }: RunData): number =>
  Math.max(1, Math.min(EVALUATION_EXAMPLES, Math.max(evalExamples, heldOutExamples), Math.floor(EVALUATION_BYTES / exampleBytes(format))));

interface ExampleRange {
  readonly from: number;
  readonly to: number;
}

/** What of a block is evaluated at once. */
export interface EvaluationPart extends ExampleRange {
  readonly block: ExampleRange;
}

/** @param most examples at once */
export function evaluationParts(blocks: readonly ExampleRange[], most: number): EvaluationPart[] {
  return blocks.flatMap((block) =>
    Array.from({ length: Math.ceil((block.to - block.from) / most) }, (_, i): EvaluationPart => {
      const from = block.from + i * most;
      return { block, from, to: Math.min(from + most, block.to) };
    }),
  );
}

function started(thread: Worker): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (act: () => void): void => {
      thread.removeAllListeners();
      act();
    };
    thread.once('error', (error) => settle(() => reject(error as Error)));
    thread.once('exit', (code) =>
      settle(() => reject(new RowsUnreadableError('LOADER_EXITED', `the loader thread ended with code ${code} before it was ready`))),
    );
    thread.once('message', (start: LoaderStart) =>
      settle(() => {
        if (start.kind === 'ready') return resolve();
        void thread.terminate();
        reject(new RowsUnreadableError(start.code, start.message));
      }),
    );
  });
}
