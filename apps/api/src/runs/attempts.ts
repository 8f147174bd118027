/**
 * Attempts begin and end here, each in one transaction under the lock of the run's row, whoever wants it: the dispatcher, a
 * coordinator's report, a person. What follows from an end is decided by `afterEnd`, where an attempt takes up by `nextRestore`
 * (both in libs/jobs).
 *
 *     end ──> PAUSED, FAILED, ... or RECOVERING with the time of the next attempt
 *     begin ──> attempt + 1, its parent (attempt, round), its servers and their outbox rows; QUEUED
 */
import { Injectable } from '@nestjs/common';
import {
  afterEnd,
  coordinatorOf,
  letGo,
  lineageOf,
  nextRestore,
  originOf,
  parentOf,
  placesOf,
  waitingAt,
  type AfterEnd,
  type AttemptEnd,
  type RestoreDecision,
} from '@paceline/jobs';
import type { RunSpec } from '@paceline/spec';
import { Database, type Transaction } from '../database/database.js';
import type { Prisma } from '../generated/prisma/client.js';
import { specOf } from './run-row.js';
import { RunSignals } from './run-signals.js';
import { StatusMoves, type LockedRun } from './status-moves.js';

const WITHIN = {
  spec: true,
  coordinator: true,
  attempt: true,
  cancelRequestedAt: true,
  restartsUsed: true,
  restartsTotal: true,
  bestRound: true,
} as const;

@Injectable()
export class Attempts {
  constructor(
    private readonly database: Database,
    private readonly moves: StatusMoves,
    private readonly signals: RunSignals,
  ) {}

  /** In a transaction of its own. @returns false when the attempt is not the present one or is over already */
  async endNow(runId: string, attempt: number, end: AttemptEnd): Promise<boolean> {
    const ended = await this.database.transact(async (transaction) => {
      const run = await this.moves.lock(transaction, runId);
      return run?.attempt === attempt && (await this.end(transaction, run, end)).to !== undefined;
    });
    if (ended) this.signals.changed(runId);
    return ended;
  }

  /** Under the lock. @param set fields that change with the status, for example the result */
  async end(transaction: Transaction, run: LockedRun, end: AttemptEnd, set: Prisma.RunUncheckedUpdateManyInput = {}): Promise<AfterEnd> {
    const row = await transaction.run.findUniqueOrThrow({ where: { id: run.id }, select: WITHIN });
    const attempt = await transaction.attempt.findUniqueOrThrow({ where: { runId_number: { runId: run.id, number: run.attempt } } });
    const after = afterEnd(
      {
        status: run.status,
        isCancelWanted: row.cancelRequestedAt !== null,
        restarts: specOf(row).restarts,
        count: { used: row.restartsUsed, total: row.restartsTotal, bestRound: Number(row.bestRound) },
        committedRounds: coordinatorOf(row)?.round ?? Number(attempt.parentRound ?? 0),
      },
      end,
      Math.random,
    );
    if (after.to === undefined) return after;
    const cause = end.kind === 'failed' ? end.cause : end.kind.toUpperCase();
    if (cause === 'CHECKPOINT_INVALID' && attempt.parentNumber !== null) {
      const where = { runId: attempt.parentRunId ?? run.id, attempt: attempt.parentNumber, round: Number(attempt.parentRound) };
      await transaction.checkpoint.updateMany({ where: { ...where, invalidAt: null }, data: { invalidAt: new Date() } });
    }
    if (after.to === 'PAUSED' && run.status === 'RUNNING') await this.moves.apply(transaction, run, { to: 'PAUSING', reason: end.message });
    await this.moves.apply(transaction, run, {
      to: after.to,
      reason: after.reason,
      cause,
      set: {
        restartsUsed: after.count.used,
        restartsTotal: after.count.total,
        bestRound: after.count.bestRound,
        nextAttemptAt: after.restartAfterMs === null ? null : new Date(Date.now() + after.restartAfterMs),
        pauseRequestedAt: null,
        ...set,
      },
    });
    return after;
  }

  /** The next attempt of a RECOVERING run, when its pause is over. @returns false when it is not to begin (any more) */
  async restartNow(runId: string, attempt: number, reason: string): Promise<boolean> {
    const begun = await this.database.transact(async (transaction) => {
      const run = await this.moves.lock(transaction, runId);
      if (run?.attempt !== attempt || run.status !== 'RECOVERING') return false;
      return this.begin(transaction, run, reason);
    });
    if (begun) this.signals.changed(runId);
    return begun;
  }

  /**
   * Under the lock, for a run without a live attempt.
   * @param set fields that change with it, for example a longer spec
   * @returns false when there is nothing that it could go on from: the run is FAILED then
   */
  async begin(transaction: Transaction, run: LockedRun, reason: string, set: Prisma.RunUncheckedUpdateManyInput = {}): Promise<boolean> {
    const from = await this.nextRestore(transaction, run);
    if (from.kind === 'nothing') {
      const text =
        'the checkpoint of another run that it began with cannot be loaded any more; create the run again from another checkpoint';
      await this.moves.apply(transaction, run, { to: 'FAILED', reason: text });
      return false;
    }
    const restore = from.kind === 'checkpoint' ? from.restore : null;
    const round = restore?.round ?? 0;
    const number = run.attempt + 1;
    await transaction.run.updateMany({
      where: { id: run.id },
      data: {
        ...set,
        attempt: number,
        coordinator: waitingAt(number, round) as unknown as Prisma.InputJsonObject,
        coordinatorAt: null,
        nextAttemptAt: null,
        pauseRequestedAt: null,
        finishedAt: null,
      },
    });
    run.attempt = number;
    await transaction.attempt.create({ data: { runId: run.id, number, ...parentOf(run.id, restore) } });
    const row = await transaction.run.findUniqueOrThrow({ where: { id: run.id }, select: { spec: true } });
    await placeServers(transaction, run.id, number, specOf(row));
    const where = restore ? `from the checkpoint of round ${round}` : 'from round 0';
    await this.moves.apply(transaction, run, { to: 'QUEUED', reason: `${reason} ${where}` });
    return true;
  }

  /** Under the lock: marks what the servers remove after a new checkpoint. */
  async forgetRemoved(transaction: Transaction, run: Pick<LockedRun, 'id' | 'attempt'>): Promise<void> {
    const runId = run.id;
    const [{ spec }, attempts, rows] = await Promise.all([
      transaction.run.findUniqueOrThrow({ where: { id: runId }, select: { spec: true } }),
      transaction.attempt.findMany({ where: { runId } }),
      transaction.checkpoint.findMany({ where: { runId, invalidAt: null, removedAt: null } }),
    ]);
    const lineage = lineageOf(attempts.map(originOf), run.attempt);
    const present = rows.map(({ attempt, round, loss }) => ({ attempt, round, loss, isGone: false }));
    const gone = letGo(lineage, present, specOf({ spec }).checkpoint);
    if (gone.length === 0) return;
    await transaction.checkpoint.updateMany({
      where: { runId, OR: gone.map(({ attempt, round }) => ({ attempt, round })) },
      data: { removedAt: new Date() },
    });
  }

  /** What the attempt after the present one begins with. */
  async nextRestore(transaction: Transaction, run: Pick<LockedRun, 'id' | 'attempt'>): Promise<RestoreDecision> {
    const [attempts, checkpoints] = await Promise.all([
      transaction.attempt.findMany({ where: { runId: run.id }, orderBy: { number: 'asc' } }),
      transaction.checkpoint.findMany({ where: { runId: run.id, invalidAt: null, removedAt: null } }),
    ]);
    const foreign = attempts.find(({ parentRunId }) => parentRunId !== null);
    const origin =
      foreign &&
      (await transaction.checkpoint.findUnique({
        where: {
          runId_attempt_round: { runId: foreign.parentRunId!, attempt: foreign.parentNumber!, round: Number(foreign.parentRound) },
        },
      }));
    return nextRestore(
      run.id,
      attempts.map(originOf),
      run.attempt,
      checkpoints.map(({ attempt, round }) => ({ attempt, round, isGone: false })),
      foreign !== undefined && (!origin || origin.invalidAt !== null || origin.removedAt !== null),
    );
  }
}

/** The parts of an attempt, and the placement jobs that offer them. */
export async function placeServers(
  transaction: Transaction,
  runId: string,
  attempt: number,
  spec: Pick<RunSpec, 'strategy'>,
): Promise<void> {
  const places = placesOf(runId, attempt, spec);
  await transaction.runServer.createMany({ data: places.map(({ index, role }) => ({ runId, attempt, index, role })) });
  await transaction.outbox.createMany({
    data: places.map(({ index, role, jobId }) => ({ runId, attempt, kind: 'placement', jobId, payload: { index, role } })),
  });
}
