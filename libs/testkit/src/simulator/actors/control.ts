/**
 * The run as the control plane has stored it, for those who stand outside: what people ask of it, and what scenarios and invariants
 * look at. Nothing is decided here; apis do that (sim-api.ts), over PostgreSQL and Redis.
 */
import { isOver, originOf, type AttemptOrigin, type RunStatus } from '@paceline/control-plane';
import type { NumberedEntry } from '@paceline/exchange';
import type { Cluster } from '../cluster.js';
import type { Part } from './part.js';
import type { CheckpointRow, RunRow } from '../world/postgres.js';
import type { StoredRun } from '../stored/stored-run.js';

const EPOCH_MS = 1_700_000_000_000;

export class Control {
  constructor(private readonly cluster: Cluster) {}

  /** Run and outbox rows appear in one transaction, as apps/api/src/runs/create-run.ts writes them. */
  begin(): void {
    const { spec, schedule } = this.cluster.run;
    const { totalRounds } = schedule;
    this.transact((run) => run.create(spec, { totalRounds, roundsPerEpoch: totalRounds }));
  }

  private get row(): RunRow | undefined {
    return this.cluster.postgres.rows.runs.get(this.cluster.runId);
  }

  get status(): RunStatus {
    return this.row?.status ?? 'PENDING';
  }

  get reason(): string {
    return this.row?.statusReason ?? '';
  }

  get attempt(): number {
    return this.row?.attempt ?? 0;
  }

  get isOver(): boolean {
    return isOver(this.status);
  }

  /** Entries that are stored without a gap, of all attempts. */
  readonly journal: NumberedEntry[] = [];

  get attempts(): AttemptOrigin[] {
    return this.cluster.postgres.rows.attempts.values().map(originOf);
  }

  /** Checkpoints that the journal has announced, in order. */
  get checkpoints(): (CheckpointRow & { isGone: boolean })[] {
    const rows = this.cluster.postgres.rows.checkpoints.values();
    return rows
      .map((row) => ({ ...row, isGone: row.isInvalid || row.isRemoved }))
      .sort((a, b) => a.attempt - b.attempt || a.round - b.round);
  }

  /** The newest attempt's part with the coordinator, once there is one. */
  get coordinatorPart(): Part | undefined {
    return this.cluster.coordinatorPart;
  }

  pause(): boolean {
    return this.isReachable && this.transact((run) => run.ask({ request: 'pause' })).hasChanged;
  }

  resume(): boolean {
    return this.isReachable && this.transact((run) => run.ask({ request: 'resume' })).hasChanged;
  }

  /** So many workers are wanted at most. */
  scale(workers: number): boolean {
    return this.isReachable && this.transact((run) => run.ask({ request: 'scale', workers })).hasChanged;
  }

  cancel(): boolean {
    if (!this.isReachable || this.row?.cancelRequestedAt) return false;
    this.transact((run) => run.ask({ request: 'cancel' }));
    return true;
  }

  /** Otherwise people are answered 503, and ask again. */
  get isReachable(): boolean {
    const { postgres, apis } = this.cluster;
    return !postgres.isAway && apis.some(({ process }) => process.isAlive && !process.isFrozen);
  }

  private transact<T>(act: (run: StoredRun) => T): T {
    const { cluster } = this;
    const answer = cluster.postgres.now((rows) => act(cluster.stored(rows, EPOCH_MS + cluster.world.nowMs)));
    for (const api of cluster.apis) if (api.process.isAlive) api.wake();
    return answer;
  }
}
