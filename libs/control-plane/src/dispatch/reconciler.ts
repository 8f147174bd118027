/**
 * Looks at every run that is not over, a few times a second: reads rows, control hash and fleet, asks `reconcile` what to do next and
 * has it done. What Redis lost comes back this way, and any api can take over.
 */
import type { ServerAddress } from '../contract/queues.js';
import type { DispatchAction, ObservedFleet, ObservedJob, ObservedRun } from '../lifecycle/observed-run.js';
import { reconcile } from '../lifecycle/reconcile.js';
import { hasLiveAttempt, type RunStatus } from '../lifecycle/run-status.js';
import { DispatchLockLostError } from './dispatch-lock.js';
import type { JobKind } from './outbox.js';

const SWEEP_EVERY_MS = 2_000;
/** `placementJobId` and `stepTaskJobId`. */
const JOB_ID = /^(?:step|place)-([0-9a-f-]{36})-a(\d+)-[si](\d+)(-standby)?-[nm](\d+)$/;

/** What a job's id says of it. */
export interface JobName {
  readonly runId: string;
  readonly attempt: number;
  /** Seat of a step task, index of a placement. */
  readonly part: number;
  readonly role: 'primary' | 'standby';
  readonly incarnation: number;
}

/** @throws DispatchLockLostError when another api reconciles by now */
export type ConfirmLock = () => Promise<void>;

/** Some of the runs that are not over, in the order of their ids. */
export interface RunPage {
  readonly runs: readonly ObservedRun[];
  /** After which id the next page begins; undefined at the end: from the beginning again. */
  readonly nextAfterId: string | undefined;
}

export interface ReconcilerPorts {
  now(): number;
  /** Runs that are not over, behind one of them; each consistent in itself. */
  readRuns(afterId: string | undefined, confirmLock: ConfirmLock): Promise<RunPage>;
  /** Asked for runs that there are. @param placed servers that hold a part of one of them */
  fleet(placed: readonly ServerAddress[], runs: readonly ObservedRun[]): Promise<ObservedFleet>;
  jobs(run: ObservedRun, now: number, confirmLock: ConfirmLock): Promise<ReadonlyMap<string, ObservedJob>>;
  /** Checks again, under the lock or by compare-and-set, that the run is still what the decision was made for. */
  carryOut(run: ObservedRun, action: DispatchAction): Promise<void>;
  /** Ids of jobs that wait. */
  waitingIds(kind: JobKind): Promise<readonly string[]>;
  /** Whether its row still asks for it. */
  isWanted(kind: JobKind, name: JobName): Promise<boolean>;
  remove(kind: JobKind, jobId: string): Promise<void>;
  /** A store is away: the next run would meet it too. */
  isOutage(error: unknown): boolean;
}

export class Reconciler {
  /** Actions that were begun. */
  actions = 0;
  private sweptAtMs = -Infinity;
  /** With many runs, ticks take turns; a tick that breaks off is followed by the runs that it has not done. */
  private doneToId: string | undefined;

  constructor(private readonly ports: ReconcilerPorts) {}

  /**
   * @param confirmLock is asked before each run, each look and each action: whether this api is still the one that reconciles
   * @returns runs that could not be looked at, with why @throws when a store is away, or the lock is lost
   */
  async tick(confirmLock: ConfirmLock): Promise<{ runId: string; error: Error }[]> {
    const { ports } = this;
    const { runs, nextAfterId } = await ports.readRuns(this.doneToId, confirmLock);
    await confirmLock();
    const failed = await this.reconcileAll(runs, nextAfterId, confirmLock);
    await this.sweepQueues(confirmLock);
    return failed;
  }

  private async reconcileAll(
    runs: readonly ObservedRun[],
    nextAfterId: string | undefined,
    confirmLock: ConfirmLock,
  ): Promise<{ runId: string; error: Error }[]> {
    const { ports } = this;
    const failed: { runId: string; error: Error }[] = [];
    if (runs.length === 0) {
      this.doneToId = nextAfterId;
      return failed;
    }
    const placed = runs.flatMap(({ servers }) => servers.flatMap(({ claim }) => (claim ? [claim.address] : [])));
    const fleet = await ports.fleet(placed, runs);
    for (const [i, run] of runs.entries()) {
      try {
        await confirmLock();
        await this.reconcile(run, fleet, confirmLock);
      } catch (error) {
        if (error instanceof DispatchLockLostError) throw error;
        // What looks like an outage may be this one run's: the next tick goes on behind it.
        if (ports.isOutage(error)) {
          this.doneToId = i === runs.length - 1 ? nextAfterId : run.runId;
          throw error;
        }
        failed.push({ runId: run.runId, error: error as Error });
      }
      this.doneToId = i === runs.length - 1 ? nextAfterId : run.runId;
    }
    return failed;
  }

  private async reconcile(run: ObservedRun, fleet: ObservedFleet, confirmLock: ConfirmLock): Promise<void> {
    const { ports } = this;
    const now = ports.now();
    const actions = reconcile(run, fleet, await ports.jobs(run, now, confirmLock), now);
    // A worker that took a seat of the attempt before would look for servers that are gone.
    if (actions.some(({ kind }) => kind === 'begin-attempt')) this.sweptAtMs = -Infinity;
    await this.sweepQueues(confirmLock);
    for (const action of actions) {
      await confirmLock();
      this.actions++;
      await ports.carryOut(run, action);
    }
  }

  /** Jobs that wait for nothing: of runs that are over, of seats that were closed while a dead worker held the job, forged ones. */
  private async sweepQueues(confirmLock: ConfirmLock): Promise<void> {
    const { ports } = this;
    if (ports.now() - this.sweptAtMs < SWEEP_EVERY_MS) return;
    this.sweptAtMs = ports.now();
    for (const kind of ['step-task', 'placement', 'worker-placement'] as const) {
      await confirmLock();
      for (const id of await ports.waitingIds(kind)) {
        await confirmLock();
        const name = jobNameOf(id);
        if (name && (await ports.isWanted(kind, name))) continue;
        await confirmLock();
        await ports.remove(kind, id);
      }
    }
  }
}

/** Undefined for an id that we never give. */
export function jobNameOf(jobId: string): JobName | undefined {
  const [, runId, attempt, part, standby, n] = JOB_ID.exec(jobId) ?? [];
  if (!runId || attempt === undefined || part === undefined || n === undefined) return undefined;
  return { runId, attempt: Number(attempt), part: Number(part), role: standby ? 'standby' : 'primary', incarnation: Number(n) };
}

/** A placement job is wanted as long as nobody has claimed the part that it offers. */
export const isPlacementWanted = (
  server: { readonly incarnation: number; readonly claimedAt: Date | null } | null,
  run: { readonly attempt: number; readonly status: RunStatus } | undefined,
  { attempt, incarnation }: Pick<JobName, 'attempt' | 'incarnation'>,
): boolean => server?.incarnation === incarnation && !server.claimedAt && run?.attempt === attempt && hasLiveAttempt(run.status);
