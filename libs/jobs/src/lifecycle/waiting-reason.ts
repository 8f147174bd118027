/** What a run waits for, in words that say what to do. */
import { PROTOCOL_VERSION } from '@paceline/protocol';

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

export function waitsForServers(
  { liveServers, incompatible = [] }: Partial<FleetCounts> & { liveServers: number },
  { serversNeeded: needed, standby }: NeededServers,
  claimed: number,
): string {
  const shards = plural(needed / (1 + standby), 'parameter server');
  const what = `waits for ${standby === 0 ? shards : `${shards} with a standby each`}`;
  if (liveServers === 0) return `${what}: none is connected; ${otherVersion(incompatible, 'server') ?? START}`;
  if (liveServers < needed && standby > 0)
    return `${what}: needs ${needed} server processes, ${liveServers} ${liveServers === 1 ? 'is' : 'are'} free; start more, or ask for fewer (strategy.servers, strategy.standby)`;
  if (liveServers < needed)
    return `${what}: ${liveServers === 1 ? 'only one is' : `only ${liveServers} are`} connected; start more, or ask for fewer (strategy.servers)`;
  return claimed === 0 ? `${what} to get ready` : `${what} to get ready: ${claimed} of ${needed} ${claimed === 1 ? 'is' : 'are'}`;
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
export function queuedReason(counts: FleetCounts, needed: NeededServers, claimed: number, loading: readonly number[] = []): string {
  const worker = waitsForWorker(counts);
  let server = claimed < needed.serversNeeded ? waitsForServers(counts, needed, claimed) : undefined;
  if (worker?.endsWith(START)) server = server?.replace(`; ${START}`, ''); // said once is enough
  if (!server && loading.length > 0) server = `waits for parameter server ${loading.join(', ')} to load the parameters to begin with`;
  return [server, worker].filter((text) => text !== undefined).join('; ') || 'is about to be set up';
}
