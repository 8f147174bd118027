/**
 * Seats of a run (ROUNDS §7). The coordinator owns them: what it reports is true, and the rows here follow.
 *
 *     OPEN ─ reported as held ─> HELD ─ not reported any more ─> CLOSED
 *       └── its job is gone and nobody holds the seat ─────────────^
 *
 * As long as fewer seats are held than the run has replicas, exactly one seat is open: an idle worker finds it, a busy one
 * sees that another run waits. A seat that failed is made again after a pause that doubles.
 */
import { Inject, Injectable } from '@nestjs/common';
import { stepTaskJobId } from '@paceline/jobs';
import type { Logger } from '@paceline/runtime';
import { Database } from '../database/database.js';
import { LOGGER } from '../logger.js';
import { StatusMoves } from '../runs/status-moves.js';
import type { ActiveRun } from './active-run.js';
import { Queues } from './queues.js';

/** From taking a job to being seated, a worker loads its engine and its data. */
const SEATED_WITHIN_MS = 30_000;
/** A worker that finished its job is seated or not; the coordinator's next state tells. */
const STATE_GRACE_MS = 2_500;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
/** With nobody in a seat, so many failures in a row end the attempt: no worker of the fleet can run it. */
const MAX_SEAT_FAILURES = 8;

type Task = ActiveRun['openTasks'][number];

@Injectable()
export class Seats {
  /** Open tasks whose job was not waiting, since when. */
  private readonly notWaitingSince = new Map<string, number>();

  constructor(
    private readonly database: Database,
    private readonly queues: Queues,
    private readonly moves: StatusMoves,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  async reconcile(run: ActiveRun): Promise<void> {
    const open = await this.follow(run);
    const held = run.coordinator?.seats.length ?? 0;
    if (run.coordinator && ['finished', 'cancelled', 'failed', 'evaluating'].includes(run.coordinator.phase) && held > 0) {
      // Nobody needs another seat for what is left.
      for (const task of open) await this.close(task, 'the run is about to end');
      return;
    }
    if (held === 0 && run.attempt.seatFailures >= MAX_SEAT_FAILURES) return this.giveUp(run);
    const [first, ...others] = open;
    for (const task of others) await this.close(task, 'another seat is open');
    if (held >= run.replicas) {
      if (first) await this.close(first, 'every replica has a worker');
    } else if (first) await this.keepOpen(run, first, held);
    else await this.open(run, held);
  }

  /** Brings the rows to what the coordinator reports; returns the tasks that are still open. */
  private async follow(run: ActiveRun): Promise<Task[]> {
    const { coordinator, row } = run;
    if (!coordinator) return run.openTasks;
    const reportedAt = row.coordinatorAt ?? new Date(0);
    const isHeld = ({ seat, n }: { seat: number; n: number }) => coordinator.seats.some((held) => held.seat === seat && held.n === n);
    for (const { seat, n, workerId, replicas } of coordinator.seats) {
      const known = run.heldTasks.find((task) => task.seat === seat && task.n === n);
      if (known && known.workerId === workerId && String(known.replicas) === String(replicas)) continue;
      const where = { runId: row.id, attempt: row.attempt, seat, n };
      const data = {
        state: 'HELD',
        workerId,
        replicas,
        ...(known ? {} : { heldAt: new Date(), closedAt: null, closeReason: null }),
      } as const;
      await this.database.stepTask.updateMany({ where, data });
      if (!known && run.attempt.seatFailures > 0)
        await this.database.attempt.updateMany({ where: { runId: row.id, number: row.attempt }, data: { seatFailures: 0 } });
    }
    for (const task of run.heldTasks) {
      if (!isHeld(task) && reportedAt > (task.heldAt ?? task.createdAt)) await this.close(task, 'its worker left the seat');
    }
    return run.openTasks.filter((task) => !isHeld(task));
  }

  private async keepOpen(run: ActiveRun, task: Task, held: number): Promise<void> {
    const jobId = stepTaskJobId(task.runId, task.attempt, task.seat, task.n);
    const state = await this.queues.stateOf('step-task', jobId);
    if (state === 'waiting') {
      this.notWaitingSince.delete(task.id);
      if (task.heldSeats === held) return;
      await this.queues.reprioritise(jobId, held);
      await this.database.stepTask.updateMany({ where: { id: task.id }, data: { heldSeats: held } });
      return;
    }
    if (state === 'missing' && (await this.database.outbox.count({ where: { jobId, sentAt: null } })) > 0) return;
    const since = this.notWaitingSince.get(task.id) ?? Date.now();
    if (this.notWaitingSince.size > 10_000) this.notWaitingSince.clear();
    this.notWaitingSince.set(task.id, since);
    const graceMs = state === 'active' ? SEATED_WITHIN_MS : STATE_GRACE_MS;
    if (Date.now() - since < graceMs) return;
    this.notWaitingSince.delete(task.id);
    await this.close(
      task,
      state === 'active' ? 'its worker did not take the seat in time' : `its job was ${state} and nobody holds the seat`,
    );
    await this.open(run, held);
  }

  private async open(run: ActiveRun, heldSeats: number): Promise<void> {
    const { id: runId, attempt } = run.row;
    const { seatFailures, lastFailureAt } = run.attempt;
    const pauseMs = seatFailures === 0 ? 0 : Math.min(FIRST_PAUSE_MS * 2 ** (seatFailures - 1), LONGEST_PAUSE_MS);
    if (lastFailureAt && Date.now() - lastFailureAt.getTime() < pauseMs) return;
    const taken = new Set(run.coordinator?.seats.map(({ seat }) => seat));
    let seat = 0;
    while (taken.has(seat)) seat++;
    await this.database.transact(async (transaction) => {
      const locked = await this.moves.lock(transaction, runId);
      if (locked?.attempt !== attempt) return;
      const open = await transaction.stepTask.count({ where: { runId, attempt, state: 'OPEN' } });
      if (open > 0) return;
      const { _max } = await transaction.stepTask.aggregate({ where: { runId, attempt, seat }, _max: { n: true } });
      const n = (_max.n ?? -1) + 1;
      const task = await transaction.stepTask.create({ data: { runId, attempt, seat, n, heldSeats } });
      await transaction.outbox.create({
        data: { runId, attempt, kind: 'step-task', jobId: stepTaskJobId(runId, attempt, seat, n), payload: { stepTaskId: task.id } },
      });
    });
  }

  private async close(task: Task, closeReason: string): Promise<void> {
    await this.database.stepTask.updateMany({
      where: { id: task.id, state: { not: 'CLOSED' } },
      data: { state: 'CLOSED', closedAt: new Date(), closeReason },
    });
    await this.queues.remove('step-task', stepTaskJobId(task.runId, task.attempt, task.seat, task.n));
  }

  private async giveUp(run: ActiveRun): Promise<void> {
    const [last] = await this.database.runEvent.findMany({
      where: { runId: run.row.id, type: 'seat.failed' },
      orderBy: { seq: 'desc' },
      take: 1,
    });
    const reason = `no worker can take a seat: ${run.attempt.seatFailures} failed in a row; the last one: ${last?.message ?? 'unknown'}`;
    if (await this.moves.move(run.row.id, run.row.attempt, { to: 'FAILED', reason })) this.log.warn({ run: run.row.id }, reason);
  }
}
