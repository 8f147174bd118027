/** The choice of a topology: by what was measured, the same in all members, and with canonical bits where that costs little. */
import { processClock } from '@paceline/exchange';
import { expect, it } from 'vitest';
import { groupsInMemory } from './group.fixture.js';
import { candidates, choose, probe, type Timing } from './probe.js';
import type { Topology } from './routes.js';

const timings = (times: Partial<Record<Topology, readonly [number, number]>>): Timing[] =>
  Object.entries(times).flatMap(([topology, [short, long]]) => [
    { topology: topology as Topology, bytes: 4096, durationMs: short },
    { topology: topology as Topology, bytes: 1 << 20, durationMs: long },
  ]);
const hosts = ['a', 'a', 'b'];

it('takes what is the fastest for the length of the vector', () => {
  const measured = timings({ direct: [1, 2], tree: [0.5, 8], hierarchical: [2, 2.1] });
  const chosen = (bytes: number) => choose(measured, bytes, hosts, 3).topology;
  expect([chosen(1000), chosen(1 << 20), chosen(100 << 20)]).toEqual(['tree', 'direct', 'hierarchical']);
  const { estimates } = choose(measured, 3 << 19, hosts, 3);
  expect(estimates.map(({ topology }) => topology)).toEqual(['direct', 'tree', 'hierarchical']);
  expect(estimates[0]!.durationMs).toBeCloseTo(2.5, 2);
});

it('gives bits that depend on the members up for a tenth of the time and more alone', () => {
  const times = (ring: number) => timings({ direct: [1, 2], ring: [1, ring] });
  expect(choose(times(1.85), 1 << 20, hosts, 3)).toMatchObject({ topology: 'direct', keepsOrder: true });
  expect(choose(times(1.75), 1 << 20, hosts, 3)).toMatchObject({ topology: 'ring', keepsOrder: false });
});

it('leaves the ring out for packed sums, and then no way for its bits', () => {
  const times = (tree: number) => timings({ direct: [1, 2], tree: [1, tree], ring: [0.1, 0.1] });
  expect(choose(times(1.95), 1 << 20, hosts, 3, true)).toMatchObject({ topology: 'tree', keepsOrder: false });
  expect(choose(times(2.05), 1 << 20, hosts, 3, true)).toMatchObject({ topology: 'direct', keepsOrder: false });
});

it('tries what may pay off for members on these hosts', () => {
  expect(candidates(['a', 'b'])).toEqual(['direct', 'tree']);
  expect(candidates(['a', 'a', 'a'])).toEqual(['direct', 'tree', 'ring']);
  expect(candidates(hosts)).toEqual(['direct', 'tree', 'ring', 'hierarchical']);
});

it('all members get the times of the slowest', async () => {
  const groups = groupsInMemory(3);
  let calls = 0;
  // Member 2 has a clock of its own, in which everything takes longer.
  const slow = { ...processClock, now: () => processClock.now() + ++calls * 10_000 };
  const tables = await Promise.all(groups.map((group, self) => probe(group, self, hosts, 3, self === 2 ? slow : processClock)));
  expect(tables[1]).toEqual(tables[0]);
  expect(tables[2]).toEqual(tables[0]);
  expect(tables[0]!.length).toBe(8);
  for (const { durationMs } of tables[0]!) expect(durationMs).toBeGreaterThanOrEqual(10_000);
  for (const group of groups) group.leave('the test is over');
});

it('sends what members with these replicas would send: each node by itself', async () => {
  const sent = async (replicas: number): Promise<number[]> => {
    const groups = groupsInMemory(2);
    await Promise.all(groups.map((group, self) => probe(group, self, ['a', 'a'], replicas, processClock)));
    for (const group of groups) group.leave('the test is over');
    return groups.map(({ counters }) => counters.sentBytes);
  };
  const [one, three] = [await sent(2), await sent(6)];
  // Three replicas of a member are two nodes of the tree over six: a direct exchange sends both.
  for (const [i, bytes] of three.entries()) expect(bytes / one[i]!).toBeGreaterThan(1.2);
});
