/**
 * Which member computes which replicas: pure functions of the members' order. Results never depend on it (the reduction
 * is canonical), only speed does: contiguous blocks let a worker add up locally and send one tree node instead of many.
 */

/** Splits replicas 0..R-1 into contiguous blocks over `members`, in their order. With more members than replicas some stand by. */
export function balancedAssignment(members: readonly string[], replicas: number): Map<string, number[]> {
  const result = new Map<string, number[]>();
  const count = members.length;
  members.forEach((id, i) => {
    const from = Math.floor((i * replicas) / count);
    const to = Math.floor(((i + 1) * replicas) / count);
    result.set(
      id,
      Array.from({ length: to - from }, (_, j) => from + j),
    );
  });
  return result;
}

/** Gives orphaned replicas to the members that hold fewest, leaving everything else where it is (used in the middle of a round). */
export function coverOrphans(current: ReadonlyMap<string, readonly number[]>, orphans: readonly number[]): Map<string, number[]> {
  const result = new Map<string, number[]>([...current].map(([id, replicas]) => [id, [...replicas]]));
  if (result.size === 0) return result;
  for (const replica of [...orphans].sort((a, b) => a - b)) {
    let best: number[] | undefined;
    for (const held of result.values()) if (!best || held.length < best.length) best = held;
    best!.push(replica);
  }
  for (const held of result.values()) held.sort((a, b) => a - b);
  return result;
}

export function sameAssignment(a: ReadonlyMap<string, readonly number[]>, b: ReadonlyMap<string, readonly number[]>): boolean {
  if (a.size !== b.size) return false;
  for (const [id, replicas] of a) {
    const other = b.get(id);
    if (!other || other.length !== replicas.length || other.some((r, i) => r !== replicas[i])) return false;
  }
  return true;
}
