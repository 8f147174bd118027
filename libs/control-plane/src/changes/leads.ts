/** Rows of a shard that has a standby: who leads it, what the answer of the arbiter changes, and what a successor is told. */
import { arbitrate, type Lead, type LeadRequest } from '../arbiter.js';
import type { LeadAnswer } from '../contract/control.js';
import { hasLiveAttempt } from '../lifecycle/run-status.js';
import { leadOf, shardsOf } from '../lifecycle/shards.js';
import { placeOf, type StoredAttempt, type StoredServer } from '../dispatch/rows.js';
import type { RunHead, StoredEvent } from './moves.js';
import type { PlaceChange } from './places.js';

/** @param places of the attempt; those that nobody has claimed lead nothing */
export function leadsOf(places: readonly StoredServer[]): Lead[] {
  const claimed = places.filter(({ claimedAt }) => claimedAt !== null).map((row) => ({ ...placeOf(row), serverId: row.serverId ?? '' }));
  return shardsOf(claimed).map((shard) => leadOf(shard, ({ serverId }) => serverId));
}

export interface SettledLead {
  /** As it stands now; undefined when nobody leads such a shard. */
  readonly lead: Lead | undefined;
  readonly changed: LeadChange | undefined;
}
export interface LeadChange {
  readonly isPromoted: boolean;
  /** By the role that the place was made for. */
  readonly places: readonly { readonly role: 'primary' | 'standby'; readonly set: PlaceChange }[];
  /**
   * The coordinator was replaced: what it reports in an older term is refused from here on, and what is stored of it beyond a gap is taken
   * back, because its successor writes those numbers and rounds itself.
   */
  readonly coordinatorTerm: number | undefined;
  readonly event: StoredEvent;
}

/** When primary and standby ask at the same moment, one of them wins. */
export function settledLead(
  run: RunHead | undefined,
  places: readonly StoredServer[],
  asked: LeadRequest & { readonly attempt: number },
  now: Date,
): SettledLead {
  if (run?.attempt !== asked.attempt || !hasLiveAttempt(run.status)) return { lead: undefined, changed: undefined };
  const { index, serverId } = asked;
  const before = leadsOf(places);
  const present = before.find((lead) => lead.index === index);
  const lead = arbitrate(before, asked);
  if (!lead || !present || lead === present) return { lead, changed: undefined };
  const { term } = lead;
  const { primary, standby } = present;
  const isPromoted = term !== present.term;
  const drop = { role: isPromoted ? 'primary' : 'standby', set: { droppedAt: now } } as const;
  return {
    lead,
    changed: {
      isPromoted,
      places: isPromoted ? [drop, { role: 'standby', set: { term } }] : [drop],
      coordinatorTerm: isPromoted && index === 0 ? term : undefined,
      event: {
        attempt: asked.attempt,
        type: 'lead.changed',
        message: isPromoted
          ? `standby ${serverId} leads parameter server ${index} from now on, in place of ${primary} (term ${term})`
          : `parameter server ${index} (${primary}) goes on without its standby ${standby}`,
        data: { server: index, term, primary: lead.primary, dropped: isPromoted ? primary : standby },
      },
    },
  };
}

/** What the control hash says of a shard. */
export function leadAnswer(
  run: Pick<RunHead, 'attempt'> | undefined,
  attempt: Pick<StoredAttempt, 'number' | 'storedSequence' | 'parentRound'>,
  places: readonly StoredServer[],
  index: number,
  stored: {
    /** The highest round of the ledger that is stored without a gap; null when there is none. */
    readonly lastLedgerRound: number | null;
    /** Examples of those rounds, in updates and left out. */
    readonly ledger: { readonly examples: number; readonly dropped: number };
    /** The round of the attempt's newest checkpoint that can be loaded. */
    readonly newestCheckpoint: number | null;
  },
): LeadAnswer | undefined {
  const leads = run?.attempt === attempt.number ? leadsOf(places) : [];
  const lead = leads.find((other) => other.index === index);
  if (!lead) return undefined;
  if (index !== 0) return { attempt: attempt.number, ...lead };
  const firstRound = Number(attempt.parentRound ?? 0);
  const { lastLedgerRound, ledger, newestCheckpoint } = stored;
  return {
    attempt: attempt.number,
    ...lead,
    storedSequence: Number(attempt.storedSequence),
    ledgerFrom: lastLedgerRound === null ? firstRound : lastLedgerRound + 1,
    newest: newestCheckpoint ?? firstRound,
    ledger,
    terms: leads.map(({ term }) => term),
  };
}
