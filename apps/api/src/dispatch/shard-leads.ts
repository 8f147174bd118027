/**
 * Settles who leads a shard that has a standby, when one of its two servers asks: `arbitrate` (libs/control-plane) over the places of the
 * attempt, under the lock of the run's row, so that of two that ask at the same moment one wins. PostgreSQL remembers the answer,
 * the control hash tells it; asked again, or after a flush, it is told again.
 *
 *     lead.asked ──> lock ──> arbitrate ──> places, coordinator's term, event ──> commit ──> field `lead{index}` of the control hash
 *
 * A successor of the coordinator goes on where the stored journal ends. What the former one reports from then on is refused, by
 * its term, and what was stored of it beyond a gap is taken back: the successor writes those numbers and rounds itself.
 */
import { Injectable } from '@nestjs/common';
import { leadAnswer, leadFieldName, settledLead, type Lead, type Report, type SettledLead } from '@paceline/control-plane';
import { BackgroundDatabase, type Transaction } from '../database/database.js';
import { RunSignals } from '../runs/run-signals.js';
import { StatusMoves, type LockedRun } from '../runs/status-moves.js';
import { ControlHashes } from './control-hashes.js';
import { databaseDate } from '../database/database-clock.js';

type Asked = Pick<Extract<Report, { kind: 'lead.asked' }>, 'runId' | 'attempt' | 'index' | 'serverId' | 'want'>;

@Injectable()
export class ShardLeads {
  constructor(
    private readonly database: BackgroundDatabase,
    private readonly control: ControlHashes,
    private readonly moves: StatusMoves,
    private readonly signals: RunSignals,
  ) {}

  /** @returns what stands now; undefined when nobody leads such a shard @throws RedisUnavailableError, or when PostgreSQL is away */
  async decide(asked: Asked): Promise<Lead | undefined> {
    const { runId, attempt, index } = asked;
    const { lead, changed } = await this.database.transact(async (transaction) =>
      this.inTransaction(transaction, await this.moves.lock(transaction, runId), asked),
    );
    if (changed) this.signals.changed(runId);
    if (lead) await this.tell(runId, attempt, index);
    return lead;
  }

  /** Writes what stands about a shard into the control hash. @throws RedisUnavailableError, or when PostgreSQL is away */
  async tell(runId: string, number: number, index: number): Promise<void> {
    const answer = await this.database.transact(async (transaction) => {
      const [run, attempt, places] = await Promise.all([
        transaction.run.findUnique({ where: { id: runId }, select: { attempt: true } }),
        transaction.attempt.findUnique({ where: { runId_number: { runId, number } } }),
        transaction.runServer.findMany({ where: { runId, attempt: number } }),
      ]);
      if (!run || !attempt) return undefined;
      const within = { runId, attempt: number };
      const [ledger, checkpoint] = await Promise.all([
        transaction.ledgerRange.aggregate({
          where: { ...within, sequence: { lte: attempt.storedSequence } },
          _max: { toRound: true },
          _sum: { examples: true, dropped: true },
        }),
        transaction.checkpoint.aggregate({ where: { ...within, invalidAt: null, removedAt: null }, _max: { round: true } }),
      ]);
      const { examples, dropped } = ledger._sum;
      const stored = {
        lastLedgerRound: ledger._max.toRound,
        ledger: { examples: Number(examples ?? 0), dropped: Number(dropped ?? 0) },
        newestCheckpoint: checkpoint._max.round,
      };
      return leadAnswer(run, attempt, places, index, stored);
    });
    if (answer) await this.control.write(runId, { [leadFieldName(index)]: JSON.stringify(answer) });
  }

  private async inTransaction(transaction: Transaction, run: LockedRun | undefined, asked: Asked): Promise<SettledLead> {
    const { runId, attempt, index } = asked;
    const now = databaseDate();
    const settled = settledLead(run, await transaction.runServer.findMany({ where: { runId, attempt } }), asked, now);
    const { changed } = settled;
    if (!changed || !run) return settled;
    for (const { role, set } of changed.places)
      await transaction.runServer.update({ where: { runId_attempt_index_role: { runId, attempt, index, role } }, data: set });
    if (changed.coordinatorTerm !== undefined) await this.succeed(transaction, run, changed.coordinatorTerm);
    await this.moves.addEvents(transaction, run, [{ ...changed.event, at: now }]);
    return settled;
  }

  /** Nothing of the former coordinator counts any more but what is stored without a gap. Its later events stay in the history. */
  private async succeed(transaction: Transaction, { id: runId, attempt }: LockedRun, coordinatorTerm: number): Promise<void> {
    const { storedSequence } = await transaction.attempt.update({
      where: { runId_number: { runId, number: attempt } },
      data: { coordinatorTerm },
    });
    const beyond = { runId, attempt, sequence: { gt: storedSequence } };
    await transaction.ledgerRange.deleteMany({ where: beyond });
    await transaction.metric.deleteMany({ where: beyond });
    await transaction.runEvent.updateMany({ where: beyond, data: { sequence: null } });
  }
}
