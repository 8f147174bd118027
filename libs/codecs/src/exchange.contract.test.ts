/** One suite for all ways in which a vector travels in fewer bytes, of one phase and of two, with and without what is kept: what each promises over rounds. */
import { describe, expect, test } from 'vitest';
import { EXCHANGES, REPLICAS } from './exchange.fixture.js';
import type { Shapes } from './low-rank.js';

/** A matrix and a vector, in chunks that cut anywhere. */
function shapesOf(rows: number, columns: number, rest: number, chunk: number): Shapes {
  const [matrix, length] = [rows * columns, rows * columns + rest];
  const variables = [
    { shape: [rows, columns], offset: 0, length: matrix },
    ...(rest > 0 ? [{ shape: [rest], offset: matrix, length: rest }] : []),
  ];
  const chunks = Array.from({ length: Math.ceil(length / chunk) }, (_, i) => ({
    offset: i * chunk,
    length: Math.min(chunk, length - i * chunk),
  }));
  return { variables, chunks };
}

const SHAPES = shapesOf(30, 28, 20, 512);
/** Odd lengths, down to one element. */
const ODD = [shapesOf(1, 1, 0, 1), shapesOf(3, 5, 1, 7), shapesOf(13, 11, 3, 146), shapesOf(37, 17, 0, 129)];

const lengthOf = ({ chunks }: Shapes): number => chunks.reduce((sum, { length }) => sum + length, 0);
const vectorsOf = (shapes: Shapes, element: (i: number, replica: number) => number): Float32Array[] =>
  Array.from({ length: REPLICAS }, (_, replica) => Float32Array.from({ length: lengthOf(shapes) }, (__, i) => element(i, replica)));
const wave = (round: number) => (i: number, replica: number) => Math.sin(i * i * 0.37 + 5 * replica + round) * (1 + (i % 5));
const norm = (x: Iterable<number>): number => Math.sqrt([...x].reduce((sum, value) => sum + value * value, 0));
const isFinite = (vector: Float32Array): boolean => vector.every(Number.isFinite);

describe.each(EXCHANGES)('$name', ({ make, keeps, isRandom, isSum, isCoarse }) => {
  const sumOf = (vectors: readonly Float32Array[]): Float32Array =>
    isSum ? Float32Array.from(vectors[0]!, (_, i) => vectors.reduce((sum, vector) => sum + vector[i]!, 0)) : vectors[0]!;

  test('the same vectors under the same seed, round and replica are the same bytes; another seed is felt by what is random', () => {
    const bytesOf = (seed: number): string[] => {
      const exchange = make(SHAPES, seed);
      return [0, 1, 2].map((round) => exchange.round(round, vectorsOf(SHAPES, wave(round))).bytes);
    };
    expect(bytesOf(7)).toEqual(bytesOf(7));
    if (isRandom) expect(bytesOf(7)).not.toEqual(bytesOf(8));
    else expect(bytesOf(7)).toEqual(bytesOf(8));
    // Rounds and replicas have keys of their own: equal vectors are rounded in other ways.
    const still = make(SHAPES, 7);
    const [first, second] = [0, 1].map(
      (round) =>
        still.round(
          round,
          vectorsOf(SHAPES, (i) => Math.sin(i)),
        ).bytes,
    );
    if (isRandom && !keeps) expect(first).not.toBe(second);
  });

  test('zeros stay zeros, for all rounds', () => {
    const exchange = make(SHAPES, 7);
    for (let round = 0; round < 3; round++) {
      const { sum } = exchange.round(
        round,
        vectorsOf(SHAPES, (i) => (i % 3 === 0 ? -0 : 0)),
      );
      expect(sum.every((value) => value === 0)).toBe(true);
    }
  });

  test('equal elements and denormals stay finite, and no element gets another sign than the largest step explains', () => {
    for (const constant of [0.5, -3e-5, 1e30, 1e-40, -1e-40]) {
      const exchange = make(SHAPES, 7);
      for (let round = 0; round < 4; round++) {
        const { sum } = exchange.round(
          round,
          vectorsOf(SHAPES, () => constant),
        );
        expect(isFinite(sum)).toBe(true);
        if (!keeps) expect(sum.every((value) => value * Math.sign(constant) >= 0)).toBe(true);
      }
    }
  });

  test.each([NaN, Infinity, -Infinity])('%s is seen by all, and does not stay', (bad) => {
    const exchange = make(SHAPES, 7);
    exchange.round(0, vectorsOf(SHAPES, wave(0)));
    const vectors = vectorsOf(SHAPES, wave(1));
    vectors[0]![700] = bad;
    expect(isFinite(exchange.round(1, vectors).sum)).toBe(false);
    // With EF21 the attempt ends: a round that is not finite is not committed.
    if (exchange.kept?.(1)?.some((kept) => !isFinite(kept))) return;
    let sum: Float32Array = new Float32Array(0);
    for (let round = 2; round < 5; round++) ({ sum } = exchange.round(round, vectorsOf(SHAPES, wave(round))));
    expect(isFinite(sum)).toBe(true);
  });

  test.each(ODD.map((shapes) => [lengthOf(shapes), shapes] as const))('%i elements come and go, for several rounds', (_, shapes) => {
    const exchange = make(shapes, 7);
    for (let round = 0; round < 4; round++) {
      const vectors = vectorsOf(shapes, wave(round));
      const { sum } = exchange.round(round, vectors);
      expect([sum.length, isFinite(sum)]).toEqual([lengthOf(shapes), true]);
      if (!isCoarse && !keeps)
        expect(norm(sum.map((value, i) => value - sumOf(vectors)[i]!))).toBeLessThanOrEqual(0.03 * norm(sumOf(vectors)));
    }
  });

  test('what was left out is kept: with what has come it is all that was given', () => {
    const exchange = make(SHAPES, 7);
    const [came, given] = [new Float64Array(lengthOf(SHAPES)), new Float64Array(lengthOf(SHAPES))];
    const ROUNDS = 12;
    for (let round = 0; round < ROUNDS; round++) {
      const vectors = vectorsOf(SHAPES, wave(round));
      const { sum } = exchange.round(round, vectors);
      const kept = exchange.kept?.(round);
      if (!keeps) return expect(kept).toBeUndefined();
      for (const [i, value] of sum.entries()) came[i]! += value;
      for (const [i, value] of sumOf(vectors).entries()) given[i]! += value;
      if (!kept) continue;
      // The sum of the estimates is the sum of all that came; what was left out is the rest.
      const all = Float64Array.from(came, (_, i) => kept.reduce((total, each) => total + each[i]!, 0));
      const rest = (of: Float64Array): number => norm(of.map((value, i) => value - all[i]!));
      const isEstimate = rest(came) < 1e-4 * (1 + norm(came));
      if (!isEstimate) expect(rest(given.map((value, i) => value - came[i]!))).toBeLessThan(1e-4 * (1 + norm(given)));
    }
  });
});

test('a codec of a run has one phase, and only PowerSGD over an all-reduce has more', () => {
  for (const { name, make } of EXCHANGES) expect([name, make(SHAPES, 1).phases]).toEqual([name, name.includes('all-reduce') ? 2 : 1]);
});
