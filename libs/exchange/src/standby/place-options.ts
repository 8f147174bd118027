/** What a server's place in a shard is given, and the process that it is in. */
import type { MessageOf } from '@paceline/protocol';
import type { LinkedServer } from '../attempt/server-links.js';
import type { Clock } from '../clock.js';
import type { Connection } from '../connection.js';

/**
 * Why a server has nothing to do in its place any more: the run is over, another server has the shard or may have it, its standby is
 * not needed or not wanted, or nobody coordinates.
 */
export type PlaceEnd = 'RUN_OVER' | 'REPLACED' | 'STANDBY_OVER' | 'COORDINATOR_GONE';

export interface ShardLead {
  /** Raised at each takeover inside the attempt. */
  readonly term: number;
  readonly primary: string;
  readonly standby: string | null;
}

/** Where the servers of the attempt are: primaries by index, and the standbys that there are. */
export interface PlaceAddresses<Address> {
  readonly servers: readonly Address[];
  readonly standbys: readonly Address[];
}

/** The process of a place: HostedPlace of libs/hosting. */
export interface PlaceSurroundings<Address extends LinkedServer> {
  /** Opens a connection within its own deadline. */
  connect(address: Address): Promise<Connection>;
  hello(role: 'server' | 'standby'): MessageOf<'hello'>;
  /** Asks the arbiter; its answer comes through `answered`. Repeated until it does, or the place is given up. */
  ask(want: 'drop' | 'promote', term: number): void;
  /** Index 0: the near end of a connection to the coordinator in this process, made for the purpose after a promotion. */
  coordinatorHere(isPromoted: boolean): Connection;
  /** Workers may be admitted from now on. */
  promoted(): void;
  /** Nothing is left for this server to do. */
  placeOver(end: PlaceEnd, why: string): void;
  /** Runs what may fail for this run alone. */
  guard(act: () => void): void;
}

export interface ShardPlaceOptions<Address extends LinkedServer> {
  readonly index: number;
  readonly attempt: number;
  readonly serverId: string;
  readonly isStandby: boolean;
  readonly clock: Clock;
  readonly surroundings: PlaceSurroundings<Address>;
  readonly giveUpMs?: number;
  readonly silentMs?: number;
  /** For how long the arbiter is asked. */
  readonly askAtMostMs?: number;
}

/** A pause before an address is tried again. */
export const PAUSE_MS = 50;
/** How often the place of a shard, and what belongs to it, is told the time. */
export const PLACE_TICK_MS = 100;
