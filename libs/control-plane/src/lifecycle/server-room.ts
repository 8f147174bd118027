/**
 * Whether some server has the memory for a part of a run beside the parts that it holds. Servers decide that by themselves
 * (libs/hosting, placement-loop.ts): the same numbers say here why a placement is taken by nobody.
 *
 * Runs that hold some of their parts may wait for each other's memory, and no server sees that: then the younger ones are in the way of the oldest
 * one for which their memory is enough, and let go of what they hold (placing.ts). All do so at the same time, counted from the last claim of the older
 * run: if each went by its own, one would be back before the next one goes, and a run that needs all their memory would never have it.
 */
import { PLACES_PER_SERVER } from './fair-share.js';
import type { MemoryWait } from './waiting-reason.js';

/** A server that is there. */
export interface RoomyServer {
  readonly id: string;
  /** What it may use; undefined where it does not say. */
  readonly memoryBytes?: number | undefined;
}

/** What a server holds of a run, and the bytes that this needs. */
export interface HeldPart {
  readonly runId: string;
  readonly serverId: string;
  readonly bytes: number;
  /** Other parts of the run are on no server yet, so it has not begun: when the last one was taken. */
  readonly waitsSinceMs?: number | undefined;
}

/** A run with a part that nobody has taken, and the bytes of one. */
export interface UnplacedRun {
  readonly runId: string;
  readonly bytes: number;
}

/** A server with what it holds. */
interface Place {
  readonly memoryBytes: number | undefined;
  readonly held: readonly HeldPart[];
}

/** Runs for which every server that has a place lacks the memory. One that holds nothing else takes what comes. */
export function memoryWaits(
  unplaced: readonly UnplacedRun[],
  servers: readonly RoomyServer[],
  parts: readonly HeldPart[],
): Map<string, MemoryWait> {
  const waits = new Map<string, MemoryWait>();
  const places = servers.map(({ id, memoryBytes }): Place => ({ memoryBytes, held: parts.filter(({ serverId }) => serverId === id) }));
  const inTheWay = runsInTheWay(places);
  for (const run of unplaced) {
    const candidates = places.filter(({ held }) => !holds(held, run) && held.length < PLACES_PER_SERVER);
    const [roomiest] = [...candidates].sort((a, b) => freeBytes(b) - freeBytes(a));
    if (!roomiest || candidates.some((place) => hasRoom(place, run))) continue;
    waits.set(run.runId, {
      neededBytes: run.bytes,
      freeBytes: freeBytes(roomiest),
      memoryBytes: roomiest.memoryBytes ?? 0,
      runs: roomiest.held.length,
      olderWaitsSinceMs: inTheWay.get(run.runId),
    });
  }
  return waits;
}

/**
 * Younger runs that have to let go so that an older one, which holds a part too, gets one more; with the time since which that one waits. Ids of runs
 * are UUIDs of version 7: the older comes first.
 */
function runsInTheWay(places: readonly Place[]): Map<string, number> {
  const partial = new Map(places.flatMap(({ held }) => held.filter(isPartial).map((part) => [part.runId, part])));
  const leaving = new Map<string, number>();
  for (const runId of [...partial.keys()].sort()) {
    if (leaving.has(runId)) continue;
    const run = partial.get(runId)!;
    const left = places.map(({ memoryBytes, held }) => ({ memoryBytes, held: held.filter((part) => !leaving.has(part.runId)) }));
    const candidates = left.filter(({ held }) => !holds(held, run));
    if (candidates.some((place) => hasRoom(place, run))) continue;
    const ways = candidates.flatMap((place) => youngerToLeave(place, run) ?? []);
    const [fewest] = ways.sort((a, b) => a.length - b.length);
    for (const younger of fewest ?? []) leaving.set(younger, run.waitsSinceMs);
  }
  return leaving;
}

/** The youngest first, until there is room; undefined where that is never. */
function youngerToLeave({ memoryBytes, held }: Place, run: UnplacedRun): string[][] | undefined {
  const younger = held.filter((part) => isPartial(part) && part.runId > run.runId).sort((a, b) => (a.runId > b.runId ? -1 : 1));
  for (let count = 1; count <= younger.length; count++) {
    const gone = younger.slice(0, count);
    if (hasRoom({ memoryBytes, held: held.filter((part) => !gone.includes(part)) }, run)) return [gone.map(({ runId }) => runId)];
  }
  return undefined;
}

const isPartial = (part: HeldPart): part is HeldPart & { readonly waitsSinceMs: number } => part.waitsSinceMs !== undefined;

/** One process holds one part of a run. */
const holds = (held: readonly HeldPart[], { runId }: UnplacedRun): boolean => held.some((part) => part.runId === runId);

const freeBytes = ({ memoryBytes, held }: Place): number =>
  Math.max(0, (memoryBytes ?? Infinity) - held.reduce((sum, part) => sum + part.bytes, 0));

const hasRoom = (place: Place, { bytes }: UnplacedRun): boolean =>
  place.held.length === 0 || (place.held.length < PLACES_PER_SERVER && freeBytes(place) >= bytes);
