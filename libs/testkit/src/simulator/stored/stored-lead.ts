/** Says which server leads a shard that has a standby, over rows in memory: what apps/api/src/dispatch/shard-leads.ts writes and tells, on decisions of libs/control-plane. */
import { leadAnswer, settledLead, type LeadAnswer, type Report, type SettledLead } from '@paceline/control-plane';
import type { StoredRun } from './stored-run.js';

export function decideLead(stored: StoredRun, asked: Extract<Report, { kind: 'lead.asked' }>): SettledLead {
  const { attempt, index } = asked;
  const settled = settledLead(stored.run, stored.places(attempt), asked, stored.now);
  for (const { role, set } of settled.changed?.places ?? []) stored.setPlace({ attempt, index, role }, set);
  if (settled.changed?.coordinatorTerm !== undefined) succeed(stored, settled.changed.coordinatorTerm);
  if (settled.changed) stored.addEvents([settled.changed.event]);
  return settled;
}

/** Nothing of the former coordinator counts any more but what is stored without a gap. Its later events stay in the history. */
function succeed(stored: StoredRun, coordinatorTerm: number): void {
  const { number, storedSequence } = stored.attempt;
  stored.setAttempt(number, { coordinatorTerm });
  for (const entry of stored.rows.entries.values())
    if (entry.attempt === number && entry.sequence > storedSequence) stored.rows.entries.delete(`${number}/${entry.sequence}`);
  for (const event of stored.rows.events.values())
    if (event.attempt === number && event.sequence !== null && event.sequence > storedSequence)
      stored.rows.events.set(event.seq, { ...event, sequence: null });
}

/** The answer of the arbiter about a shard; for the coordinator it says where a successor goes on. */
export function readLead(stored: StoredRun, number: number, index: number): LeadAnswer | undefined {
  const { rows, run } = stored;
  const attempt = rows.attempts.get(number);
  if (!attempt) return undefined;
  const { storedSequence } = attempt;
  const ledger = rows.entries
    .values()
    .flatMap((entry) => (entry.attempt === number && entry.sequence <= storedSequence && entry.kind === 'ledger' ? [entry] : []));
  const rounds = rows.checkpoints
    .values()
    .flatMap((row) => (row.attempt === number && !row.isInvalid && !row.isRemoved ? [row.round] : []));
  const highest = (numbers: readonly number[]): number | null => (numbers.length === 0 ? null : Math.max(...numbers));
  return leadAnswer(run, attempt, stored.places(number), index, {
    lastLedgerRound: highest(ledger.map(({ toRound }) => toRound)),
    ledger: {
      examples: ledger.reduce((sum, { examples }) => sum + examples, 0),
      dropped: ledger.reduce((sum, { dropped = 0 }) => sum + dropped, 0),
    },
    newestCheckpoint: highest(rounds),
  });
}
