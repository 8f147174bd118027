/**
 * Whether some server has the memory for a part of a run beside the parts that it holds. Servers decide that by themselves
 * (libs/hosting, placement-loop.ts): the same numbers say here why a placement is taken by nobody.
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
}

/** A run with a part that nobody has taken, and the bytes of one. */
export interface UnplacedRun {
  readonly runId: string;
  readonly bytes: number;
}

/** Runs for which every server that has a place lacks the memory. One that holds nothing else takes what comes. */
export function memoryWaits(
  unplaced: readonly UnplacedRun[],
  servers: readonly RoomyServer[],
  parts: readonly HeldPart[],
): Map<string, MemoryWait> {
  const waits = new Map<string, MemoryWait>();
  for (const { runId, bytes } of unplaced) {
    const candidates = servers.flatMap(({ id, memoryBytes }) => {
      const held = parts.filter(({ serverId }) => serverId === id);
      // One process holds one part of a run.
      if (held.some((part) => part.runId === runId) || held.length >= PLACES_PER_SERVER) return [];
      const heldBytes = held.reduce((sum, part) => sum + part.bytes, 0);
      return [{ memoryBytes, runs: held.length, freeBytes: Math.max(0, (memoryBytes ?? Infinity) - heldBytes) }];
    });
    const [roomiest] = [...candidates].sort((a, b) => b.freeBytes - a.freeBytes);
    if (!roomiest || roomiest.freeBytes >= bytes || candidates.some(({ runs }) => runs === 0)) continue;
    const { freeBytes, memoryBytes = 0, runs } = roomiest;
    waits.set(runId, { neededBytes: bytes, freeBytes, memoryBytes, runs });
  }
  return waits;
}
