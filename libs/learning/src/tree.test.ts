import fc from 'fast-check';
import { waitingCopies } from '@paceline/spec';
import { describe, expect, it } from 'vitest';
import { ReductionTree, maximalNodes, nodeContains, split, validNode, type Node } from './tree.js';

/** A buffer that knows whether it was released. */
interface Buffer {
  values: Float32Array;
  released: boolean;
}
const LENGTH = 3;

/** The sum of a node by definition: the recursion written out, away from the tree code. */
function reference(gradients: Float32Array[], lo: number, hi: number): Float32Array {
  if (hi - lo === 1) return gradients[lo]!;
  let half = 1;
  while (half * 2 < hi - lo) half *= 2;
  const left = reference(gradients, lo, lo + half);
  const right = reference(gradients, lo + half, hi);
  return left.map((x, i) => Math.fround(x + right[i]!));
}

function allNodes(lo: number, hi: number): Node[] {
  if (hi - lo === 1) return [{ lo, hi }];
  const middle = split(lo, hi);
  return [{ lo, hi }, ...allNodes(lo, middle), ...allNodes(middle, hi)];
}

/** Counts buffers, so that a leak or a second release is seen. */
function ledger() {
  let live = 0;
  const make = (values: Float32Array): Buffer => {
    live++;
    return { values: values.slice(), released: false };
  };
  const operations = {
    add(into: Buffer, from: Buffer) {
      if (into.released || from.released) throw new Error('a released buffer is used');
      into.values.forEach((x, i) => (into.values[i] = Math.fround(x + from.values[i]!)));
    },
    release(buffer: Buffer) {
      if (buffer.released) throw new Error('released twice');
      buffer.released = true;
      live--;
    },
  };
  return { make, operations, live: () => live };
}

const gradientsOf = (replicas: number, seed: number): Float32Array[] =>
  Array.from({ length: replicas }, (_, r) =>
    Float32Array.from({ length: LENGTH }, (_, i) => Math.sin(seed + r * 12.9898 + i * 78.233) * 10 ** ((r * 7 + i) % 9)),
  );

const hex = (values: Float32Array): string => Buffer.from(values.slice().buffer).toString('hex');

describe('nodes', () => {
  it('split at the largest power of two below their size', () => {
    expect([2, 3, 4, 5, 6, 7, 8, 9, 1023, 1024].map((size) => split(10, 10 + size) - 10)).toEqual([1, 2, 2, 4, 4, 4, 4, 8, 512, 512]);
    expect(() => split(3, 4)).toThrow(RangeError);
  });

  it('are valid exactly when the recursion reaches them', () => {
    for (const replicas of [1, 2, 3, 5, 8, 13]) {
      const nodes = new Set(allNodes(0, replicas).map(({ lo, hi }) => `${lo}-${hi}`));
      for (let lo = -1; lo <= replicas; lo++) {
        for (let hi = lo - 1; hi <= replicas + 1; hi++)
          expect(validNode(replicas, lo, hi), `[${lo}, ${hi}) of ${replicas}`).toBe(nodes.has(`${lo}-${hi}`));
      }
    }
    expect(validNode(8, 0.5, 1)).toBe(false);
    expect(validNode(8, NaN, 1)).toBe(false);
  });

  it('contain one another or do not overlap', () => {
    expect(nodeContains({ lo: 0, hi: 4 }, { lo: 2, hi: 4 })).toBe(true);
    expect(nodeContains({ lo: 2, hi: 4 }, { lo: 2, hi: 4 })).toBe(true);
    expect(nodeContains({ lo: 2, hi: 4 }, { lo: 0, hi: 4 })).toBe(false);
  });

  it('that are maximal cover what is held, each once, in order, and none could be larger', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 40 }), fc.infiniteStream(fc.boolean()), (replicas, flips) => {
        const held = new Set(Array.from({ length: replicas }, (_, r) => r).filter(() => flips.next().value));
        const nodes = maximalNodes(replicas, held);
        const covered = nodes.flatMap(({ lo, hi }) => Array.from({ length: hi - lo }, (_, i) => lo + i));
        expect(covered).toEqual([...held].sort((a, b) => a - b));
        const complete = allNodes(0, replicas).filter(({ lo, hi }) =>
          Array.from({ length: hi - lo }, (_, i) => lo + i).every((r) => held.has(r)),
        );
        for (const node of complete) expect(nodes.filter((other) => nodeContains(other, node)).length).toBe(1);
      }),
    );
    expect(maximalNodes(8, new Set([0, 1, 2, 3]))).toEqual([{ lo: 0, hi: 4 }]);
    expect(maximalNodes(8, new Set([1, 2]))).toEqual([
      { lo: 1, hi: 2 },
      { lo: 2, hi: 3 },
    ]);
    expect(maximalNodes(5, new Set([4]))).toEqual([{ lo: 4, hi: 5 }]);
    expect(maximalNodes(5, new Set())).toEqual([]);
  });
});

describe('the reduction tree', () => {
  it('gives the bits of the recursion for any order, grouping, duplicate and overlap', () => {
    let dropped = 0;
    let replaced = 0;
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 24 }),
        fc.nat(1000),
        fc.array(fc.nat(), { maxLength: 60 }),
        fc.infiniteStream(fc.nat()),
        (replicas, seed, picks, order) => {
          const gradients = gradientsOf(replicas, seed);
          const nodes = allNodes(0, replicas);
          const { make, operations, live } = ledger();
          const tree = new ReductionTree<Buffer>(replicas, operations);
          // Some nodes in any order, with repetitions; then every leaf in any order, so that it completes.
          const leaves = Array.from({ length: replicas }, (_, r) => ({ lo: r, hi: r + 1 }));
          const shuffled = leaves
            .map((leaf) => [order.next().value, leaf] as const)
            .sort(([a], [b]) => a - b)
            .map(([, leaf]) => leaf);
          const come = new Set<number>();
          let complete = false;
          for (const node of [...picks.map((pick) => nodes[pick % nodes.length]!), ...shuffled]) {
            const before = live();
            const missing = new Set(tree.missingLeaves());
            const isNew = !complete && leaves.slice(node.lo, node.hi).some(({ lo }) => missing.has(lo));
            expect(tree.covers(node)).toBe(!isNew);
            expect(tree.isEmpty).toBe(come.size === 0);
            const outcome = tree.insert(node, make(reference(gradients, node.lo, node.hi)));
            expect(outcome === 'dropped').toBe(!isNew);
            if (outcome === 'dropped') dropped++;
            else for (let r = node.lo; r < node.hi; r++) come.add(r);
            if (outcome !== 'dropped' && live() < before) replaced++;
            if (!complete) expect(outcome === 'complete').toBe(come.size === replicas);
            complete ||= outcome === 'complete';
            expect(tree.missingLeaves()).toEqual(complete ? [] : leaves.map(({ lo }) => lo).filter((r) => !come.has(r)));
          }
          const root = tree.takeRoot();
          expect(hex(root.values)).toBe(hex(reference(gradients, 0, replicas)));
          expect(live()).toBe(1);
          expect(root.released).toBe(false);
        },
      ),
      { numRuns: 500 },
    );
    expect(dropped).toBeGreaterThan(100);
    expect(replaced).toBeGreaterThan(10);
  });

  it('gives the same bits from the maximal nodes of any partition of the replicas over workers', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 20 }),
        fc.integer({ min: 1, max: 6 }),
        fc.infiniteStream(fc.nat(5)),
        (replicas, workers, dealt) => {
          const gradients = gradientsOf(replicas, 1);
          const held = Array.from({ length: workers }, () => new Set<number>());
          for (let r = 0; r < replicas; r++) held[dealt.next().value % workers]!.add(r);
          const { make, operations } = ledger();
          const tree = new ReductionTree<Buffer>(replicas, operations);
          for (const replicasOfWorker of held) {
            for (const node of maximalNodes(replicas, replicasOfWorker)) {
              // The worker adds up with a tree of its own: the subtree of a node is the tree over its size, shifted.
              const local = new ReductionTree<Buffer>(node.hi - node.lo, operations);
              for (let r = node.hi - 1; r >= node.lo; r--) local.insert({ lo: r - node.lo, hi: r - node.lo + 1 }, make(gradients[r]!));
              tree.insert(node, local.takeRoot());
            }
          }
          expect(hex(tree.takeRoot().values)).toBe(hex(reference(gradients, 0, replicas)));
        },
      ),
    );
  });

  it('depends on the order of addition, or these tests would prove nothing', () => {
    const gradients = gradientsOf(8, 5);
    const inARow = gradients.slice(1).reduce((sum, g) => sum.map((x, i) => Math.fround(x + g[i]!)), gradients[0]!);
    expect(hex(inARow)).not.toBe(hex(reference(gradients, 0, 8)));
  });

  it('replaces children by a parent that comes from elsewhere, and releases them', () => {
    const { make, operations, live } = ledger();
    const tree = new ReductionTree<Buffer>(4, operations);
    const leaf = make(Float32Array.of(1));
    expect(tree.insert({ lo: 1, hi: 2 }, leaf)).toBe('kept');
    expect(tree.insert({ lo: 0, hi: 2 }, make(Float32Array.of(5)))).toBe('kept');
    expect(leaf.released).toBe(true);
    expect(live()).toBe(1);
    expect(tree.insert({ lo: 0, hi: 1 }, make(Float32Array.of(9)))).toBe('dropped');
    expect(tree.missingLeaves()).toEqual([2, 3]);
    expect(tree.insert({ lo: 2, hi: 4 }, make(Float32Array.of(2)))).toBe('complete');
    expect([...tree.takeRoot().values]).toEqual([7]);
  });

  it('holds no more sums of leaves than the memory of a server is computed with, as long as one is missing', () => {
    const codec = { kind: 'random-k', density: 1e-9, errorFeedback: false } as const;
    const mostSums = (replicas: number, order: readonly number[]): number => {
      const live = new Set<{ leaves: number }>();
      const tree = new ReductionTree<{ leaves: number }>(replicas, {
        add: (into, from) => void (into.leaves += from.leaves),
        release: (buffer) => void live.delete(buffer),
      });
      let most = 0;
      for (const lo of order) {
        const leaf = { leaves: 1 };
        live.add(leaf);
        if (tree.insert({ lo, hi: lo + 1 }, leaf) === 'kept') most = Math.max(most, [...live].filter(({ leaves }) => leaves > 1).length);
      }
      return most;
    };
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 40 }).chain((replicas) => fc.shuffledSubarray([...Array(replicas).keys()], { minLength: replicas })),
        (order) => mostSums(order.length, order) <= waitingCopies({ replicas: order.length, codec }),
      ),
    );
    for (const replicas of [4, 6, 8, 10, 16, 64]) {
      // Of each four the last one comes late; of two that are left over none does.
      const order = [...Array(replicas).keys()].sort((a, b) => Number(a % 4 === 3) - Number(b % 4 === 3) || a - b);
      expect(mostSums(replicas, order)).toBe(Math.floor(waitingCopies({ replicas, codec })));
    }
  });

  it('drops what comes after it is complete, taken or disposed of', () => {
    const { make, operations, live } = ledger();
    const tree = new ReductionTree<Buffer>(2, operations);
    expect(tree.insert({ lo: 0, hi: 2 }, make(Float32Array.of(1)))).toBe('complete');
    expect(tree.insert({ lo: 0, hi: 1 }, make(Float32Array.of(1)))).toBe('dropped');
    operations.release(tree.takeRoot());
    expect(() => tree.takeRoot()).toThrow(/taken before/);
    expect(tree.insert({ lo: 0, hi: 2 }, make(Float32Array.of(1)))).toBe('dropped');
    const second = new ReductionTree<Buffer>(3, operations);
    second.insert({ lo: 0, hi: 1 }, make(Float32Array.of(1)));
    second.insert({ lo: 2, hi: 3 }, make(Float32Array.of(1)));
    second.dispose();
    expect(second.insert({ lo: 1, hi: 2 }, make(Float32Array.of(1)))).toBe('dropped');
    expect(live()).toBe(0);
  });

  it('refuses what is no node, and leaves the buffer to the caller', () => {
    const { make, operations, live } = ledger();
    const tree = new ReductionTree<Buffer>(5, operations);
    for (const [lo, hi] of [
      [1, 3],
      [0, 3],
      [0, 6],
      [3, 3],
      [-1, 1],
    ] as const)
      expect(() => tree.insert({ lo, hi }, make(Float32Array.of(1)))).toThrow(RangeError);
    expect(live()).toBe(5);
    expect(() => tree.takeRoot()).toThrow(/not complete/);
    expect(() => new ReductionTree(0, operations)).toThrow(RangeError);
  });
});
