/**
 * I7: an old fence writes nothing. What says that it is of another attempt than the part of a server it comes to may be refused, or
 * dropped and counted; it must move neither the shard nor the coordinator. Looked at where it comes in, by the rows that are taken.
 */
import type { HostedAttempt } from './hosted-attempt.js';
import type { Cluster } from './cluster.js';

/** Rows that drop and count. */
const HARMLESS = new Set(['chunkStale', 'contributionStale', 'commitRepeated', 'decisionRepeated']);

function moves({ shard, coordinator }: HostedAttempt): number {
  let sum = 0;
  for (const { taken } of coordinator ? [shard.table, coordinator.table] : [shard.table])
    for (const [row, count] of taken) if (!HARMLESS.has(String(row))) sum += count;
  return sum;
}

/** Hands something that comes from outside to a part of an attempt. @param attempt the one that it says it is of */
export function fenced<T>(part: HostedAttempt, cluster: Cluster, attempt: number, what: string, hand: () => T): T {
  if (attempt === part.attempt) return hand();
  cluster.network.count('something of another attempt came');
  const before = moves(part);
  try {
    return hand();
  } finally {
    cluster.checks.expect(
      moves(part) === before,
      'I7',
      () => `${what} of attempt ${attempt} moved server ${part.index}, which is in attempt ${part.attempt}`,
    );
  }
}
