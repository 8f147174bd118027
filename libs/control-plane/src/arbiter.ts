/**
 * The arbiter says who leads a shard that has a standby: one compare-and-set decides between a primary that asks to drop its standby and a standby that
 * asks to be promoted. Pure; the api runs it under the lock of the run's row and writes the answer to the control hash, the tests and
 * the simulator run it in memory.
 *
 *   (primary p, standby s, term t) ── p drops s ──> (p, none, t)
 *                                  └─ s is promoted, it followed term t or an earlier one of this shard ──> (s, none, highest term + 1)
 *
 * Everything else changes nothing: the answer is what stands, and whoever is not in it stops.
 */
export interface Lead {
  readonly index: number;
  /** The attempt's term when the present primary came to lead; 1 at the start. */
  readonly term: number;
  readonly primary: string;
  readonly standby: string | null;
}

export interface LeadRequest {
  readonly index: number;
  readonly serverId: string;
  readonly want: 'drop' | 'promote';
}

/** @returns the lead as it stands after the request; the same object when nothing has changed; undefined for an index that is unknown */
export function arbitrate(leads: readonly Lead[], { index, serverId, want }: LeadRequest): Lead | undefined {
  const lead = leads.find((other) => other.index === index);
  if (!lead || lead.standby === null) return lead;
  if (want === 'drop' && lead.primary === serverId) return { ...lead, standby: null };
  if (want === 'promote' && lead.standby === serverId)
    return { index, term: Math.max(1, ...leads.map(({ term }) => term)) + 1, primary: serverId, standby: null };
  return lead;
}
