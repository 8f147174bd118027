/** What a run waits for, in words that say what to do. */
import { PROTOCOL_VERSION } from '@paceline/protocol';
import type { PlaceWait } from './fair-share.js';

/** So long a run waits for workers that are not connected, where it may go on with fewer. */
export const FEWER_AFTER_MS = 15_000;

export interface FleetCounts {
  readonly liveServers: number;
  readonly liveWorkers: number;
  readonly idleWorkers: number;
  /** Live workers that take placements; all of them where nothing is said. */
  readonly shardWorkers?: number;
  /** The most of them within the last `FEWER_AFTER_MS`. */
  readonly shardWorkersLately?: number;
  /** Those of them that have had no work for that time. */
  readonly shardWorkersIdle?: number;
  /** Alive, but of another protocol version. */
  readonly incompatible: readonly { readonly role: 'worker' | 'server'; readonly id: string; readonly protocolVersion: number }[];
}

/** What a run asks of the servers. */
export interface NeededServers {
  /** Processes, standbys among them. */
  readonly serversNeeded: number;
  readonly standby: number;
  /** Servers where nothing is said. */
  readonly shardHosts?: 'servers' | 'workers';
}

const START = 'start one with `paceline up`';
const plural = (count: number, what: string): string => `${count} ${what}${count === 1 ? '' : 's'}`;

/** A run whose workers hold the shards: the standby of each is on another of them. */
function waitsForMembers(
  { liveWorkers = 0, shardWorkers = liveWorkers, incompatible = [] }: Partial<FleetCounts>,
  { serversNeeded, standby }: NeededServers,
  claimed: number,
): string {
  const needed = serversNeeded / (1 + standby);
  const what = `waits for ${plural(needed, 'worker')} that hold${needed === 1 ? 's' : ''} the parameters`;
  if (liveWorkers === 0) return `${what}: ${otherVersion(incompatible, 'worker') ?? `none is connected; ${START}`}`;
  if (liveWorkers < needed)
    return `${what}: ${liveWorkers === 1 ? 'only one is' : `only ${liveWorkers} are`} connected; start more, or go on with fewer (paceline scale)`;
  if (shardWorkers < needed && needed === 1) {
    const why = liveWorkers === 1 ? 'the only one that is connected has no folder' : `${liveWorkers} are connected, and none has a folder`;
    return `${what}: ${why} for checkpoints; give ${liveWorkers === 1 ? 'it' : 'one of them'} one (PACELINE_DATA_DIR)`;
  }
  if (shardWorkers < needed)
    return `${what}: ${liveWorkers} are connected, ${shardWorkers} of them with a folder for checkpoints; give the others one (PACELINE_DATA_DIR), or go on with fewer (paceline scale)`;
  if (claimed === 0) return `${what}: those that are connected finish other work`;
  return `${what} to get ready: ${Math.floor(claimed / (1 + standby))} of ${needed} ${claimed === 1 + standby ? 'is' : 'are'}`;
}

/** @param isStartSaid the reason goes on with what to start */
export function waitsForServers(
  counts: Partial<FleetCounts> & { liveServers: number },
  asked: NeededServers,
  claimed: number,
  isStartSaid = false,
): string {
  if (asked.shardHosts === 'workers') return waitsForMembers(counts, asked, claimed);
  const { liveServers, incompatible = [] } = counts;
  const { serversNeeded: needed, standby } = asked;
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
export function waitsForPlaces({ serversNeeded, standby, shardHosts }: NeededServers, wait: PlaceWait): string {
  if (shardHosts === 'workers') return waitsForFreeWorkers(serversNeeded / (1 + standby), wait);
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

function waitsForFreeWorkers(needed: number, { ahead, places, held, heldByOwnTeam, why, most }: PlaceWait): string {
  const what = `waits for ${plural(needed, 'worker')} that hold${needed === 1 ? 's' : ''} the parameters`;
  const before = ahead === 0 ? 'it is next' : `${plural(ahead, 'run')} ${ahead === 1 ? 'is' : 'are'} before it`;
  if (why === 'places') return `${what}: runs that keep their workers to the end hold ${held} of ${places}; ${before}`;
  const limit = why === 'limit' ? 'its limit allows (workers)' : 'one team may hold while others wait';
  return `${what}: the team holds ${heldByOwnTeam} of the ${most} that ${limit}; ${before}`;
}

/** A part of a run, and the server that has the most memory left beside the runs that it holds. */
export interface MemoryWait {
  readonly neededBytes: number;
  readonly freeBytes: number;
  readonly memoryBytes: number;
  readonly runs: number;
  /** An older run would have room if this one let go of what it holds: since when that waits. */
  readonly olderWaitsSinceMs?: number | undefined;
}

/** More servers make each part smaller; standbys have parts of the same size. */
function waitsForMemory({ serversNeeded }: NeededServers, claimed: number, wait: MemoryWait): string {
  const megabytes = (bytes: number): number => Math.ceil(bytes / 1e6);
  const got = claimed === 0 ? '' : ` (${claimed} of ${serversNeeded} ${claimed === 1 ? 'is' : 'are'} ready)`;
  return (
    `waits for a parameter server with ${megabytes(wait.neededBytes)} MB free${got}: the one with the most has ` +
    `${Math.floor(wait.freeBytes / 1e6)} of ${megabytes(wait.memoryBytes)} MB beside ${plural(wait.runs, 'run')}. ` +
    `It begins when ${wait.runs === 1 ? 'that run ends' : 'one of them ends'} or another server is connected; with more servers (strategy.servers) each part is smaller`
  );
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
  { wait, memory }: { readonly wait?: PlaceWait | undefined; readonly memory?: MemoryWait | undefined } = {},
): string {
  const isHosting = needed.shardHosts === 'workers';
  const worker = isHosting ? undefined : waitsForWorker(counts);
  const isStartSaid = worker !== undefined && otherVersion(counts.incompatible, 'worker') === undefined;
  let server = claimed < needed.serversNeeded ? waitsForServers(counts, needed, claimed, isStartSaid) : undefined;
  const processes = isHosting ? (counts.shardWorkers ?? counts.liveWorkers) * (1 + needed.standby) : counts.liveServers;
  if (wait && claimed === 0 && processes >= needed.serversNeeded) server = waitsForPlaces(needed, wait);
  else if (server && memory && processes >= needed.serversNeeded) server = waitsForMemory(needed, claimed, memory);
  if (!server && loading.length > 0)
    server = `waits for ${isHosting ? 'the worker with shard' : 'parameter server'} ${loading.join(', ')} to load the parameters to begin with`;
  return [server, worker].filter((text) => text !== undefined).join('; ') || 'is about to be set up';
}
