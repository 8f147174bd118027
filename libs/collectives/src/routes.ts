/**
 * Whom the sums of a vector pass: pure. Every piece of a vector has an owner. On the way up each member adds what it gets to what it has, and
 * sends that on towards the owner; on the way down the owner's sum goes to all. A route says both ways for the pieces of one owner.
 *
 *     direct         up: everybody to the owner.                              down: the owner to everybody
 *     ring           up: from behind the owner once around, member to member.  down: once around again
 *     tree           up: in pairs, pairs of pairs, …, ⌈log₂ n⌉ hops.           down: the same way back
 *     hierarchical   up: to one member of the own host, which sends to the owner. down: the same way back
 *
 * In a ring, with direct routes and with hosts every member sends and receives 2(n − 1)/n of the vector (Patarasuk and Yuan, "Bandwidth optimal all-reduce
 * algorithms for clusters of workstations", 2009). With L members on each of H hosts, a host sends 2(H − 1)/H of it to others. The tree is binomial (Thakur, Rabenseifner and Gropp,
 * "Optimization of collective communication operations in MPICH", 2005).
 */
import { maximalNodes, split, type Node } from '@paceline/learning';
import { replicasOf } from './parts.js';

export const TOPOLOGIES = ['direct', 'ring', 'tree', 'hierarchical'] as const;
export type Topology = (typeof TOPOLOGIES)[number];

/** By member; undefined for the owner. */
export interface Route {
  /** Whom it sends its sum to. */
  readonly up: readonly (number | undefined)[];
  /** Whom it gets the sum of all from. */
  readonly down: readonly (number | undefined)[];
}

/** @param hosts of each member, by names that are equal where the host is */
export function routeOf(topology: Topology, hosts: readonly string[], owner: number): Route {
  const members = hosts.length;
  const all = hosts.map((_, member) => member);
  switch (topology) {
    case 'direct': {
      const up = all.map((member) => (member === owner ? undefined : owner));
      return { up, down: up };
    }
    case 'ring':
      return {
        up: all.map((member) => (member === owner ? undefined : (member + 1) % members)),
        down: all.map((member) => (member === owner ? undefined : (member + members - 1) % members)),
      };
    case 'tree': {
      const up: (number | undefined)[] = all.map(() => undefined);
      pair(up, { lo: 0, hi: members }, owner);
      return { up, down: up };
    }
    case 'hierarchical': {
      const place = all.filter((member) => hosts[member] === hosts[owner]).indexOf(owner);
      const up = all.map((member) => {
        if (member === owner) return undefined;
        const beside = all.filter((each) => hosts[each] === hosts[member]);
        if (beside.includes(owner)) return owner;
        const collector = beside[place % beside.length]!;
        return member === collector ? owner : collector;
      });
      return { up, down: up };
    }
  }
}

/** Halves as the reduction tree has them: one half's sum goes to the other, of which the owner is part if it is in either. @returns who has the sum */
function pair(up: (number | undefined)[], { lo, hi }: Node, owner: number): number {
  if (hi - lo === 1) return lo;
  const middle = split(lo, hi);
  const [left, right] = [pair(up, { lo, hi: middle }, owner), pair(up, { lo: middle, hi }, owner)];
  const [from, to] = right === owner ? [left, right] : [right, left];
  up[from] = to;
  return to;
}

/** Members that send to one, in order; beginning behind it, so that nobody is sent to by all at once. */
export const sendersTo = (towards: Route['up'], member: number): number[] =>
  towards.map((_, i) => (member + 1 + i) % towards.length).filter((each) => towards[each] === member);

/** Nodes of the reduction tree over all replicas that a member has added up when it sends its sum. */
export function nodesUnder({ up }: Route, replicas: number, member: number): Node[] {
  const held = new Set<number>();
  const visit = (at: number): void => {
    const { from, to } = replicasOf(replicas, up.length, at);
    for (let replica = from; replica < to; replica++) held.add(replica);
    for (const sender of sendersTo(up, at)) visit(sender);
  };
  visit(member);
  return maximalNodes(replicas, held);
}

/**
 * Whether sums run in the order of the reduction tree, so that their bits depend on the number of replicas alone. With direct routes and in a tree
 * they always do: what is no node yet is sent node by node. Elsewhere they do if every sum on the way is one node anyway.
 */
export function keepsOrder(topology: Topology, hosts: readonly string[], replicas: number): boolean {
  if (topology === 'direct' || topology === 'tree') return true;
  return hosts.every((_, owner) => {
    const route = routeOf(topology, hosts, owner);
    return hosts.every((__, member) => member === owner || nodesUnder(route, replicas, member).length === 1);
  });
}
