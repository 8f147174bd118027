/**
 * Which workers form a group, of which one alone speaks with the parameter servers: the head, which is the first one of the group. Pure.
 *
 * Inside a group sums go up and parameters go down a binomial tree, which pairs workers as the reduction tree pairs their replicas. With eight workers:
 *
 *     servers ── 0 ─┬─ 1          worker w of a group asks the one whose number has the lowest bit of w cleared
 *                   ├─ 2 ── 3
 *                   └─ 4 ─┬─ 5
 *                         └─ 6 ── 7
 *
 * So a worker gets ⌈log₂ n⌉ vectors at most, and sends one.
 */
import { maximalNodes, type Node } from '@paceline/learning';
import type { Share } from '../threads/protocol.js';

/** A worker whose sums come to this one. */
export interface WorkerBelow {
  /** Place in the roster. */
  readonly place: number;
  /** What it sends: over its replicas, and those of the workers below it. */
  readonly nodes: readonly Node[];
}

/** What a worker is in its group. */
export interface GroupPlan {
  /** What it sends on, over its replicas and those of the workers below it. */
  readonly nodes: readonly Node[];
  /** Place in the roster of the worker above, which hands parameters down; undefined for the head, which speaks with the servers. */
  readonly above: number | undefined;
  readonly below: readonly WorkerBelow[];
}

/**
 * @param shares of all workers
 * @param places of the workers in the roster
 * @returns of each worker; undefined where a group is one worker
 */
export function groupPlans(
  shares: readonly Share[],
  places: readonly number[],
  workersPerGroup: number,
): readonly (GroupPlan | undefined)[] {
  if (workersPerGroup === 1) return shares.map(() => undefined);
  /** The workers below a worker and itself: from it on. */
  const endOf = (worker: number): number => {
    const [first, own] = [worker - (worker % workersPerGroup), worker % workersPerGroup];
    const width = own === 0 ? workersPerGroup : own & -own;
    return Math.min(worker + width, first + workersPerGroup, shares.length);
  };
  const nodesOf = (worker: number): Node[] => nodesBetween(shares, worker, endOf(worker));
  return shares.map((_, worker) => {
    const [first, own] = [worker - (worker % workersPerGroup), worker % workersPerGroup];
    const below: WorkerBelow[] = [];
    for (let next = worker + 1; next < endOf(worker); next = endOf(next)) below.push({ place: places[next]!, nodes: nodesOf(next) });
    return { nodes: nodesOf(worker), above: own === 0 ? undefined : places[first + (own & (own - 1))]!, below };
  });
}

/** Why the groups cannot be: one whose replicas are several nodes of the reduction tree would send several sums. @returns undefined where all are one */
export function reasonAgainstGroups(shares: readonly Share[], workersPerGroup: number): string | undefined {
  if (workersPerGroup === 1) return undefined;
  const { length } = shares;
  for (let first = 0; first < length; first += workersPerGroup) {
    const end = Math.min(first + workersPerGroup, length);
    const nodes = nodesBetween(shares, first, end);
    if (nodes.length === 1) continue;
    const [from, to] = [shares[first]!.from, shares[end - 1]!.to];
    return `the replicas ${from} to ${to - 1} of the workers ${first} to ${end - 1} are ${nodes.length} nodes of the reduction tree, so this group would send ${nodes.length} sums: make workersPerGroup × replicasPerWorker a power of two, or make one group of all ${length} workers`;
  }
  return undefined;
}

/** The nodes over the replicas of the workers [first, end). */
function nodesBetween(shares: readonly Share[], first: number, end: number): Node[] {
  const [from, to] = [shares[first]!.from, shares[end - 1]!.to];
  return maximalNodes(shares[0]!.replicas, new Set(Array.from({ length: to - from }, (_, i) => from + i)));
}
