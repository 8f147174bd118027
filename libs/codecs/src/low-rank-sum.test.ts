import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LowRankSum } from './low-rank-sum.js';

const sum = (vectors: readonly Float32Array[]): Float32Array =>
  Float32Array.from(vectors[0]!, (_, i) => vectors.reduce((total, vector) => total + vector[i]!, 0));

/** One sum of all members, as an all-reduce does it. */
function reduced(members: readonly LowRankSum[], vectors: readonly Float32Array[], examples = 1): Float32Array[] {
  const own = vectors.map((vector) => vector.slice());
  for (const phase of ['first', 'second'] as const) {
    const values = members.map((member, i) => (phase === 'first' ? member.first(own[i]!, examples) : member.second(own[i]!)));
    const total = sum(values);
    for (const value of values) value.set(total);
  }
  for (const [i, member] of members.entries()) member.finish(own[i]!);
  return own;
}

const variablesOf = (...shapes: number[][]) => {
  let offset = 0;
  return shapes.map((shape) => {
    const length = shape.reduce((a, b) => a * b, 1);
    offset += length;
    return { shape, offset: offset - length, length };
  });
};

const ROWS = 12;
const COLUMNS = 9;
const BIAS = 9;
const STATE = 3;
const variables = variablesOf([ROWS, COLUMNS], [BIAS]);
const MATRIX = ROWS * COLUMNS;
const LENGTH = MATRIX + BIAS + STATE;
const membersOf = (count: number, rank: number, length = LENGTH) =>
  Array.from({ length: count }, () => new LowRankSum({ variables, length, rank, seed: 7 }));
const noise = (seed: number, length = LENGTH): Float32Array => Float32Array.from({ length }, (_, i) => Math.sin(seed * 97 + i * i * 0.7));
const bits = (vector: Float32Array): string => Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength).toString('hex');
const distance = (a: Float32Array, b: Float32Array): number => Math.sqrt(a.reduce((total, x, i) => total + (x - b[i]!) ** 2, 0));

describe('a sum as a low rank', () => {
  it('all members have the same bits; vectors, and what lies behind the variables, are the exact sums', () => {
    const members = membersOf(3, 2);
    for (let round = 0; round < 4; round++) {
      const vectors = members.map((_, member) => noise(round * 3 + member));
      const results = reduced(members, vectors);
      for (const result of results) expect(bits(result)).toBe(bits(results[0]!));
      expect(bits(results[0]!.slice(MATRIX))).toBe(bits(sum(vectors).slice(MATRIX)));
      expect(distance(results[0]!.slice(0, MATRIX), sum(vectors).slice(0, MATRIX))).toBeGreaterThan(0.5);
    }
  });

  it('a sum that has the rank comes back whole, whatever the members have of it', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 2 }), fc.integer({ min: 1, max: 4 }), (rank, count) => {
        const factors = Array.from({ length: rank }, (_, k) => [noise(k + 1, ROWS), noise(k + 11, COLUMNS)] as const);
        const whole = Float32Array.from({ length: LENGTH }, (_, i) =>
          i < MATRIX ? factors.reduce((total, [p, q]) => total + p[Math.floor(i / COLUMNS)]! * q[i % COLUMNS]!, 0) : i,
        );
        // Each member has something of full rank; together they have the whole.
        const vectors = Array.from({ length: count }, (_, member) => (member === 0 ? whole.slice() : noise(member)));
        for (const vector of vectors.slice(1)) vector.forEach((value, i) => (vectors[0]![i]! -= value));
        const [result] = reduced(membersOf(count, rank), vectors);
        expect(distance(result!, whole)).toBeLessThan(1e-4);
      }),
      { numRuns: 20 },
    );
  });

  it('what is left out comes later: results and what is kept are the sum of all that went in', () => {
    const members = membersOf(2, 1);
    const [went, came] = [new Float64Array(MATRIX), new Float64Array(MATRIX)];
    const still = new Float32Array(LENGTH);
    const ROUNDS = 30;
    for (let round = 0; round < ROUNDS + 60; round++) {
      const vectors = members.map((_, member) => (round < ROUNDS ? noise(round * 2 + member) : still));
      const [result] = reduced(members, vectors);
      for (let i = 0; i < MATRIX; i++) {
        went[i]! += vectors[0]![i]! + vectors[1]![i]!;
        came[i]! += result![i]!;
      }
    }
    // With nothing new, what is kept comes out, a rank in each round.
    expect(distance(Float32Array.from(came), Float32Array.from(went))).toBeLessThan(1e-3);
  });

  it('what was kept of many examples is not more than that in a sum over few', () => {
    const members = membersOf(2, 1);
    const means = [noise(1), noise(2)];
    const applied = [256, 256, 256, 8, 256].map((examples) => {
      const [result] = reduced(
        members,
        means.map((mean) => mean.map((value) => value * examples)),
        examples,
      );
      return distance(result!.slice(0, MATRIX), new Float32Array(MATRIX)) / examples;
    });
    expect(Math.max(...applied) / Math.min(...applied)).toBeLessThan(4);
  });

  it('shows what is not finite to all, and keeps nothing of it', () => {
    for (const bad of [NaN, Infinity]) {
      const members = membersOf(2, 2);
      const vectors = [noise(1), noise(2)];
      vectors[1]![5] = bad;
      for (const result of reduced(members, vectors)) expect(result.slice(0, MATRIX).some((value) => !Number.isFinite(value))).toBe(true);
      const [after, other] = reduced(members, [noise(3), noise(4)]);
      expect(after!.every(Number.isFinite)).toBe(true);
      expect(bits(other!)).toBe(bits(after!));
    }
  });

  it('is zero for zeros, and sees a gradient that comes after them', () => {
    const members = membersOf(2, 2);
    const still = new Float32Array(LENGTH);
    const [zero] = reduced(members, [still, still]);
    expect(zero!.every((value) => value === 0)).toBe(true);
    const [result] = reduced(members, [noise(1), still]);
    expect(distance(result!, still)).toBeGreaterThan(1);
  });

  it('says what it sends: factors of matrices that become half as short, and all else as it is', () => {
    const [member] = membersOf(1, 2);
    expect(member!.lengths).toEqual([ROWS * 2 + BIAS + STATE, COLUMNS * 2]);
    expect(LowRankSum.bytesOf({ variables, length: LENGTH, rank: 2 })).toBe(4 * (ROWS * 2 + BIAS + STATE + COLUMNS * 2));
    // (12 + 9) · 3 · 2 > 108: as it is.
    expect(LowRankSum.bytesOf({ variables, length: LENGTH, rank: 3 })).toBe(4 * LENGTH);
    const mlp = variablesOf([784, 300], [300], [300, 10], [10]);
    const length = mlp.reduce((total, variable) => total + variable.length, 0);
    expect(LowRankSum.bytesOf({ variables: mlp, length, rank: 1 })).toBe(4 * (784 + 300 + 300 + 300 + 10 + 10));
  });
});
