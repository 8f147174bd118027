/** Changes of a run's status and its events, always under the lock of the run's row, so that `seq` has no gap and no double. */
import { Injectable } from '@nestjs/common';
import { Database, type Transaction } from '../database/database.js';
import type { Prisma } from '../generated/prisma/client.js';
import { storable } from '../text-input.js';
import { RunSignals } from './run-signals.js';
import { coordinatorOf, hasLiveAttempt, isOver, mayMove, type RunStatus } from '@paceline/jobs';

/** A run's row, locked until the transaction ends. `seq` numbers are taken from it by whoever holds it. */
export interface LockedRun {
  readonly id: string;
  status: RunStatus;
  statusReason: string | null;
  attempt: number;
  lastEventSeq: number;
  lastMetricSeq: number;
}

export interface NewEvent {
  readonly attempt: number;
  /** Number in the coordinator's journal. */
  readonly n?: number;
  readonly type: string;
  readonly message: string;
  readonly data: Record<string, unknown>;
  readonly at: Date;
}

export interface Move {
  readonly to: RunStatus;
  readonly reason: string;
  /** Of an end of the attempt, for its history. */
  readonly cause?: string;
  /** Fields that change together with the status. */
  readonly set?: Prisma.RunUncheckedUpdateManyInput;
}

@Injectable()
export class StatusMoves {
  constructor(
    private readonly database: Database,
    private readonly signals: RunSignals,
  ) {}

  /**
   * Compare-and-set in a transaction of its own.
   * @returns false when the run is of another attempt by now or its status does not allow the move
   */
  async move(runId: string, attempt: number, move: Move): Promise<boolean> {
    const moved = await this.database.transact(async (transaction) => {
      const run = await this.lock(transaction, runId);
      return run !== undefined && run.attempt === attempt && (await this.apply(transaction, run, move));
    });
    if (moved) this.signals.changed(runId);
    return moved;
  }

  async lock(transaction: Transaction, runId: string): Promise<LockedRun | undefined> {
    const [row] = await transaction.$queryRaw<LockedRun[]>`
      SELECT "id", "status"::text AS "status", "statusReason", "attempt", "lastEventSeq", "lastMetricSeq" FROM "Run" WHERE "id" = ${runId}::uuid FOR UPDATE`;
    return row;
  }

  /** Under the lock. */
  async apply(transaction: Transaction, run: LockedRun, { to, reason, cause, set }: Move): Promise<boolean> {
    if (!mayMove(run.status, to)) return false;
    const from = run.status;
    const at = new Date();
    const text = storable(reason).slice(0, 2000);
    run.status = to;
    run.statusReason = text;
    await transaction.run.updateMany({
      where: { id: run.id },
      data: {
        status: to,
        statusReason: text,
        statusChangedAt: at,
        ...(isOver(to) ? { finishedAt: at } : {}),
        ...set,
      },
    });
    if (to === 'RUNNING') await transaction.run.updateMany({ where: { id: run.id, startedAt: null }, data: { startedAt: at } });
    await transaction.runStatusChange.create({ data: { runId: run.id, from, to, reason: text, attempt: run.attempt, at } });
    await this.addEvents(transaction, run, [
      { attempt: run.attempt, type: 'status.changed', message: `${from} → ${to}: ${text}`, data: { from, to, reason: text }, at },
    ]);
    if (hasLiveAttempt(from) && !hasLiveAttempt(to)) await this.endAttempt(transaction, run, at, cause ?? to);
    return true;
  }

  /** Nothing of the attempt is asked of the fleet any more. */
  private async endAttempt(transaction: Transaction, run: LockedRun, at: Date, cause: string): Promise<void> {
    await transaction.outbox.deleteMany({ where: { runId: run.id, sentAt: null } });
    const { coordinator } = await transaction.run.findUniqueOrThrow({ where: { id: run.id }, select: { coordinator: true } });
    await transaction.attempt.updateMany({
      where: { runId: run.id, number: run.attempt, endedAt: null },
      data: {
        endedAt: at,
        endCause: cause,
        endReason: run.statusReason,
        endRound: coordinatorOf({ coordinator, attempt: run.attempt })?.round ?? null,
      },
    });
    await transaction.stepTask.updateMany({
      where: { runId: run.id, state: { not: 'CLOSED' } },
      data: { state: 'CLOSED', closedAt: at, closeReason: `the run is ${run.status}` },
    });
  }

  /** Under the lock: gives the events their numbers. */
  async addEvents(transaction: Transaction, run: LockedRun, events: readonly NewEvent[]): Promise<void> {
    if (events.length === 0) return;
    await transaction.runEvent.createMany({
      data: events.map(({ n, message, data, ...rest }) => ({
        ...rest,
        runId: run.id,
        seq: ++run.lastEventSeq,
        n: n ?? null,
        message: storable(message).slice(0, 2000),
        data: storable(data) as Prisma.InputJsonValue,
      })),
    });
    await transaction.run.updateMany({ where: { id: run.id }, data: { lastEventSeq: run.lastEventSeq } });
  }

  /** A new reason without a new status. */
  async explain(runId: string, attempt: number, status: RunStatus, reason: string): Promise<void> {
    const { count } = await this.database.run.updateMany({
      where: { id: runId, attempt, status, NOT: { statusReason: reason } },
      data: { statusReason: reason },
    });
    if (count > 0) this.signals.changed(runId);
  }
}
