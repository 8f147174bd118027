/**
 * Carries out what `reconcile` (libs/control-plane) has decided, each action in one transaction under the lock of the run's row: `isDue` says whether
 * the run is still what the decision was made for (another api or a report may have been quicker), and libs/control-plane which rows change to what.
 */
import { Inject, Injectable } from '@nestjs/common';
import {
  ackFieldName,
  closedSeat,
  heldSeat,
  isDue,
  madeAgain,
  openedSeat,
  pinsText,
  stepTaskJobId,
  type ControlFields,
  type DispatchAction,
  type ObservedRun,
} from '@paceline/control-plane';
import type { Logger } from '@paceline/runtime';
import { BackgroundDatabase, type Transaction } from '../database/database.js';
import { LOGGER } from '../logger.js';
import { Attempts } from '../runs/attempts.js';
import { RunSignals } from '../runs/run-signals.js';
import { pinnedOf } from '../runs/pinned-checkpoints.js';
import { StatusMoves, type LockedRun } from '../runs/status-moves.js';
import { storable } from '../text-input.js';
import { ShardLeads } from './shard-leads.js';
import { ControlHashes } from './control-hashes.js';
import { Queues } from './queues.js';
import { seatsOfTeam } from './shares.js';
import { databaseDate } from '../database/database-clock.js';

type Of<K extends DispatchAction['kind']> = Extract<DispatchAction, { kind: K }>;
/** What is left after those that only Redis is told. */
type RowAction = Exclude<DispatchAction, { kind: 'write-control' | 'tell-lead' }>;
/** Those that people see at once. */
const RUN_ACTIONS: readonly string[] = ['move', 'explain', 'change-workers', 'end-attempt', 'begin-attempt'];

@Injectable()
export class Executor {
  constructor(
    private readonly database: BackgroundDatabase,
    private readonly queues: Queues,
    private readonly control: ControlHashes,
    private readonly moves: StatusMoves,
    private readonly attempts: Attempts,
    private readonly shardLeads: ShardLeads,
    private readonly signals: RunSignals,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  /** @throws RedisUnavailableError, or when PostgreSQL is away: what was not done is decided again in the next tick */
  async carryOut(run: ObservedRun, action: DispatchAction): Promise<void> {
    const { runId, attempt } = run;
    if (action.kind === 'write-control') return this.control.write(runId, await this.withPins(runId, attempt, action.fields));
    if (action.kind === 'tell-lead') return this.shardLeads.tell(runId, attempt, action.index);
    const jobId = 'task' in action ? stepTaskJobId(runId, attempt, action.task.seat, action.task.incarnation) : '';
    if (action.kind === 'reprioritise-seat') await this.reprioritise(jobId, runId, action.heldSeats);
    const isDone = await this.database.transact(async (transaction) => {
      const locked = await this.moves.lock(transaction, runId);
      return locked !== undefined && isDue(locked, run, action) && (await this.inTransaction(transaction, locked, action));
    });
    if (action.kind === 'close-seat') await this.queues.remove('step-task', jobId);
    if (!isDone) return;
    if (RUN_ACTIONS.includes(action.kind)) this.signals.changed(runId);
    this.tell(run, action);
  }

  /** Where Redis has lost what a coordinator was told, it has lost the checkpoints that others need too. */
  private async withPins(runId: string, attempt: number, fields: ControlFields): Promise<ControlFields> {
    if (fields[ackFieldName(attempt)] === undefined) return fields;
    return Object.assign({ pins: pinsText(await pinnedOf(this.database, runId)) }, fields);
  }

  private async reprioritise(jobId: string, runId: string, heldSeats: number): Promise<void> {
    await this.queues.reprioritise(jobId, heldSeats, await seatsOfTeam(this.database, runId));
  }

  /** @returns whether anything has changed */
  private async inTransaction(transaction: Transaction, run: LockedRun, action: RowAction): Promise<boolean> {
    const now = databaseDate();
    const ofAttempt = { runId: run.id, number: run.attempt };
    switch (action.kind) {
      case 'mark-started':
        return hits(transaction.attempt.updateMany({ where: { ...ofAttempt, startedAt: null }, data: { startedAt: now } }));
      case 'make-placement-again':
        return this.makePlacementAgain(transaction, run, action, now);
      case 'open-seat':
        return this.openSeat(transaction, run, action);
      case 'close-seat': {
        const where = { id: action.task.id, state: { not: 'CLOSED' } } as const;
        return hits(transaction.stepTask.updateMany({ where, data: closedSeat(action.why, now) }));
      }
      case 'hold-seat':
        return this.holdSeat(transaction, run, action, now);
      case 'forget-seat-failures':
        return hits(transaction.attempt.updateMany({ where: ofAttempt, data: { seatFailures: 0 } }));
      case 'reprioritise-seat': {
        const { task, heldSeats } = action;
        return hits(transaction.stepTask.updateMany({ where: { id: task.id, state: 'OPEN' }, data: { heldSeats } }));
      }
      case 'move':
        return this.moves.apply(transaction, run, { to: action.to, reason: action.reason });
      case 'explain': {
        const statusReason = storable(action.reason);
        if (run.statusReason === statusReason) return false;
        return hits(transaction.run.updateMany({ where: { id: run.id }, data: { statusReason, isWaiting: action.isWaiting } }));
      }
      case 'change-workers':
        return this.attempts.changeWorkers(transaction, run, action);
      case 'end-attempt':
        return this.attempts.end(transaction, run, action.end);
      case 'begin-attempt':
        return this.attempts.begin(transaction, run, action.reason, {}, action.keepsWorkers);
    }
  }

  private tell({ runId, attempt }: ObservedRun, action: RowAction): void {
    if (action.kind === 'make-placement-again') {
      const { index, role, incarnation, why } = action;
      this.log.info({ run: runId, index, role, incarnation: incarnation + 1, why }, 'a placement was made again');
    } else if (action.kind === 'end-attempt') this.log.warn({ run: runId, attempt, end: action.end }, 'an attempt ended');
    else if (action.kind === 'begin-attempt') this.log.info({ run: runId, attempt: attempt + 1 }, 'an attempt begins');
  }

  private async makePlacementAgain(
    transaction: Transaction,
    run: LockedRun,
    action: Of<'make-placement-again'>,
    now: Date,
  ): Promise<boolean> {
    const { id: runId, attempt } = run;
    const { index, role } = action;
    const where = { runId_attempt_index_role: { runId, attempt, index, role } };
    const again = madeAgain(run, await transaction.runServer.findUnique({ where }), action, now);
    if (!again) return false;
    await transaction.runServer.update({ where, data: again.place });
    await transaction.outbox.create({ data: { runId, attempt, kind: 'placement', jobId: again.jobId, payload: { index, role } } });
    return true;
  }

  private async openSeat(transaction: Transaction, run: LockedRun, action: Of<'open-seat'>): Promise<boolean> {
    const { id: runId, attempt } = run;
    const where = { runId, attempt, seat: action.seat };
    const isOpen = (await transaction.stepTask.count({ where: { ...where, state: 'OPEN' } })) > 0;
    const { _max } = await transaction.stepTask.aggregate({ where, _max: { incarnation: true } });
    const opened = openedSeat(run, action, { isOpen, lastIncarnation: _max.incarnation });
    if (!opened) return false;
    const { jobId, ...row } = opened;
    const task = await transaction.stepTask.create({ data: { runId, attempt, ...row } });
    await transaction.outbox.create({ data: { runId, attempt, kind: 'step-task', jobId, payload: { stepTaskId: task.id } } });
    return true;
  }

  private async holdSeat(transaction: Transaction, run: LockedRun, action: Of<'hold-seat'>, now: Date): Promise<boolean> {
    const { seat, incarnation } = action;
    const where = { runId_attempt_seat_incarnation: { runId: run.id, attempt: run.attempt, seat, incarnation } };
    const held = heldSeat(await transaction.stepTask.findUnique({ where }), action, now);
    if (held) await transaction.stepTask.update({ where, data: held });
    return held !== undefined;
  }
}

const hits = async (updated: Promise<{ readonly count: number }>): Promise<boolean> => (await updated).count > 0;
