/**
 * The servers that lead the shards of an attempt, read from its places. A place keeps the role that it was made for; the arbiter only takes
 * places away and gives a standby that it promotes its term:
 *
 *     primary, standby ── standby dropped ──> primary
 *                      └─ primary dropped, standby's term raised ──> standby is the primary
 */
import { type Lead } from '../arbiter.js';

export interface Place {
  readonly index: number;
  readonly role: 'primary' | 'standby';
  readonly term: number;
  readonly isDropped: boolean;
}

export interface ShardPlaces<P extends Place> {
  readonly index: number;
  /** The server that leads now. */
  readonly primary: P;
  /** Follows the primary and may take its place. */
  readonly standby: P | undefined;
  /** The arbiter was asked about it. */
  readonly isDecided: boolean;
}

/** By index; an index all of whose places are gone has no entry. */
export function shardsOf<P extends Place>(places: readonly P[]): ShardPlaces<P>[] {
  const indices = [...new Set(places.map(({ index }) => index))].sort((a, b) => a - b);
  return indices.flatMap((index) => {
    const own = places.filter((place) => place.index === index);
    const find = (role: Place['role']) => own.find((place) => place.role === role && !place.isDropped);
    const [placed, standby] = [find('primary'), find('standby')];
    const primary = placed ?? standby;
    if (!primary) return [];
    return [{ index, primary, standby: placed && standby, isDecided: own.some(({ isDropped }) => isDropped) }];
  });
}

/**
 * Whether the complaint of a server ends the attempt. Before the start that of whoever may have the part does, and not that of a copy of a
 * job that another server has taken; after it that of a server that leads a shard: others may fail, the shard goes on without them.
 */
export function complaintCounts(
  places: readonly (Place & { readonly serverId: string | null })[],
  hasStarted: boolean,
  { index, serverId }: { readonly index: number; readonly serverId?: string | undefined },
): boolean {
  if (serverId === undefined) return true;
  if (hasStarted) return shardsOf(places).some((shard) => shard.index === index && shard.primary.serverId === serverId);
  return places.some((place) => place.index === index && (place.serverId === null || place.serverId === serverId));
}

/** For `arbitrate`, which knows servers by their ids. */
export const leadOf = <P extends Place>({ index, primary, standby }: ShardPlaces<P>, idOf: (place: P) => string): Lead => ({
  index,
  term: primary.term,
  primary: idOf(primary),
  standby: standby ? idOf(standby) : null,
});
