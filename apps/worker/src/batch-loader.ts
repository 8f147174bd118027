/**
 * Batches for the compute thread, prepared one round ahead by a loader thread while the present round computes.
 *
 * What a replica sees is a pure function of (seed, epoch, round, replica), so a batch that was not prepared (first round,
 * replicas that came over in the middle of a round) is simply gathered here and now: prefetch changes time, never bytes.
 * The compute thread owns the directory of slots; the loader fills the slot that it is told to and raises its flag.
 */
import { Worker } from 'node:worker_threads';
import { type Dataset } from '@paceline/data';
import type { Batch } from '@paceline/engine';
import { fillBatch, type BatchPlan, type BatchPlanInit } from './batch-plan.js';

const FLAG_FILLING = 0;
const FLAG_READY = 1;
const WAIT_MS = 10_000;

export interface LoaderInit {
  readonly dataset: string;
  readonly flags: SharedArrayBuffer;
  readonly slots: readonly { x: SharedArrayBuffer; y: SharedArrayBuffer }[];
  readonly plan: BatchPlanInit;
}
export type ToLoader =
  { readonly kind: 'fill'; readonly slot: number; readonly round: number; readonly replica: number } | { readonly kind: 'stop' };

interface Slot {
  key: string | undefined;
  readonly x: Float32Array;
  readonly y: Int32Array;
}

export class BatchLoader {
  private readonly slots: Slot[] = [];
  private readonly flags: Int32Array;
  private readonly thread: Worker;
  private readonly spare: { x: Float32Array; y: Int32Array };
  private failure: Error | undefined;

  constructor(
    private readonly plan: BatchPlan,
    private readonly dataset: Dataset,
    slotCount: number,
  ) {
    const flags = new SharedArrayBuffer(slotCount * 4);
    const buffers = Array.from({ length: slotCount }, () => ({
      x: new SharedArrayBuffer(plan.maxExamples * plan.exampleLength * 4),
      y: new SharedArrayBuffer(plan.maxExamples * 4),
    }));
    this.flags = new Int32Array(flags);
    for (const { x, y } of buffers) this.slots.push({ key: undefined, x: new Float32Array(x), y: new Int32Array(y) });
    this.spare = { x: new Float32Array(plan.maxExamples * plan.exampleLength), y: new Int32Array(plan.maxExamples) };
    const init: LoaderInit = { dataset: dataset.info.name, flags, slots: buffers, plan: plan.init };
    this.thread = new Worker(new URL('./loader-thread.js', import.meta.url), { workerData: init });
    this.thread.on('error', (error) => (this.failure = error as Error));
    this.thread.unref();
  }

  /** Asks for the batches of a later round. What finds no free slot is gathered when it is needed. */
  prefetch(round: number, replicas: readonly number[]): void {
    if (round >= this.plan.totalRounds || this.failure) return;
    for (const replica of replicas) {
      const key = `${round}/${replica}`;
      if (this.slots.some((slot) => slot.key === key)) continue;
      const index = this.slots.findIndex((slot) => slot.key === undefined);
      if (index < 0) return;
      this.slots[index]!.key = key;
      Atomics.store(this.flags, index, FLAG_FILLING);
      this.thread.postMessage({ kind: 'fill', slot: index, round, replica } satisfies ToLoader);
    }
  }

  /** The micro-batches of a replica step; valid until `release` of the same. */
  take(round: number, replica: number): Batch[] {
    const index = this.slotOf(round, replica);
    if (index >= 0) {
      const { x, y } = this.slots[index]!;
      if (!this.failure) Atomics.wait(this.flags, index, FLAG_FILLING, WAIT_MS);
      if (this.isReady(round, replica)) return this.views(round, replica, x, y);
    }
    fillBatch(this.plan, this.dataset.train, round, replica, this.spare.x, this.spare.y);
    return this.views(round, replica, this.spare.x, this.spare.y);
  }

  /** A slot that the loader still fills (nobody waited for it any longer) stays taken until `forget` finds it filled. */
  release(round: number, replica: number): void {
    if (this.isReady(round, replica)) this.slots[this.slotOf(round, replica)]!.key = undefined;
  }

  /** Whether the loader has prepared this batch, and nobody has released it. */
  isReady(round: number, replica: number): boolean {
    const index = this.slotOf(round, replica);
    return index >= 0 && Atomics.load(this.flags, index) === FLAG_READY;
  }

  /** Slots of rounds that will not be asked for any more are free again once the loader is done with them. */
  forget(before: number): void {
    this.slots.forEach((slot, i) => {
      if (slot.key !== undefined && Number(slot.key.split('/')[0]) < before && Atomics.load(this.flags, i) === FLAG_READY)
        slot.key = undefined;
    });
  }

  async stop(): Promise<void> {
    await this.thread.terminate();
  }

  private slotOf(round: number, replica: number): number {
    return this.slots.findIndex((slot) => slot.key === `${round}/${replica}`);
  }

  private views(round: number, replica: number, x: Float32Array, y: Int32Array): Batch[] {
    const length = this.plan.exampleLength;
    return this.plan
      .microBatches(round, replica)
      .map(({ from, to }) => ({ x: x.subarray(from * length, to * length), y: y.subarray(from, to), count: to - from }));
  }
}
