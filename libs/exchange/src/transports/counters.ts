import type { DataPlaneErrorCode } from '@paceline/protocol';

/** What passed through one or more connections since they were made. */
export interface TransportCounters {
  framesIn: number;
  framesOut: number;
  /** Bytes read, headers included. */
  bytesIn: number;
  /** Bytes handed to the operating system, headers included. */
  bytesOut: number;
  /** Connections that the operating system could not hand over (no descriptors left, for one). */
  acceptFaults: number;
  /** Connections that this side refused, by code. */
  readonly refused: Partial<Record<DataPlaneErrorCode, number>>;
}

export function createCounters(): TransportCounters {
  return { framesIn: 0, framesOut: 0, bytesIn: 0, bytesOut: 0, acceptFaults: 0, refused: {} };
}

export function countRefused(counters: TransportCounters, code: DataPlaneErrorCode): void {
  counters.refused[code] = (counters.refused[code] ?? 0) + 1;
}
