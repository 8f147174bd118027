/** Who leads a shard that has a standby, over rows in memory: what apps/api/src/dispatch/arbiter.ts writes and tells. */
import {
  arbitrate,
  hasLiveAttempt,
  leadOf,
  placeOf,
  shardsOf,
  type Lead,
  type LeadAnswer,
  type Report,
  type StoredServer,
} from '@paceline/jobs';
import { placeKey } from './sim-postgres.js';
import type { StoredRun } from './stored-run.js';

function leadsOf(run: StoredRun): Lead[] {
  const places = run.rows.servers.values().filter((place) => place.attempt === run.run.attempt && place.claimedAt !== null);
  const shards = shardsOf(places.map((row) => ({ ...placeOf(row), serverId: row.serverId ?? '' })));
  return shards.map((shard) => leadOf(shard, ({ serverId }) => serverId));
}

/** As apps/api/src/dispatch/arbiter.ts. @returns whether somebody leads such a shard */
export function decideLead(run: StoredRun, asked: Extract<Report, { kind: 'lead.asked' }>): boolean {
  const { attempt, index } = asked;
  if (run.run.attempt !== attempt || !hasLiveAttempt(run.run.status)) return false;
  const before = leadsOf(run);
  const present = before.find((lead) => lead.index === index);
  const lead = arbitrate(before, asked);
  if (!lead || lead === present) return lead !== undefined;
  const isPromoted = lead.term !== present!.term;
  run.cluster.network.count(isPromoted ? 'standby promoted' : 'standby dropped');
  change(run, index, isPromoted ? 'primary' : 'standby', { droppedAt: run.date() });
  if (isPromoted) change(run, index, 'standby', { term: lead.term });
  if (isPromoted && index === 0) succeed(run, attempt, lead.term);
  return true;
}

function change(run: StoredRun, index: number, role: 'primary' | 'standby', to: Partial<StoredServer>): void {
  const key = placeKey({ attempt: run.run.attempt, index, role });
  const server = run.rows.servers.get(key);
  if (server && !(to.droppedAt && server.droppedAt)) run.rows.servers.set(key, { ...server, ...to });
}

/** Nothing of the former coordinator counts any more but what is stored without a gap. */
function succeed(run: StoredRun, attempt: number, fence: number): void {
  run.setAttempt(attempt, { fence });
  const { storedN } = run.attempt;
  for (const entry of run.rows.entries.values())
    if (entry.attempt === attempt && entry.n > storedN) run.rows.entries.delete(`${attempt}/${entry.n}`);
}

/** What stands about a shard, and for the coordinator where a successor goes on. */
export function readLead(run: StoredRun, attempt: number, index: number): LeadAnswer | undefined {
  const lead = run.run.attempt === attempt ? leadsOf(run).find((other) => other.index === index) : undefined;
  if (!lead) return undefined;
  const { storedN, parentRound } = run.attempt;
  const firstRound = parentRound ?? 0;
  const own = run.rows.entries.values().filter((entry) => entry.attempt === attempt && entry.n <= storedN);
  const ledgerFrom = Math.max(firstRound, ...own.map((entry) => (entry.kind === 'ledger' ? entry.toRound + 1 : 0)));
  const rounds = run.rows.checkpoints.values().filter((row) => row.attempt === attempt && !row.isInvalid && !row.isRemoved);
  const newest = Math.max(firstRound, ...rounds.map(({ round }) => round));
  return { attempt, ...lead, ...(index === 0 ? { storedN, ledgerFrom, newest } : {}) };
}
