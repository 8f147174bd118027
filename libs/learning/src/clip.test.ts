import { describe, expect, it } from 'vitest';
import { judgeRound, treeSum, type ChunkScalars } from './clip.js';
import { LeafReduction } from './leaf-reduction.js';

const chunk = (index: number, ...squares: [number, number][]): ChunkScalars => ({ chunk: index, isFinite: true, squares });

describe('judgeRound', () => {
  // Variable 0 lies in chunks 0 and 1 (norm 5 of the sum), variable 1 in chunk 1 (norm 12): 13 together; 2 examples halve them.
  const scalars = [chunk(0, [0, 9]), chunk(1, [0, 16], [1, 144])];

  it('does nothing without a rule, and below the bounds', () => {
    expect(judgeRound(scalars, 2, {})).toEqual({ isFinite: true, scale: 1, variables: [], norm: 6.5 });
    expect(judgeRound(scalars, 2, { clipNorm: 6, clipGlobalNorm: 6.5 })).toMatchObject({ scale: 1, variables: [] });
  });

  it('scales the whole gradient down to the global norm', () => {
    expect(judgeRound(scalars, 2, { clipGlobalNorm: 1.3 }).scale).toBeCloseTo(0.2, 12);
  });

  it('scales each variable down to the norm, and the whole by what is left then', () => {
    expect(judgeRound(scalars, 2, { clipNorm: 3 })).toMatchObject({ scale: 1, variables: [[1, 0.5]] });
    const both = judgeRound(scalars, 2, { clipNorm: 3, clipGlobalNorm: 1 });
    expect(both.scale).toBeCloseTo(1 / Math.hypot(2.5, 3), 12);
  });

  it('does not depend on the order in which chunks come', () => {
    const many = Array.from({ length: 9 }, (_, i) => chunk(i, [i % 2, Math.sin(i) ** 2 * 1e3 + 1 / 3]));
    const rules = { clipNorm: 0.1, clipGlobalNorm: 0.05 };
    expect(judgeRound([...many].reverse(), 7, rules)).toEqual(judgeRound(many, 7, rules));
  });

  it('says that a round is not finite when any chunk is not', () => {
    expect(judgeRound([chunk(0, [0, 1]), { chunk: 1, isFinite: false, squares: [] }], 2, {}).isFinite).toBe(false);
  });

  it('adds in the order of the tree', () => {
    const values = [1, 2 ** -53, 2 ** -53, 2 ** -53, 2 ** -53];
    expect(treeSum(values)).toBe(1 + 2 ** -53 + (2 ** -53 + 2 ** -53) + 2 ** -53);
    expect(treeSum([])).toBe(0);
  });
});

describe('LeafReduction', () => {
  const released: string[] = [];
  const operations = {
    add: (into: { value: string }, from: { value: string }) => void (into.value = `(${into.value}+${from.value})`),
    release: (buffer: { value: string }) => void released.push(buffer.value),
  };
  const leaf = (replica: number) => ({ lo: replica, hi: replica + 1 });

  it('adds those that count by the rule of the tree, and lets the others go', () => {
    const leaves = new LeafReduction(5, operations);
    expect(leaves.isEmpty).toBe(true);
    for (const replica of [4, 0, 3, 2]) expect(leaves.insert(leaf(replica), { value: String(replica) })).toBe('kept');
    expect(leaves.insert(leaf(4), { value: 'again' })).toBe('dropped');
    expect(leaves.missingLeaves()).toEqual([1]);
    expect(leaves.isEmpty).toBe(false);
    expect(leaves.takeSum(new Set([0, 2, 4])).value).toBe('((0+2)+4)');
    expect(released.sort()).toEqual(['2', '3', '4', 'again']);
    expect(leaves.insert(leaf(1), { value: 'late' })).toBe('dropped');
  });

  it('refuses inner nodes, and a set that has not come', () => {
    const leaves = new LeafReduction(4, operations);
    expect(() => leaves.insert({ lo: 0, hi: 2 }, { value: 'x' })).toThrow(RangeError);
    expect(() => leaves.takeSum(new Set([1]))).toThrow('replicas 1 have not come');
  });
});
