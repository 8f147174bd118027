/**
 * Jobs leave for Redis from here and nowhere else. A row is written in the transaction that decided the job; sending adds the job
 * under the row's id and then marks the row. A crash in between sends it again, and BullMQ ignores an id that it has: one job per row.
 *
 *     row, not sent ── prepare ──> job added under the row's id ──> row marked         a crash anywhere: the row is sent again
 *
 * The payload is put together when it is sent (spec, model, a fresh token), so rows stay small. A placement of a run with several
 * servers waits until as many servers are there, because a server that has claimed its part holds it only for a while.
 */
import { shardHosts } from '@paceline/spec';
import { placementJobSchema, stepTaskJobSchema, type PlacementJob, type StepTaskJob } from '../contract/queues.js';
import { hasLiveAttempt, type RunStatus } from '../lifecycle/run-status.js';

/** A queue each. */
export type JobKind = 'placement' | 'worker-placement' | 'step-task';

export interface PreparedJob {
  readonly jobId: string;
  readonly payload: PlacementJob | StepTaskJob;
  readonly priority?: number;
}

export interface OutboxRow {
  readonly jobId: string;
  readonly attempt: number;
  readonly run: { readonly status: RunStatus; readonly attempt: number };
}

export interface OutboxPorts<Row extends OutboxRow> {
  /** Before each step: who sends may hold the dispatch lock, and has to be heard while it is slow. */
  keepLock(): Promise<void>;
  /** Rows that were not sent, oldest first, at most a batch; without placements of runs that need more servers than there are. */
  unsent(): Promise<readonly Row[]>;
  /** Undefined when its job is not wanted any more. */
  prepare(row: Row): Promise<PreparedJob | undefined>;
  /** Adding an id that is there already changes nothing. */
  add(jobs: readonly PreparedJob[]): Promise<void>;
  markSent(rows: readonly Row[]): Promise<void>;
  /** A job that the other side would refuse: a fault of ours, which must not be repeated for ever. */
  unfit(jobId: string, issue: unknown): void;
}

/** Sends what waits, at most one batch. @returns how many jobs were sent @throws what the ports throw: nothing is lost, it is sent again */
export async function sendOutbox<Row extends OutboxRow>(ports: OutboxPorts<Row>): Promise<number> {
  await ports.keepLock();
  const rows = await ports.unsent();
  if (rows.length === 0) return 0;
  const jobs: PreparedJob[] = [];
  for (const row of rows) {
    if (row.run.attempt !== row.attempt || !hasLiveAttempt(row.run.status)) continue;
    await ports.keepLock();
    const job = await ports.prepare(row);
    if (job && fits(job, ports)) jobs.push(job);
  }
  await ports.keepLock();
  if (jobs.length > 0) await ports.add(jobs);
  await ports.keepLock();
  await ports.markSent(rows);
  return jobs.length;
}

/** The queue that a job goes to. */
export const jobKindOf = (payload: PreparedJob['payload']): JobKind =>
  payload.kind === 'placement' && shardHosts(payload.spec.strategy) === 'workers' ? 'worker-placement' : payload.kind;

function fits({ jobId, payload }: PreparedJob, { unfit }: Pick<OutboxPorts<OutboxRow>, 'unfit'>): boolean {
  const schema = payload.kind === 'placement' ? placementJobSchema : stepTaskJobSchema;
  const checked = schema.safeParse(payload);
  if (!checked.success) unfit(jobId, checked.error.issues[0]);
  return checked.success;
}
