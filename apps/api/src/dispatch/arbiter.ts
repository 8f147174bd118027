/**
 * Settles who leads a shard that has a standby, when one of its two servers asks: `arbitrate` (libs/jobs) over the places of the
 * attempt, under the lock of the run's row, so that of two that ask at the same moment one wins. PostgreSQL remembers the answer,
 * the control hash tells it; asked again, or after a flush, it is told again.
 *
 *     lead.asked ──> lock ──> arbitrate ──> places, fence, event ──> commit ──> field `lead{index}` of the control hash
 *
 * A successor of the coordinator goes on where the stored journal ends. What the former one reports from then on is refused (the
 * fence), and what was stored of it beyond a gap is taken back: the successor writes those numbers and rounds itself.
 */
import { Injectable } from '@nestjs/common';
import {
  arbitrate,
  hasLiveAttempt,
  leadFieldName,
  leadOf,
  placeOf,
  shardsOf,
  type Lead,
  type LeadAnswer,
  type Report,
} from '@paceline/jobs';
import { Database, type Transaction } from '../database/database.js';
import { RunSignals } from '../runs/run-signals.js';
import { StatusMoves, type LockedRun } from '../runs/status-moves.js';
import { Control } from './control.js';

type Asked = Pick<Extract<Report, { kind: 'lead.asked' }>, 'runId' | 'attempt' | 'index' | 'serverId' | 'want'>;

@Injectable()
export class Arbiter {
  constructor(
    private readonly database: Database,
    private readonly control: Control,
    private readonly moves: StatusMoves,
    private readonly signals: RunSignals,
  ) {}

  /** @returns what stands now; undefined when nobody leads such a shard @throws RedisUnavailableError, or when PostgreSQL is away */
  async decide(asked: Asked): Promise<Lead | undefined> {
    const { runId, attempt, index } = asked;
    const { lead, hasChanged } = await this.database.transact(async (transaction) => {
      const run = await this.moves.lock(transaction, runId);
      if (run?.attempt !== attempt || !hasLiveAttempt(run.status)) return { lead: undefined, hasChanged: false };
      return this.inTransaction(transaction, run, asked);
    });
    if (hasChanged) this.signals.changed(runId);
    if (lead) await this.tell(runId, attempt, index);
    return lead;
  }

  /** Writes what stands about a shard into the control hash. @throws RedisUnavailableError, or when PostgreSQL is away */
  async tell(runId: string, attempt: number, index: number): Promise<void> {
    const answer = await this.database.transact(async (transaction): Promise<LeadAnswer | undefined> => {
      const lead = (await leadsOf(transaction, runId, attempt)).find((other) => other.index === index);
      return lead && { attempt, ...lead, ...(index === 0 ? await inheritance(transaction, runId, attempt) : {}) };
    });
    if (answer) await this.control.write(runId, { [leadFieldName(index)]: JSON.stringify(answer) });
  }

  private async inTransaction(
    transaction: Transaction,
    run: LockedRun,
    asked: Asked,
  ): Promise<{ lead: Lead | undefined; hasChanged: boolean }> {
    const { id: runId, attempt } = run;
    const { index, serverId } = asked;
    const before = await leadsOf(transaction, runId, attempt);
    const present = before.find((lead) => lead.index === index);
    const lead = arbitrate(before, asked);
    if (!lead || lead === present) return { lead, hasChanged: false };
    const isPromoted = lead.term !== present!.term;
    const dropped = isPromoted ? 'primary' : 'standby';
    await transaction.runServer.updateMany({
      where: { runId, attempt, index, role: dropped, droppedAt: null },
      data: { droppedAt: new Date() },
    });
    if (isPromoted)
      await transaction.runServer.updateMany({ where: { runId, attempt, index, role: 'standby' }, data: { term: lead.term } });
    if (isPromoted && index === 0) await this.succeed(transaction, runId, attempt, lead.term);
    const { primary, standby } = present!;
    await this.moves.addEvents(transaction, run, [
      {
        attempt,
        type: 'lead.changed',
        message: isPromoted
          ? `standby ${serverId} leads parameter server ${index} from now on, in place of ${primary} (term ${lead.term})`
          : `parameter server ${index} (${primary}) goes on without its standby ${standby}`,
        data: { server: index, term: lead.term, primary: lead.primary, dropped: isPromoted ? primary : standby },
        at: new Date(),
      },
    ]);
    return { lead, hasChanged: true };
  }

  /** Nothing of the former coordinator counts any more but what is stored without a gap. Its later events stay in the history. */
  private async succeed(transaction: Transaction, runId: string, attempt: number, term: number): Promise<void> {
    const where = { runId_number: { runId, number: attempt } };
    const { storedN } = await transaction.attempt.update({ where, data: { fence: term } });
    const beyond = { runId, attempt, n: { gt: storedN } };
    await transaction.ledgerRange.deleteMany({ where: beyond });
    await transaction.metric.deleteMany({ where: beyond });
    await transaction.runEvent.updateMany({ where: beyond, data: { n: null } });
  }
}

async function leadsOf(transaction: Transaction, runId: string, attempt: number): Promise<Lead[]> {
  const rows = await transaction.runServer.findMany({ where: { runId, attempt, claimedAt: { not: null } } });
  const places = rows.map((row) => ({ ...placeOf(row), serverId: row.serverId ?? '' }));
  return shardsOf(places).map((shard) => leadOf(shard, ({ serverId }) => serverId));
}

/** Where a coordinator that takes over goes on. */
async function inheritance(transaction: Transaction, runId: string, attempt: number) {
  const { storedN, parentRound } = await transaction.attempt.findUniqueOrThrow({
    where: { runId_number: { runId, number: attempt } },
    select: { storedN: true, parentRound: true },
  });
  const firstRound = Number(parentRound ?? 0);
  const [ledger, checkpoint] = await Promise.all([
    transaction.ledgerRange.aggregate({ where: { runId, attempt, n: { lte: storedN } }, _max: { toRound: true } }),
    transaction.checkpoint.aggregate({ where: { runId, attempt, invalidAt: null, removedAt: null }, _max: { round: true } }),
  ]);
  const { toRound } = ledger._max;
  return {
    storedN: Number(storedN),
    ledgerFrom: toRound === null ? firstRound : Number(toRound) + 1,
    newest: Number(checkpoint._max.round ?? firstRound),
  };
}
