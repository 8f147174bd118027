/**
 * The standby that goes with a shard, where workers hold the shards and `strategy.standby` is set: the worker with shard i has the standby of shard i + 1
 * (of the first one, behind the last). No job asks for it, so no worker can wait for another that has its own standby to give.
 *
 *     shard i held ──> standby of i + 1 offered ──> held ── lost, the shard is still there ── 2 s ──> offered again
 *                                                        ── the shard is lost before the start ──> let go (apps/worker/src/shard-host.ts)
 */
import type { HeldJob, JobQueue, PlacementJob } from '@paceline/control-plane';

/** Somebody else may have claimed it, and the control plane needs a moment to notice that he has lost the shard. */
const OFFERED_AGAIN_AFTER_MS = 2_000;

export interface StandbyQueueOptions {
  /** The placement by which this process holds a shard now. */
  hosted(): PlacementJob | undefined;
  /** Whether it holds a standby of this attempt. */
  hasStandby(job: PlacementJob): boolean;
  nowMs(): number;
}

export class StandbyQueue implements JobQueue<PlacementJob> {
  private taken: { readonly job: PlacementJob; readonly atMs: number } | undefined;

  constructor(private readonly options: StandbyQueueOptions) {}

  take(): Promise<HeldJob<PlacementJob> | undefined> {
    const job = this.options.hosted();
    if (!job || job.spec.strategy.standby === 0 || this.options.hasStandby(job)) return Promise.resolve(undefined);
    const atMs = this.options.nowMs();
    if (this.taken?.job === job && atMs - this.taken.atMs < OFFERED_AGAIN_AFTER_MS) return Promise.resolve(undefined);
    this.taken = { job, atMs };
    const payload: PlacementJob = { ...job, index: (job.index + 1) % job.servers, role: 'standby' };
    const done = (): Promise<boolean> => Promise.resolve(true);
    const giveBack = (): Promise<boolean> => {
      this.taken = undefined; // no job offers it again
      return done();
    };
    return Promise.resolve({ id: `standby of ${payload.index}`, payload, keep: done, complete: done, giveBack });
  }

  peek(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}
