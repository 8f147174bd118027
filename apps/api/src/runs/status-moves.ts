/** Changes of a run's status and its events, always under the lock of the run's row, so that `seq` has no gap and no double. */
import { Injectable } from '@nestjs/common';
import { Database, type Transaction } from '../database/database.js';
import type { Prisma } from '../generated/prisma/client.js';
import { storable } from '../text-input.js';
import { columnsOf } from './run-row.js';
import { RunSignals } from './run-signals.js';
import {
  closedSeat,
  coordinatorOf,
  movedTo,
  resultKeptBy,
  type Moved,
  type RunStatus,
  type StatusMove,
  type StoredEvent,
} from '@paceline/control-plane';
import { databaseDate } from '../database/database-clock.js';

/** A run's row, locked until the transaction ends. `seq` numbers are taken from it by whoever holds it. */
export interface LockedRun {
  readonly id: string;
  status: RunStatus;
  statusReason: string | null;
  attempt: number;
  lastEventSeq: number;
  lastMetricSeq: number;
}

export interface NewEvent extends StoredEvent {
  /** Number in the coordinator's journal. */
  readonly sequence?: number;
  readonly at: Date;
}

/** With the fields that change together with the status. */
export type Move = StatusMove<Prisma.RunUncheckedUpdateManyInput>;

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
  async apply(transaction: Transaction, run: LockedRun, asked: Move): Promise<boolean> {
    const move = asked.to === 'FAILED' || asked.to === 'CANCELLED' ? await this.keepResult(transaction, run, asked) : asked;
    const { to, set } = move;
    const at = databaseDate();
    const moved = movedTo(run, { ...move, reason: storable(move.reason) }, at);
    if (!moved) return false;
    const from = run.status;
    const { statusReason: text } = moved.run;
    const { event } = moved;
    run.status = to;
    run.statusReason = text;
    await transaction.run.updateMany({ where: { id: run.id }, data: { ...moved.run, ...set } });
    if (to === 'RUNNING') await transaction.run.updateMany({ where: { id: run.id, startedAt: null }, data: { startedAt: at } });
    await transaction.runStatusChange.create({ data: { runId: run.id, from, to, reason: text, attempt: run.attempt, at } });
    await this.addEvents(transaction, run, [{ ...event, at }]);
    if (moved.ends) await this.endAttempt(transaction, run, moved.ends);
    return true;
  }

  private async keepResult(transaction: Transaction, { id, status }: LockedRun, move: Move): Promise<Move> {
    const row = await transaction.run.findUniqueOrThrow({ where: { id }, select: { result: true, spec: true, roundsPerEpoch: true } });
    const kept = resultKeptBy({ ...row, status }, { ...move, set: {} });
    return kept ? { ...kept, set: { ...move.set, ...columnsOf(kept.set ?? {}) } } : move;
  }

  /** Nothing of the attempt is asked of the fleet any more. */
  private async endAttempt(transaction: Transaction, run: LockedRun, { why, ...end }: NonNullable<Moved['ends']>): Promise<void> {
    await transaction.outbox.deleteMany({ where: { runId: run.id, sentAt: null } });
    const { coordinator } = await transaction.run.findUniqueOrThrow({ where: { id: run.id }, select: { coordinator: true } });
    await transaction.attempt.updateMany({
      where: { runId: run.id, number: run.attempt, endedAt: null },
      data: { ...end, endRound: coordinatorOf({ coordinator, attempt: run.attempt })?.round ?? null },
    });
    await transaction.stepTask.updateMany({
      where: { runId: run.id, state: { not: 'CLOSED' } },
      data: closedSeat(why, end.endedAt),
    });
  }

  /** Under the lock: gives the events their numbers. */
  async addEvents(transaction: Transaction, run: LockedRun, events: readonly NewEvent[]): Promise<void> {
    if (events.length === 0) return;
    await transaction.runEvent.createMany({
      data: events.map(({ sequence, message, data, ...rest }) => ({
        ...rest,
        runId: run.id,
        seq: ++run.lastEventSeq,
        sequence: sequence ?? null,
        message: storable(message).slice(0, 2000),
        data: storable(data) as Prisma.InputJsonValue,
      })),
    });
    await transaction.run.updateMany({ where: { id: run.id }, data: { lastEventSeq: run.lastEventSeq } });
  }
}
