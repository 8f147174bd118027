/**
 * Attempts begin and end here, each in one transaction under the lock of the run's row, whoever wants it: the dispatcher, a
 * coordinator's report, a person. What changes is decided by `endedAttempt` and `begunAttempt` (libs/control-plane).
 *
 *     end ──> PAUSED, FAILED, ... or RECOVERING with the time of the next attempt
 *     begin ──> attempt + 1, its parent (attempt, round), its servers and their outbox rows; QUEUED
 */
import { Injectable } from '@nestjs/common';
import {
  begunAttempt,
  endedAttempt,
  letGo,
  lineageOf,
  nextRestore,
  originOf,
  placesOf,
  requested,
  type AttemptEnd,
  type RequestStep,
  type RestoreDecision,
  type RunChange,
} from '@paceline/control-plane';
import type { RunSpec } from '@paceline/spec';
import type { Transaction } from '../database/database.js';
import type { Prisma } from '../generated/prisma/client.js';
import { WITH_SPEC } from './run-columns.js';
import { columnsOf, shortSpecOf } from './run-row.js';
import { StatusMoves, type LockedRun } from './status-moves.js';
import { pinnedOf } from './pinned-checkpoints.js';
import { databaseDate } from '../database/database-clock.js';

@Injectable()
export class Attempts {
  constructor(private readonly moves: StatusMoves) {}

  /** Under the lock. @param set fields that change with the status, for example the result @returns whether it has ended just now */
  async end(transaction: Transaction, run: LockedRun, end: AttemptEnd, set: Prisma.RunUncheckedUpdateManyInput = {}): Promise<boolean> {
    const [row, attempt] = await Promise.all([
      transaction.run.findUniqueOrThrow({ where: { id: run.id }, omit: WITH_SPEC }),
      transaction.attempt.findUniqueOrThrow({ where: { runId_number: { runId: run.id, number: run.attempt } } }),
    ]);
    const { moves, invalid } = endedAttempt(row, attempt, end, databaseDate(), Math.random);
    if (invalid) {
      const { runId, attempt: number, round } = invalid;
      await transaction.checkpoint.updateMany({
        where: { runId, attempt: number, round, invalidAt: null },
        data: { invalidAt: new Date() },
      });
    }
    for (const { set: change, ...move } of moves)
      await this.moves.apply(transaction, run, change ? { ...move, set: { ...columnsOf(change), ...set } } : move);
    return moves.length > 0;
  }

  /**
   * Under the lock, for a run without a live attempt.
   * @param set fields that change with it, for example a longer spec
   * @param keepsWorkers another number of workers that hold the shards stays wanted
   * @returns false when there is nothing that it could go on from: the run is FAILED then
   */
  async begin(transaction: Transaction, run: LockedRun, reason: string, set: RunChange = {}, keepsWorkers = false): Promise<boolean> {
    const { id } = run;
    const present = await transaction.run.findUniqueOrThrow({ where: { id }, select: { attempt: true, spec: true, workersWanted: true } });
    const restore = await this.nextRestore(transaction, run, set.totalRounds);
    const { attempt, run: change, move } = begunAttempt(Object.assign({ id }, present, set), restore, reason, keepsWorkers);
    if (!attempt) {
      await this.moves.apply(transaction, run, move);
      return false;
    }
    await transaction.run.updateMany({ where: { id: run.id }, data: columnsOf({ ...set, ...change }) });
    run.attempt = attempt.number;
    await transaction.attempt.create({ data: { runId: run.id, ...attempt } });
    await placeServers(transaction, id, attempt.number, (change.spec ?? set.spec ?? present.spec) as RunSpec);
    await this.moves.apply(transaction, run, move);
    return true;
  }

  /** Under the lock: what the run does by itself, as if somebody had asked for it. @returns whether it is another number */
  async changeWorkers(
    transaction: Transaction,
    run: LockedRun,
    asked: { readonly workers: number; readonly why: string },
  ): Promise<boolean> {
    const row = await transaction.run.findUniqueOrThrow({ where: { id: run.id }, omit: WITH_SPEC });
    const step = requested(row, Object.assign({ request: 'scale' as const }, asked), databaseDate());
    if (step.does === 'set') await this.store(transaction, run, step);
    return step.does === 'set';
  }

  /** Under the lock: what is asked for without a move of the status. */
  async store(transaction: Transaction, run: LockedRun, { run: change, event }: Extract<RequestStep, { does: 'set' }>): Promise<void> {
    await transaction.run.updateMany({ where: { id: run.id }, data: columnsOf(change) });
    await this.moves.addEvents(transaction, run, event ? [{ attempt: run.attempt, at: new Date(), ...event }] : []);
  }

  /** Under the lock: marks what the servers remove after a new checkpoint. */
  async forgetRemoved(transaction: Transaction, run: Pick<LockedRun, 'id' | 'attempt'>): Promise<void> {
    const runId = run.id;
    const [row, attempts, rows] = await Promise.all([
      transaction.run.findUniqueOrThrow({ where: { id: runId }, select: { shortSpec: true } }),
      transaction.attempt.findMany({ where: { runId } }),
      transaction.checkpoint.findMany({ where: { runId, invalidAt: null, removedAt: null } }),
    ]);
    const lineage = lineageOf(attempts.map(originOf), run.attempt);
    const present = rows.map(({ attempt, round, loss, isBest }) => ({ attempt, round, loss, isBest, isGone: false }));
    const gone = letGo(lineage, present, shortSpecOf(row).checkpoint, await pinnedOf(transaction, runId));
    if (gone.length === 0) return;
    await transaction.checkpoint.updateMany({
      where: { runId, OR: gone.map(({ attempt, round }) => ({ attempt, round })) },
      data: { removedAt: new Date() },
    });
  }

  /** What the attempt after the present one begins with. @param totalRounds that the run is to have then */
  async nextRestore(transaction: Transaction, run: Pick<LockedRun, 'id' | 'attempt'>, totalRounds?: number): Promise<RestoreDecision> {
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
      totalRounds,
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
