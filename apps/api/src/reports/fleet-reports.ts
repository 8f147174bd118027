/** Reports that are not journals: who is there, who took a placement, whose seat failed. */
import { Inject, Injectable } from '@nestjs/common';
import { causeOfComplaint, complaintCounts, hasLiveAttempt, placeOf, seatFailureOf, shardsOf, type Report } from '@paceline/jobs';
import type { Logger } from '@paceline/runtime';
import { Database } from '../database/database.js';
import { DispatchSignal } from '../dispatch/dispatch-signal.js';
import { Fleet } from '../fleet/fleet.js';
import { ServerSightings } from '../fleet/server-sightings.js';
import { LOGGER } from '../logger.js';
import { Attempts } from '../runs/attempts.js';
import { RunSignals } from '../runs/run-signals.js';
import { StatusMoves } from '../runs/status-moves.js';
import { storable } from '../text-input.js';

/** Signals that a process gets from its own code. */
const CRASHES = /SIG(SEGV|BUS|ILL|FPE|ABRT|TRAP)/;

type Of<K extends Report['kind']> = Extract<Report, { kind: K }>;

@Injectable()
export class FleetReports {
  constructor(
    private readonly database: Database,
    private readonly fleet: Fleet,
    private readonly sightings: ServerSightings,
    private readonly attempts: Attempts,
    private readonly moves: StatusMoves,
    private readonly signals: RunSignals,
    private readonly dispatch: DispatchSignal,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  /** @throws when PostgreSQL is away; storing the same report again changes nothing that matters */
  async take(report: Exclude<Report, { kind: 'journal' | 'lead.asked' }>): Promise<void> {
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

  /**
   * The first claim of a part counts, at once, though its server still loads; another server that took a copy of the job finds itself
   * missing in `start`.
   */
  private async serverClaimed({ runId, attempt, role = 'primary', made, address, storage, loading }: Of<'server.claimed'>): Promise<void> {
    const { index, serverId, host, port, unixPath } = storable(address);
    const isLoading = loading ?? false;
    const { count } = await this.database.runServer.updateMany({
      where: { runId, attempt, index, role, claimedAt: null, run: { attempt }, ...(made === undefined ? {} : { made }) },
      data: { serverId, host, port, unixPath, storage: storage === undefined ? null : storable(storage), claimedAt: new Date(), isLoading },
    });
    if (count === 0 && !isLoading) {
      const loaded = await this.database.runServer.updateMany({
        where: { runId, attempt, index, role, serverId, isLoading: true, run: { attempt } },
        data: { isLoading: false },
      });
      if (loaded.count > 0) return this.dispatch.wake();
    }
    if (count > 0) this.dispatch.wake();
    else this.log.info({ run: runId, attempt, index, server: serverId }, 'a second claim of a placement was ignored');
  }

  private async serverFailed({ runId, attempt, index, serverId, code, message }: Of<'server.failed'>): Promise<void> {
    if (!(await this.counts({ runId, attempt, index, serverId }))) {
      this.log.warn({ run: runId, index, server: serverId, code, message }, 'a server failed that has no part in the attempt');
      return;
    }
    const end = {
      kind: 'failed',
      cause: causeOfComplaint(code),
      // Its own words name another server than the one that speaks.
      message: code === 'COORDINATOR_LOST' ? message : `parameter server ${index} failed (${code}): ${message}`,
    } as const;
    if (await this.attempts.endNow(runId, attempt, end)) this.dispatch.wake();
  }

  private async counts(complaint: Pick<Of<'server.failed'>, 'runId' | 'attempt' | 'index' | 'serverId'>): Promise<boolean> {
    const { runId, attempt } = complaint;
    const row = await this.database.attempt.findUnique({
      where: { runId_number: { runId, number: attempt } },
      select: { startedAt: true },
    });
    return complaintCounts(await this.places(runId, attempt), Boolean(row?.startedAt), complaint);
  }

  private async places(runId: string, attempt: number) {
    const rows = await this.database.runServer.findMany({ where: { runId, attempt } });
    return rows.map((row) => ({ ...placeOf(row), serverId: row.serverId }));
  }

  private async seatFailed(report: Of<'seat.failed'>): Promise<void> {
    const { runId, attempt, seat, workerId, code, serverIndex } = report;
    if (serverIndex !== null) {
      const primary = shardsOf(await this.places(runId, attempt)).find(({ index }) => index === serverIndex)?.primary;
      if (primary?.serverId) this.sightings.suspect(primary.serverId);
    }
    const known = await this.database.transact(async (transaction) => {
      const run = await this.moves.lock(transaction, runId);
      if (run?.attempt !== attempt || !hasLiveAttempt(run.status)) return false;
      await transaction.attempt.updateMany({
        where: { runId, number: attempt },
        data: { seatFailures: { increment: 1 }, lastFailureAt: new Date() },
      });
      await transaction.stepTask.updateMany({
        where: { runId, attempt, seat, state: 'OPEN' },
        data: { state: 'CLOSED', closedAt: new Date(), closeReason: storable(`${workerId}: ${code}`) },
      });
      await this.moves.addEvents(transaction, run, [
        {
          attempt,
          type: 'seat.failed',
          message: seatFailureOf(report).message,
          data: { workerId, seat, code, serverIndex },
          at: new Date(),
        },
      ]);
      return true;
    });
    if (known) this.signals.changed(runId);
  }

  /** Its run goes on without it; this says why. */
  private async workerDied({ workerId, how }: Of<'worker.died'>): Promise<void> {
    const row = (await this.fleet.members('worker')).find(({ id }) => id === workerId);
    this.log.warn({ worker: workerId, how, run: row?.runId }, 'a worker process died');
    if (!row?.runId || row.hasLeft) return;
    const { runId } = row;
    await this.database.transact(async (transaction) => {
      const run = await this.moves.lock(transaction, runId);
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
  private async seatLeft({ runId, attempt, seat, n, reason }: Of<'seat.left'>): Promise<void> {
    const { count } = await this.database.stepTask.updateMany({
      where: { runId, attempt, seat, n, state: { not: 'CLOSED' } },
      data: { state: 'CLOSED', closedAt: new Date(), closeReason: storable(reason) },
    });
    if (count > 0) this.dispatch.wake();
  }
}
