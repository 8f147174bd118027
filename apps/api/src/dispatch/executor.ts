/**
 * Carries out what `reconcile` (libs/jobs) has decided. Each action checks again, under the lock or by compare-and-set, that the
 * run is still what the decision was made for: another api or a report may have been quicker.
 */
import { Inject, Injectable } from '@nestjs/common';
import { hasLiveAttempt, placementJobId, stepTaskJobId, type DispatchAction, type RunPicture } from '@paceline/jobs';
import type { Logger } from '@paceline/runtime';
import { Database, type Transaction } from '../database/database.js';
import { LOGGER } from '../logger.js';
import { Attempts } from '../runs/attempts.js';
import { StatusMoves } from '../runs/status-moves.js';
import { Arbiter } from './arbiter.js';
import { Control } from './control.js';
import { Queues } from './queues.js';

type Of<K extends DispatchAction['kind']> = Extract<DispatchAction, { kind: K }>;

@Injectable()
export class Executor {
  constructor(
    private readonly database: Database,
    private readonly queues: Queues,
    private readonly control: Control,
    private readonly moves: StatusMoves,
    private readonly attempts: Attempts,
    private readonly arbiter: Arbiter,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  /** @throws RedisUnavailableError, or when PostgreSQL is away: what was not done is decided again in the next tick */
  async carryOut(run: RunPicture, action: DispatchAction): Promise<void> {
    const { runId, attempt } = run;
    switch (action.kind) {
      case 'write-control':
        return this.control.write(runId, action.fields);
      case 'mark-started':
        await this.database.attempt.updateMany({ where: { runId, number: attempt, startedAt: null }, data: { startedAt: new Date() } });
        return;
      case 'make-placement-again':
        return this.makePlacementAgain(run, action);
      case 'tell-lead':
        return this.arbiter.tell(runId, attempt, action.index);
      case 'open-seat':
        return this.openSeat(run, action);
      case 'close-seat':
        return this.closeSeat(run, action);
      case 'hold-seat':
        return this.holdSeat(run, action);
      case 'forget-seat-failures':
        await this.database.attempt.updateMany({ where: { runId, number: attempt }, data: { seatFailures: 0 } });
        return;
      case 'reprioritise-seat':
        return this.reprioritise(run, action);
      case 'move':
        await this.moves.move(runId, attempt, { to: action.to, reason: action.reason });
        return;
      case 'explain':
        return this.moves.explain(runId, attempt, run.status, action.reason);
      case 'end-attempt':
        if (await this.attempts.endNow(runId, attempt, action.end))
          this.log.warn({ run: runId, attempt, end: action.end }, 'an attempt ended');
        return;
      case 'begin-attempt':
        if (await this.attempts.restartNow(runId, attempt, action.reason))
          this.log.info({ run: runId, attempt: attempt + 1 }, 'an attempt begins');
    }
  }

  private async makePlacementAgain(
    { runId, attempt }: RunPicture,
    { index, role, made, serverId, why }: Of<'make-placement-again'>,
  ): Promise<void> {
    await this.database.transact(async (transaction) => {
      const { count } = await transaction.runServer.updateMany({
        where: { runId, attempt, index, role, made, serverId, run: { attempt } },
        data: {
          made: made + 1,
          madeAt: new Date(),
          serverId: null,
          host: null,
          port: null,
          unixPath: null,
          storage: null,
          claimedAt: null,
          isLoading: false,
        },
      });
      if (count === 0) return;
      await transaction.outbox.create({
        data: {
          ...{ runId, attempt, kind: 'placement' },
          jobId: placementJobId(runId, attempt, index, made + 1, role),
          payload: { index, role },
        },
      });
    });
    this.log.info({ run: runId, index, role, made: made + 1, why }, 'a placement was made again');
  }

  private async openSeat({ runId, attempt }: RunPicture, { seat, heldSeats }: Of<'open-seat'>): Promise<void> {
    await this.whileLive(runId, attempt, async (transaction) => {
      const open = await transaction.stepTask.count({ where: { runId, attempt, seat, state: 'OPEN' } });
      if (open > 0) return;
      const { _max } = await transaction.stepTask.aggregate({ where: { runId, attempt, seat }, _max: { n: true } });
      const n = (_max.n ?? -1) + 1;
      const task = await transaction.stepTask.create({ data: { runId, attempt, seat, n, heldSeats } });
      await transaction.outbox.create({
        data: { runId, attempt, kind: 'step-task', jobId: stepTaskJobId(runId, attempt, seat, n), payload: { stepTaskId: task.id } },
      });
    });
  }

  private async closeSeat({ runId, attempt }: RunPicture, { task, why }: Of<'close-seat'>): Promise<void> {
    await this.database.stepTask.updateMany({
      where: { id: task.id, state: { not: 'CLOSED' } },
      data: { state: 'CLOSED', closedAt: new Date(), closeReason: why },
    });
    await this.queues.remove('step-task', stepTaskJobId(runId, attempt, task.seat, task.n));
  }

  private async holdSeat({ runId, attempt }: RunPicture, { seat, n, workerId, replicas, isNew }: Of<'hold-seat'>): Promise<void> {
    await this.whileLive(runId, attempt, async (transaction) => {
      await transaction.stepTask.updateMany({
        where: { runId, attempt, seat, n },
        data: {
          state: 'HELD',
          workerId,
          replicas: [...replicas],
          ...(isNew ? { heldAt: new Date(), closedAt: null, closeReason: null } : {}),
        },
      });
    });
  }

  private async reprioritise({ runId, attempt }: RunPicture, { task, heldSeats }: Of<'reprioritise-seat'>): Promise<void> {
    await this.queues.reprioritise(stepTaskJobId(runId, attempt, task.seat, task.n), heldSeats);
    await this.database.stepTask.updateMany({ where: { id: task.id, state: 'OPEN', run: { attempt } }, data: { heldSeats } });
  }

  /** Under the lock of the run, as long as the attempt lives: an end closes its seats, and none is revived after it. */
  private async whileLive(runId: string, attempt: number, act: (transaction: Transaction) => Promise<void>): Promise<void> {
    await this.database.transact(async (transaction) => {
      const locked = await this.moves.lock(transaction, runId);
      if (locked?.attempt === attempt && hasLiveAttempt(locked.status)) await act(transaction);
    });
  }
}
