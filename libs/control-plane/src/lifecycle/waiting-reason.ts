/** What a run waits for, in words that say what to do. */
import { PROTOCOL_VERSION } from '@paceline/protocol';
import type { PlaceWait } from './fair-share.js';

export interface FleetCounts {
  readonly liveServers: number;
  readonly liveWorkers: number;
  readonly idleWorkers: number;
  /** Alive, but of another protocol version. */
  readonly incompatible: readonly { readonly role: 'worker' | 'server'; readonly id: string; readonly protocolVersion: number }[];
}

/** What a run asks of the servers. */
export interface NeededServers {
  /** Processes, standbys among them. */
  readonly serversNeeded: number;
  readonly standby: number;
}

const START = 'start one with `paceline up`';
const plural = (count: number, what: string): string => `${count} ${what}${count === 1 ? '' : 's'}`;

/** @param isStartSaid the reason goes on with what to start */
export function waitsForServers(
  { liveServers, incompatible = [] }: Partial<FleetCounts> & { liveServers: number },
  { serversNeeded: needed, standby }: NeededServers,
  claimed: number,
  isStartSaid = false,
): string {
  const shards = plural(needed / (1 + standby), 'parameter server');
  const what = `waits for ${standby === 0 ? shards : `${shards} with a standby each`}`;
  if (liveServers === 0) {
    const advice = otherVersion(incompatible, 'server') ?? (isStartSaid ? undefined : START);
    return `${what}: none is connected${advice === undefined ? '' : `; ${advice}`}`;
  }
  if (liveServers < needed && standby > 0)
    return `${what}: needs ${needed} server processes, ${liveServers} ${liveServers === 1 ? 'is' : 'are'} free; start more, or ask for fewer (strategy.servers, strategy.standby)`;
  if (liveServers < needed)
    return `${what}: ${liveServers === 1 ? 'only one is' : `only ${liveServers} are`} connected; start more, or ask for fewer (strategy.servers)`;
  return claimed === 0 ? `${what} to get ready` : `${what} to get ready: ${claimed} of ${needed} ${claimed === 1 ? 'is' : 'are'}`;
}

/** Why a run has no place on the servers yet. Other teams are counted, never named. */
export function waitsForPlaces({ serversNeeded, standby }: NeededServers, wait: PlaceWait): string {
  const { ahead, places, held, heldByOwnTeam, why, most } = wait;
  const shards = plural(serversNeeded / (1 + standby), 'parameter server');
  const what = `waits for ${standby === 0 ? shards : `${shards} with a standby each`}`;
  const before = (of: string): string =>
    ahead === 0 ? '; it is next' : `; ${plural(ahead, 'run')}${of} ${ahead === 1 ? 'is' : 'are'} before it`;
  if (why === 'limit')
    return `${what}: the team holds ${heldByOwnTeam} of the ${plural(most, 'place')} that its limit allows (serverPlaces)${before(' of the team')}`;
  if (why === 'share')
    return `${what}: the team holds ${heldByOwnTeam} of ${places} places, and one team may hold ${most} while others hold ${held - heldByOwnTeam}${before(' of the team')}`;
  const holders =
    held >= places
      ? `other runs hold all ${places} places, ${held - heldByOwnTeam} of them of other teams`
      : `${places - held} of ${places} places are free`;
  return `${what}: ${holders}${before('')}`;
}

export function waitsForWorker({ liveWorkers, incompatible }: FleetCounts): string | undefined {
  if (liveWorkers > 0) return undefined;
  return `waits for a worker: ${otherVersion(incompatible, 'worker') ?? `none is connected; ${START}`}`;
}

function otherVersion(incompatible: FleetCounts['incompatible'], role: 'worker' | 'server'): string | undefined {
  const found = incompatible.find((member) => member.role === role);
  return (
    found &&
    `${role} ${found.id} speaks protocol ${found.protocolVersion}, this control plane speaks ${PROTOCOL_VERSION}; run the same release everywhere`
  );
}

/** The reason of a run that is QUEUED: servers first, then workers; both when both are missing. */
export function queuedReason(
  counts: FleetCounts,
  needed: NeededServers,
  claimed: number,
  loading: readonly number[] = [],
  wait?: PlaceWait,
): string {
  const worker = waitsForWorker(counts);
  const isStartSaid = worker !== undefined && otherVersion(counts.incompatible, 'worker') === undefined;
  let server = claimed < needed.serversNeeded ? waitsForServers(counts, needed, claimed, isStartSaid) : undefined;
  if (wait && claimed === 0 && counts.liveServers >= needed.serversNeeded) server = waitsForPlaces(needed, wait);
  if (!server && loading.length > 0) server = `waits for parameter server ${loading.join(', ')} to load the parameters to begin with`;
  return [server, worker].filter((text) => text !== undefined).join('; ') || 'is about to be set up';
}
