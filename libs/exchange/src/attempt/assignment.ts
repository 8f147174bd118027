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

/**
 * Contiguous blocks whose sizes make the slowest block as fast as it can be: each next replica goes to the member that would be done with it first.
 * A member may get none when it would hold up the others with one.
 */
export function weightedAssignment(
  members: readonly { readonly id: string; readonly speed: number }[],
  replicas: number,
): Map<string, number[]> {
  const sizes = members.map(() => 0);
  for (let replica = 0; replica < replicas && members.length > 0; replica++) {
    let best = 0;
    for (let i = 1; i < members.length; i++) if ((sizes[i]! + 1) / members[i]!.speed < (sizes[best]! + 1) / members[best]!.speed) best = i;
    sizes[best] = sizes[best]! + 1;
  }
  let from = 0;
  return new Map(
    members.map(({ id }, i) => {
      const block = Array.from({ length: sizes[i]! }, (_, j) => from + j);
      from += block.length;
      return [id, block];
    }),
  );
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
