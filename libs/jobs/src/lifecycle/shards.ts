/**
 * Who leads the shards of an attempt, read from its places. A place keeps the role that it was made for; the arbiter only takes
 * places away and gives a standby that it promotes its term:
 *
 *     primary, standby ── standby dropped ──> primary
 *                      └─ primary dropped, standby's term raised ──> standby leads
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
  readonly leader: P;
  /** Follows the leader and may take its place. */
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
    const [primary, standby] = [find('primary'), find('standby')];
    const leader = primary ?? standby;
    if (!leader) return [];
    return [{ index, leader, standby: primary && standby, isDecided: own.some(({ isDropped }) => isDropped) }];
  });
}

/** For `arbitrate`, which knows servers by their ids. */
export const leadOf = <P extends Place>({ index, leader, standby }: ShardPlaces<P>, idOf: (place: P) => string): Lead => ({
  index,
  term: leader.term,
  primary: idOf(leader),
  standby: standby ? idOf(standby) : null,
});
