/** Reports that are not journals: who is there, who took a placement, whose seat failed. */
import { Inject, Injectable } from '@nestjs/common';
import {
  claimed,
  closedSeat,
  endOfComplaint,
  failedSeat,
  isToldOf,
  hasLiveAttempt,
  suspectOf,
  type AttemptEnd,
  type Report,
} from '@paceline/control-plane';
import type { Logger } from '@paceline/runtime';
import { BackgroundDatabase, type Transaction } from '../database/database.js';
import { DispatchSignal } from '../dispatch/dispatch-signal.js';
import { runsOn } from '../dispatch/shares.js';
import { Fleet } from '../fleet/fleet.js';
import { ServerHealthReader } from '../fleet/server-health.js';
import { LOGGER } from '../logger.js';
import { Attempts } from '../runs/attempts.js';
import { RunSignals } from '../runs/run-signals.js';
import { StatusMoves, type LockedRun } from '../runs/status-moves.js';
import { storable } from '../text-input.js';
import { databaseDate } from '../database/database-clock.js';

/** Signals that a process gets from its own code. */
const CRASHES = /SIG(SEGV|BUS|ILL|FPE|ABRT|TRAP)/;

type Of<K extends Report['kind']> = Extract<Report, { kind: K }>;

@Injectable()
export class FleetReports {
  constructor(
    private readonly database: BackgroundDatabase,
    private readonly fleet: Fleet,
    private readonly sightings: ServerHealthReader,
    private readonly attempts: Attempts,
    private readonly moves: StatusMoves,
    private readonly signals: RunSignals,
    private readonly dispatch: DispatchSignal,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  /** @throws when PostgreSQL is away; storing the same report again changes nothing that matters */
  async take(report: Exclude<Report, { kind: 'journal' | 'lead.asked' | 'traced' }>): Promise<void> {
    switch (report.kind) {
      case 'heartbeat':
        return this.fleet.heartbeat(report.role, report.member);
      case 'goodbye':
        this.fleet.goodbye(report.role, report.id);
        return this.dispatch.wake();
      case 'server.claimed':
        return this.serverClaimed(report);
      case 'server.failed':
        return this.serverFailed(report);
      case 'seat.failed':
        return this.seatFailed(report);
      case 'worker.died':
        return this.workerDied(report);
      case 'worker.recycled':
        return this.workerRecycled(report);
      case 'seat.left':
        return this.seatLeft(report);
    }
  }

  private async serverClaimed(report: Of<'server.claimed'>): Promise<void> {
    const { runId, attempt, role = 'primary', address } = report;
    const { index, serverId } = address;
    const isTaken = await this.underLock(runId, async (transaction, run) => {
      const where = { runId_attempt_index_role: { runId, attempt, index, role } };
      const change = claimed(run, await transaction.runServer.findUnique({ where }), storable(report), databaseDate());
      if (change) await transaction.runServer.update({ where, data: change });
      return change !== undefined;
    });
    if (isTaken) this.dispatch.wake();
    else this.log.debug({ run: runId, attempt, index, server: serverId }, 'a second claim of a placement was ignored');
  }

  private async serverFailed(report: Of<'server.failed'>): Promise<void> {
    const { runId, attempt, index, serverId, code, message } = report;
    const outcome = await this.underLock(runId, async (transaction, run) => {
      const [row, places] = await Promise.all([
        transaction.attempt.findUnique({ where: { runId_number: { runId, number: attempt } } }),
        transaction.runServer.findMany({ where: { runId, attempt } }),
      ]);
      const end = endOfComplaint(run, row, places, report);
      if (!end || !run) return 'nobody';
      return (await this.attempts.end(transaction, run, await this.shared(transaction, end, code, places))) ? 'ended' : 'late';
    });
    if (outcome === 'nobody')
      this.log.warn({ run: runId, index, server: serverId, code, message }, 'a server failed that has no part in the attempt');
    if (outcome !== 'ended') return;
    this.signals.changed(runId);
    this.dispatch.wake();
  }

  /** Whether other runs lost the coordinator's server too: then nobody is charged (restarts.ts of libs/control-plane). */
  private async shared(
    transaction: Transaction,
    end: AttemptEnd,
    code: string,
    places: readonly { index: number; serverId: string | null }[],
  ): Promise<AttemptEnd> {
    const lost = places.flatMap(({ index, serverId }) => (index === 0 && serverId ? [serverId] : []));
    if (end.kind !== 'failed' || code !== 'COORDINATOR_LOST') return end;
    const runs = await runsOn(transaction, lost);
    return lost.some((serverId) => (runs.get(serverId) ?? 1) > 1) ? { ...end, isShared: true } : end;
  }

  private async seatFailed(report: Of<'seat.failed'>): Promise<void> {
    const { runId, attempt, seat, incarnation, workerId, serverIndex } = report;
    if (serverIndex !== null) {
      const suspect = suspectOf(await this.database.runServer.findMany({ where: { runId, attempt } }), serverIndex);
      if (suspect) this.sightings.suspect(suspect);
    }
    const known = await this.underLock(runId, async (transaction, run) => {
      const at = databaseDate();
      const where = { runId_number: { runId, number: attempt } };
      const [row, told] = await Promise.all([
        transaction.attempt.findUnique({ where }),
        transaction.runEvent.findMany({
          // `sequence`: the events of the control plane itself. The index leaves out what came in journals.
          where: {
            runId,
            attempt,
            sequence: null,
            type: 'seat.failed',
            AND: [{ data: { path: ['seat'], equals: seat } }, { data: { path: ['incarnation'], equals: incarnation } }],
          },
          select: { data: true },
        }),
      ]);
      const failed = failedSeat(run, row, isToldOf(told, storable({ seat, incarnation, workerId })), storable(report), at);
      if (!failed || !run) return false;
      await transaction.attempt.update({ where, data: failed.attempt });
      await transaction.stepTask.updateMany({ where: { runId, attempt, seat, incarnation, state: 'OPEN' }, data: failed.closes });
      await this.moves.addEvents(transaction, run, [{ ...failed.event, at }]);
      return true;
    });
    if (known) this.signals.changed(runId);
  }

  /** @param act what follows is decided from rows that nobody changes meanwhile */
  private underLock<T>(runId: string, act: (transaction: Transaction, run: LockedRun | undefined) => Promise<T>): Promise<T> {
    return this.database.transact(async (transaction) => act(transaction, await this.moves.lock(transaction, runId)));
  }

  /** Its run goes on without it; this says why. */
  private async workerDied({ workerId, how }: Of<'worker.died'>): Promise<void> {
    const row = (await this.fleet.members('worker')).find(({ id }) => id === workerId);
    this.log.warn({ worker: workerId, how, run: row?.runId }, 'a worker process died');
    if (!row?.runId || row.hasLeft) return;
    const { runId } = row;
    await this.underLock(runId, async (transaction, run) => {
      if (!run || !hasLiveAttempt(run.status)) return;
      const message = `the process of worker ${workerId} ${how}${CRASHES.test(how) ? ': native code of its engine has crashed' : ''}; its replicas are computed by others`;
      await this.moves.addEvents(transaction, run, [
        { attempt: run.attempt, type: 'worker.died', message: storable(message), data: { workerId, how: storable(how) }, at: new Date() },
      ]);
    });
    this.fleet.goodbye('worker', workerId);
    this.signals.changed(runId);
  }

  /** It leaves and comes back by itself; this says why. */
  private async workerRecycled({ runId, attempt, workerId, what, suspect, message }: Of<'worker.recycled'>): Promise<void> {
    const known = await this.database.transact(async (transaction) => {
      const run = await this.moves.lock(transaction, runId);
      if (run?.attempt !== attempt || !hasLiveAttempt(run.status)) return false;
      const data = { workerId, what, suspect: suspect === null ? null : storable(suspect) };
      await this.moves.addEvents(transaction, run, [
        { attempt, type: 'worker.recycled', message: storable(message), data, at: new Date() },
      ]);
      return true;
    });
    if (known) this.signals.changed(runId);
    else this.log.warn({ run: runId, worker: workerId, what, suspect }, message);
  }

  /** A planned leave: the seat is free before the coordinator's next state says so. */
  private async seatLeft({ runId, attempt, seat, incarnation, reason }: Of<'seat.left'>): Promise<void> {
    const { count } = await this.database.stepTask.updateMany({
      where: { runId, attempt, seat, incarnation, state: { not: 'CLOSED' } },
      data: closedSeat(storable(reason), databaseDate()),
    });
    if (count > 0) this.dispatch.wake();
  }
}
