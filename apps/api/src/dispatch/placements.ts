/**
 * Parameter servers of an attempt: every index is claimed by one server process, then all are told to begin.
 *
 *     placement job waits ─ server.claimed ─> claimed ─ all claimed ─> `start` in the control hash
 *        ^      │ job gone (flush, declined)      │ server lost before the start
 *        └──────┴────────── made + 1 ─────────────┘
 *
 * After the start a lost server ends the attempt: its part of the parameters is gone.
 */
import { Inject, Injectable } from '@nestjs/common';
import { placementJobId } from '@paceline/jobs';
import type { Logger } from '@paceline/runtime';
import { Database } from '../database/database.js';
import { Fleet, LOST_AFTER_MS, type FleetRow } from '../fleet/fleet.js';
import { LOGGER } from '../logger.js';
import { StatusMoves } from '../runs/status-moves.js';
import type { ActiveRun } from './active-run.js';
import { Control, startField } from './control.js';
import { Queues } from './queues.js';

/** A claim is reported at once; a job that is gone for this long without a claim is made again. */
const MAKE_AGAIN_AFTER_MS = 2_000;
const MAKE_AGAIN_AT_MOST_MS = 15_000;
/** Workers that cannot reach a server shorten the wait for its silence. */
const SUSPECTED_SILENCE_MS = 2_500;

@Injectable()
export class Placements {
  /** Servers that a worker could not reach, and when it said so. */
  private readonly suspected = new Map<string, number>();

  constructor(
    private readonly database: Database,
    private readonly queues: Queues,
    private readonly control: Control,
    private readonly fleet: Fleet,
    private readonly moves: StatusMoves,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  suspect(serverId: string): void {
    if (this.suspected.size > 1_000) this.suspected.clear();
    this.suspected.set(serverId, Date.now());
  }

  /** @returns true when the attempt has all its servers and they were told to begin */
  async reconcile(run: ActiveRun, servers: readonly FleetRow[]): Promise<boolean> {
    const lost = this.lostServer(run, servers);
    if (lost && run.attempt.startedAt) {
      await this.fail(run, lost);
      return false;
    }
    if (lost) {
      await this.makeAgain(run, lost.index, `server ${lost.serverId} was lost before the start`);
      return false;
    }
    if (run.claimed.length < run.serversNeeded) {
      await this.remakeMissing(run);
      return false;
    }
    await this.begin(run);
    return true;
  }

  private async begin(run: ActiveRun): Promise<void> {
    const { row, attempt, claimed, control } = run;
    if (!attempt.startedAt) {
      await this.database.attempt.updateMany({
        where: { runId: row.id, number: attempt.number, startedAt: null },
        data: { startedAt: new Date() },
      });
    }
    const start = startField(attempt.number, claimed);
    if (control.start !== start) await this.control.write(row.id, { start });
  }

  private lostServer(run: ActiveRun, servers: readonly FleetRow[]): { index: number; serverId: string; why: string } | undefined {
    const now = Date.now();
    for (const { index, serverId } of run.claimed) {
      const member = servers.find(({ id }) => id === serverId);
      if (member?.hasLeft) return { index, serverId, why: 'was stopped' };
      if (!this.fleet.canJudge(now)) continue;
      const claimedAgoMs = now - (run.servers.find((server) => server.index === index)?.claimedAt?.getTime() ?? now);
      if (!member) {
        if (claimedAgoMs > 2 * LOST_AFTER_MS) return { index, serverId, why: 'was lost' };
        continue;
      }
      const isSuspected = now - (this.suspected.get(serverId) ?? -Infinity) < 2 * LOST_AFTER_MS;
      if (!this.fleet.isAlive(member, now, isSuspected ? SUSPECTED_SILENCE_MS : LOST_AFTER_MS)) return { index, serverId, why: 'was lost' };
    }
    return undefined;
  }

  private async fail(run: ActiveRun, lost: { index: number; serverId: string; why: string }): Promise<void> {
    const round = run.coordinator?.round ?? 0;
    const reason = `parameter server ${lost.index} (${lost.serverId}) ${lost.why} in round ${round}, and its part of the parameters with it; recovery from a checkpoint is not available yet: create the run again`;
    if (await this.moves.move(run.row.id, run.row.attempt, { to: 'FAILED', reason }))
      this.log.warn({ run: run.row.id, server: lost.serverId, round }, 'a run lost a parameter server');
  }

  /** Jobs of unclaimed parts that are neither waiting nor held any more. */
  private async remakeMissing(run: ActiveRun): Promise<void> {
    const unsent = new Set(
      (await this.database.outbox.findMany({ where: { runId: run.row.id, sentAt: null, kind: 'placement' }, select: { jobId: true } })).map(
        ({ jobId }) => jobId,
      ),
    );
    for (const server of run.servers) {
      const jobId = placementJobId(run.row.id, run.row.attempt, server.index, server.made);
      const waitMs = Math.min(MAKE_AGAIN_AFTER_MS * 2 ** Math.min(server.made, 4), MAKE_AGAIN_AT_MOST_MS);
      if (server.claimedAt || unsent.has(jobId) || Date.now() - server.madeAt.getTime() < waitMs) continue;
      const state = await this.queues.stateOf('placement', jobId);
      if (state === 'missing' || state === 'over') await this.makeAgain(run, server.index, `its job was ${state}`);
    }
  }

  private async makeAgain(run: ActiveRun, index: number, why: string): Promise<void> {
    const { id: runId, attempt } = run.row;
    const present = run.servers.find((server) => server.index === index);
    if (!present) return;
    const made = present.made + 1;
    await this.database.transact(async (transaction) => {
      const { count } = await transaction.runServer.updateMany({
        where: { runId, attempt, index, made: present.made, serverId: present.serverId },
        data: { made, madeAt: new Date(), serverId: null, host: null, port: null, unixPath: null, claimedAt: null },
      });
      if (count === 0) return;
      await transaction.outbox.create({
        data: { runId, attempt, kind: 'placement', jobId: placementJobId(runId, attempt, index, made), payload: { index } },
      });
    });
    this.log.info({ run: runId, index, made, why }, 'a placement was made again');
  }
}
