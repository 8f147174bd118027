/** Who is above whom in groups of workers, and which groups send one sum. */
import { nodesOf, replicasOf } from '@paceline/collectives';
import { expect, it } from 'vitest';
import type { Share } from '../threads/protocol.js';
import { groupPlans, reasonAgainstGroups } from './worker-groups.js';

const sharesOf = (workers: number, each: number): Share[] =>
  Array.from({ length: workers }, (_, worker) => ({
    replicas: workers * each,
    ...replicasOf(workers * each, workers, worker),
    nodes: nodesOf(workers * each, workers, worker),
  }));
const placesOf = (workers: number): number[] => Array.from({ length: workers }, (_, i) => i + 1);
const plansOf = (workers: number, each: number, size: number) => groupPlans(sharesOf(workers, each), placesOf(workers), size);

it('a group is a binomial tree, whose workers send one node each', () => {
  expect(plansOf(2, 4, 1)).toEqual([undefined, undefined]);
  const plans = plansOf(8, 2, 8);
  expect(plans.map((plan) => plan!.above)).toEqual([undefined, 1, 1, 3, 1, 5, 5, 7]);
  expect(plans.map((plan) => plan!.below.map(({ place }) => place))).toEqual([[2, 3, 5], [], [4], [], [6, 7], [], [8], []]);
  expect(plans.map((plan) => plan!.nodes.map(({ lo, hi }) => hi - lo))).toEqual([[16], [2], [4], [2], [8], [2], [4], [2]]);
});

it.each([
  [4, 1, 2],
  [4, 2, 2],
  [5, 1, 2],
  [7, 2, 4],
  [3, 3, 3],
  [6, 1, 6],
])('%i workers with %i replicas, %i in a group: each group sends one sum, over the nodes of all of its workers', (workers, each, size) => {
  const [shares, plans] = [sharesOf(workers, each), plansOf(workers, each, size)];
  expect(reasonAgainstGroups(shares, size)).toBeUndefined();
  const heads = plans.filter((plan) => plan!.above === undefined);
  expect(heads).toHaveLength(Math.ceil(workers / size));
  for (const [worker, plan] of plans.entries()) {
    if (worker % size === 0) expect(plan!.nodes).toHaveLength(1);
    const covered = [...shares[worker]!.nodes, ...plan!.below.flatMap(({ nodes }) => nodes)];
    const count = (nodes: readonly { readonly lo: number; readonly hi: number }[]): number =>
      nodes.reduce((sum, { lo, hi }) => sum + hi - lo, 0);
    expect(count(covered)).toBe(count(plan!.nodes));
    for (const { place, nodes } of plan!.below) {
      expect(plans[place - 1]!.above).toBe(worker + 1);
      expect(plans[place - 1]!.nodes).toEqual(nodes);
    }
  }
});

it('groups that would send several sums are refused', () => {
  expect(reasonAgainstGroups(sharesOf(6, 1), 3)).toMatch(/replicas 0 to 2 of the workers 0 to 2 are 2 nodes .* a power of two/);
  expect(reasonAgainstGroups(sharesOf(4, 3), 2)).toMatch(/would send 2 sums/);
  expect(reasonAgainstGroups(sharesOf(4, 3), 1)).toBeUndefined();
});
