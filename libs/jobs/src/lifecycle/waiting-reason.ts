/** What a run waits for, in words that say what to do. */
import { PROTOCOL_VERSION } from '@paceline/protocol';

export interface FleetCounts {
  readonly liveServers: number;
  readonly liveWorkers: number;
  readonly idleWorkers: number;
  /** Alive, but of another protocol version. */
  readonly incompatible: readonly { readonly role: 'worker' | 'server'; readonly id: string; readonly protocolVersion: number }[];
}

const START = 'start one with `paceline up`';
const plural = (count: number, what: string): string => `${count} ${what}${count === 1 ? '' : 's'}`;

export function waitsForServers(
  { liveServers, incompatible = [] }: Partial<FleetCounts> & { liveServers: number },
  needed: number,
  claimed: number,
): string {
  const what = `waits for ${plural(needed, 'parameter server')}`;
  if (liveServers === 0) return `${what}: none is connected; ${otherVersion(incompatible, 'server') ?? START}`;
  if (liveServers < needed)
    return `${what}: ${liveServers === 1 ? 'only one is' : `only ${liveServers} are`} connected; start more, or ask for fewer (strategy.servers)`;
  return claimed === 0 ? `${what} to take their parts` : `${what} to take their parts: ${claimed} of ${needed} have`;
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
export function queuedReason(counts: FleetCounts, servers: number, claimed: number): string {
  const worker = waitsForWorker(counts);
  let server = claimed < servers ? waitsForServers(counts, servers, claimed) : undefined;
  if (worker?.endsWith(START)) server = server?.replace(`; ${START}`, ''); // said once is enough
  return [server, worker].filter((text) => text !== undefined).join('; ') || 'is about to be set up';
}
