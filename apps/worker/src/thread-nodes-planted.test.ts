/**
 * Planted mistakes in the sums of compute threads: each must be found by the check that thread-nodes.test.ts makes, that a seat sends the nodes and the bits of one thread, and gives
 * all memory back. Rounds follow one another, and vectors are used again, as in a worker.
 */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { GradientMemory, PlacedNode } from './gradient-memory.js';
import { alone, type Mistake, seat } from './thread-nodes.fixture.js';
import { addUp, ThreadNodes } from './thread-nodes.js';

const ROUNDS = 2;
const SEED = 7;
/** Cases within which a mistake has to be found; what is right has to pass so many. */
const CASES = 40;

/** @returns whether a case shows that something is wrong */
function isFound(mistake: Mistake): boolean {
  const sizes = fc.record({ replicas: fc.integer({ min: 1, max: 11 }), threads: fc.integer({ min: 1, max: 5 }) });
  const streams = [fc.infiniteStream(fc.nat()), fc.infiniteStream(fc.boolean()), fc.nat({ max: 12 })] as const;
  const property = fc.property(sizes, ...streams, ({ replicas, threads }, order, holds, after) => {
    const held = Array.from({ length: replicas }, (_, replica) => replica).filter(() => holds.next().value);
    if (held.length === 0) return;
    const { memory, seatNodes, nodes, work, isBusy } = seat(threads, replicas, undefined, mistake);
    seatNodes.step(0, held);
    for (let i = 0; i < after; i++) work(order.next().value! % threads);
    seatNodes.committed(0); // by others, perhaps before all nodes of this seat are there
    seatNodes.step(1, held);
    while (isBusy()) work(order.next().value! % threads);
    const expected = alone(replicas, held, ROUNDS);
    const isDue = (name: string): boolean => name.startsWith('1 ') || name in nodes;
    expect(nodes).toEqual(Object.fromEntries(Object.entries(expected).filter(([name]) => isDue(name))));
    expect(memory.bytesInUse).toBe(0);
  });
  return fc.check(property, { numRuns: CASES, seed: SEED, endOnFailure: true }).failed;
}

/** A vector is told of that has what the round before has left in it. */
class TellsOlder extends ThreadNodes {
  private older: { readonly node: PlacedNode; readonly values: readonly Float32Array[] } | undefined;

  override came(round: number, node: PlacedNode): void {
    const { memory } = (this as unknown as { options: { memory: GradientMemory } }).options;
    const pieces = memory.pieces(node.vector);
    const { older } = this;
    if (round === 0) this.older ??= { node, values: pieces.map((piece) => piece.slice()) };
    else if (older?.node.lo === node.lo && older.node.hi === node.hi)
      for (const [i, piece] of pieces.entries()) piece.set(older.values[i]!);
    super.came(round, node);
  }
}

/** What comes late, of a round that is over, counts for the one that is gathered. */
class IgnoresRounds extends ThreadNodes {
  private last = 0;

  override step(round: number, replicas: readonly number[]): void {
    this.last = round;
    super.step(round, replicas);
  }

  override came(_: number, node: PlacedNode): void {
    super.came(this.last, node);
  }
}

class CountsTwice extends ThreadNodes {
  override came(round: number, node: PlacedNode): void {
    super.came(round, node);
    if (node.lo % 2 === 0) super.came(round, node);
  }
}

/** The first thread that has added is taken for all. */
class TellsEarly extends ThreadNodes {
  override added(sum: number): void {
    const { gathering } = this as unknown as { gathering: Map<number, { adding: number }> };
    const found = gathering.get(sum);
    if (found) found.adding = 1;
    super.added(sum);
  }
}

class TakesArrival extends ThreadNodes {
  override came(round: number, node: PlacedNode): void {
    const { options } = this as unknown as { options: { post: (thread: number, message: unknown) => void } };
    const { post } = options;
    const nodes: PlacedNode[] = (this.arrived[round] ??= []);
    nodes.push(node);
    options.post = (thread, message) => {
      const asked = message as { kind: string; nodes: readonly PlacedNode[] };
      if (asked.kind !== 'sum') return post(thread, message);
      post(thread, { ...asked, nodes: nodes.filter((each) => asked.nodes.includes(each)) });
    };
    super.came(round, node);
    options.post = post;
  }

  private readonly arrived: Record<number, PlacedNode[]> = {};
}

const added = (
  change: (nodes: readonly PlacedNode[], ...rest: readonly [readonly number[], Parameters<typeof addUp>[2]]) => void,
): Mistake => ({
  addUp: (nodes, chunks, gradients) => change(nodes, chunks, gradients),
});

const MISTAKES: Readonly<Record<string, Mistake>> = {
  'a node is added twice': added((nodes, chunks, gradients) => {
    addUp(nodes, chunks, gradients);
    for (const chunk of chunks) gradients.addChunk(nodes[0]!.vector, nodes.at(-1)!.vector, chunk);
  }),
  'a node is missing': added((nodes, chunks, gradients) => addUp(nodes.slice(0, -1), chunks, gradients)),
  'a chunk is left to nobody': added((nodes, chunks, gradients) => addUp(nodes, chunks.slice(1), gradients)),
  'two threads add the same chunk': added((nodes, _, gradients) => addUp(nodes, [0], gradients)),
  'nodes are added one after the other, and not by the tree': added((nodes, chunks, gradients) => {
    const [first, ...rest] = nodes;
    for (const { vector } of rest) for (const chunk of chunks) gradients.addChunk(first!.vector, vector, chunk);
  }),
  'nodes are added from the last to the first': added((nodes, chunks, gradients) => {
    const sums = nodes.map(({ vector }) => vector);
    for (let i = sums.length - 1; i > 0; i--) for (const chunk of chunks) gradients.addChunk(sums[i - 1]!, sums[i]!, chunk);
  }),
  'a vector that has the sums of the round before is added': { Nodes: TellsOlder },
  'nodes of two rounds are added': { Nodes: IgnoresRounds },
  'a node is counted twice': { Nodes: CountsTwice },
  'the sum is told before all threads have added': { Nodes: TellsEarly },
  'nodes are added as they have come': { Nodes: TakesArrival },
};

it('nothing is found where nothing is wrong', () => {
  expect(isFound({})).toBe(false);
  expect(isFound({ Nodes: class extends ThreadNodes {}, addUp })).toBe(false);
});

it.each(Object.entries(MISTAKES))('is found: %s', (_, mistake) => {
  expect(isFound(mistake)).toBe(true);
});
