/** Rows of places: what a placement that is made again, a claim and a complaint change, decided from the rows under the lock of the run. */
import { placementJobId } from '../contract/queues.js';
import type { Report } from '../contract/reports.js';
import { causeOfComplaint, type AttemptEnd } from '../lifecycle/attempt-end.js';
import type { DispatchAction } from '../lifecycle/observed-run.js';
import { complaintCounts, shardsOf } from '../lifecycle/shards.js';
import { placeOf, type StoredAttempt, type StoredServer } from '../dispatch/rows.js';
import type { RunHead } from './moves.js';

type Of<K extends Report['kind']> = Extract<Report, { kind: K }>;

/** Columns of a place. */
export interface PlaceChange {
  readonly serverId?: string | null;
  readonly host?: string | null;
  readonly port?: number | null;
  readonly unixPath?: string | null;
  readonly storage?: string | null;
  readonly incarnation?: number;
  readonly madeAt?: Date;
  readonly claimedAt?: Date | null;
  readonly isLoading?: boolean;
  readonly term?: number;
  readonly droppedAt?: Date;
}

const UNCLAIMED = { serverId: null, host: null, port: null, unixPath: null, storage: null, claimedAt: null, isLoading: false } as const;

/** Undefined when the place was made again, or claimed, since that was decided. */
export function madeAgain(
  { id, attempt }: RunHead & { readonly id: string },
  place: Pick<StoredServer, 'incarnation' | 'serverId'> | null,
  { index, role, incarnation, serverId }: Extract<DispatchAction, { kind: 'make-placement-again' }>,
  now: Date,
): { readonly place: PlaceChange; readonly jobId: string } | undefined {
  if (place?.incarnation !== incarnation || place.serverId !== serverId) return undefined;
  return {
    place: { ...UNCLAIMED, incarnation: incarnation + 1, madeAt: now },
    jobId: placementJobId(id, attempt, index, incarnation + 1, role),
  };
}

/**
 * The first claim of a part counts, at once, though its server still loads; the server says so again when it has loaded. Another server that
 * took a copy of the job finds itself missing in `start`.
 */
export function claimed(
  run: RunHead | undefined,
  place: Pick<StoredServer, 'incarnation' | 'serverId' | 'claimedAt' | 'isLoading'> | null,
  { attempt, incarnation, address, storage, loading: isLoading = false }: Of<'server.claimed'>,
  now: Date,
): PlaceChange | undefined {
  if (run?.attempt !== attempt || !place) return undefined;
  const { serverId, host, port, unixPath } = address;
  if (place.claimedAt === null)
    return (incarnation ?? place.incarnation) === place.incarnation
      ? { serverId, host, port, unixPath, storage: storage ?? null, claimedAt: now, isLoading }
      : undefined;
  return place.serverId === serverId && place.isLoading && !isLoading ? { isLoading } : undefined;
}

/** How the attempt ends for what a server says; undefined when it has no say in it. */
export function endOfComplaint(
  run: RunHead | undefined,
  attempt: Pick<StoredAttempt, 'startedAt'> | null,
  places: readonly StoredServer[],
  { attempt: of, index, serverId, code, message }: Of<'server.failed'>,
): AttemptEnd | undefined {
  if (run?.attempt !== of) return undefined;
  const heard = places.map((place) => ({ ...placeOf(place), serverId: place.serverId }));
  if (!complaintCounts(heard, Boolean(attempt?.startedAt), { index, serverId })) return undefined;
  // A lost coordinator's own words name another server than the one that speaks.
  const words = code === 'COORDINATOR_LOST' ? message : `parameter server ${index} failed (${code}): ${message}`;
  return { kind: 'failed', cause: causeOfComplaint(code), message: words };
}

/** The server that a worker cannot reach: who leads the shard. */
export const suspectOf = (places: readonly StoredServer[], index: number): string | undefined =>
  shardsOf(places.map((place) => ({ ...placeOf(place), serverId: place.serverId }))).find((shard) => shard.index === index)?.primary
    .serverId ?? undefined;
