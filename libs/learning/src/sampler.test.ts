import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LearningError } from './errors.js';
import { createSchedule, fillPermutation, microBatches, permutedIndex, replicaRows } from './sampler.js';

const permutation = (seed: number, epoch: number, n: number): Int32Array => {
  const out = new Int32Array(n);
  fillPermutation(seed, epoch, n, out);
  return out;
};

describe('the permutation', () => {
  it('holds every example exactly once, and by index gives what the bulk gives', () => {
    fc.assert(
      fc.property(fc.nat(2 ** 32 - 1), fc.nat(1000), fc.integer({ min: 1, max: 700 }), (seed, epoch, n) => {
        const all = permutation(seed, epoch, n);
        expect([...all].sort((a, b) => a - b)).toEqual(Array.from({ length: n }, (_, i) => i));
        const from = n >> 1;
        const part = new Int32Array(n - from);
        fillPermutation(seed, epoch, n, part, from);
        expect(part).toEqual(all.slice(from));
        expect(permutedIndex(seed, epoch, n, from)).toBe(all[from]);
      }),
    );
    expect(new Set(permutation(42, 3, 60_000)).size).toBe(60_000);
  });

  it('is the same for ever: these values are part of what a seed means', () => {
    expect([...permutation(42, 0, 60_000).slice(0, 6)]).toEqual([22923, 16614, 26059, 39603, 33534, 31445]);
    expect([...permutation(7, 1, 10)]).toEqual([1, 8, 3, 9, 0, 7, 5, 4, 6, 2]);
  });

  it('differs between seeds and between epochs, and from the identity', () => {
    const fixed = (a: Int32Array, b: Int32Array): number => a.filter((x, i) => x === b[i]).length;
    const n = 10_000;
    const base = permutation(1, 0, n);
    const identity = Int32Array.from({ length: n }, (_, i) => i);
    // Two random permutations agree in 1 place on average; 12 would be a chance of 1e-9.
    for (const other of [permutation(1, 1, n), permutation(2, 0, n), permutation(0, 1, n), identity])
      expect(fixed(base, other)).toBeLessThan(12);
  });

  it('sends each position everywhere equally often, for small and odd n', () => {
    for (const n of [2, 3, 5, 10, 37]) {
      const seeds = 4000;
      const counts = Array.from({ length: n }, () => new Float64Array(n));
      for (let seed = 0; seed < seeds; seed++) permutation(seed, 0, n).forEach((to, from) => counts[from]![to]!++);
      const expected = seeds / n;
      const chi = counts.flatMap((row) => [...row]).reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0);
      const freedom = (n - 1) ** 2;
      expect(Math.abs(chi - freedom), `n = ${n}: chi-square ${chi} of ${freedom}`).toBeLessThan(5 * Math.sqrt(2 * freedom));
    }
  });

  it('leaves no trace of the order within an epoch: neighbours are far apart, batches see the whole dataset', () => {
    const n = 60_000;
    const all = permutation(42, 0, n);
    let product = 0;
    for (let i = 1; i < n; i++) product += (all[i]! - n / 2) * (all[i - 1]! - n / 2);
    const correlation = product / n / (n ** 2 / 12);
    expect(Math.abs(correlation)).toBeLessThan(5 / Math.sqrt(n));
    // Batches of 256 against 16 strata of the dataset.
    let chi = 0;
    const rounds = Math.floor(n / 256);
    for (let round = 0; round < rounds; round++) {
      const strata = new Float64Array(16);
      for (let i = 0; i < 256; i++) strata[Math.floor((all[round * 256 + i]! / n) * 16)]!++;
      chi += strata.reduce((sum, count) => sum + (count - 16) ** 2 / 16, 0);
    }
    const freedom = rounds * 15;
    expect(Math.abs(chi - freedom)).toBeLessThan(5 * Math.sqrt(2 * freedom));
  });

  it('works up to 2^31 − 1 examples', () => {
    for (const i of [0, 1, 2 ** 31 - 2]) {
      const at = permutedIndex(5, 0, 2 ** 31 - 1, i);
      expect(at >= 0 && at < 2 ** 31 - 1 && Number.isInteger(at)).toBe(true);
    }
    expect(() => permutedIndex(5, 0, 2 ** 31, 0)).toThrow(RangeError);
    expect(() => permutedIndex(5, 0, 10, 10)).toThrow(RangeError);
  });
});

describe('the schedule', () => {
  it('covers every example of every epoch exactly once, over rounds, replicas and micro-batches', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 300 }),
        fc.integer({ min: 1, max: 80 }),
        fc.integer({ min: 1, max: 3 }),
        fc.integer({ min: 1, max: 9 }),
        fc.integer({ min: 1, max: 5 }),
        (examples, globalBatch, epochs, replicas, accumulate) => {
          const schedule = createSchedule({ examples, globalBatch, dropRemainder: false, length: { epochs } });
          expect(schedule.totalRounds).toBe(epochs * Math.ceil(examples / globalBatch));
          const seen = new Map<number, number[]>();
          for (let k = 0; k < schedule.totalRounds; k++) {
            const { epoch, roundInEpoch, first, count } = schedule.round(k);
            expect(k).toBe(epoch * schedule.roundsPerEpoch + roundInEpoch);
            for (let r = 0; r < replicas; r++) {
              const rows = replicaRows(count, replicas, r);
              const batches = microBatches(rows, accumulate);
              expect(batches.every((batch) => batch.to > batch.from)).toBe(true);
              expect(batches.length).toBe(Math.min(accumulate, rows.to - rows.from));
              for (const batch of batches)
                for (let i = batch.from; i < batch.to; i++) seen.set(epoch, [...(seen.get(epoch) ?? []), first + i]);
            }
          }
          expect(seen.size).toBe(epochs);
          for (const positions of seen.values()) expect(positions).toEqual(Array.from({ length: examples }, (_, i) => i));
        },
      ),
      { numRuns: 60 },
    );
  });

  it('keeps replicas and micro-batches within one row of each other', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 65_536 }), fc.integer({ min: 1, max: 1024 }), (count, replicas) => {
        const sizes = Array.from({ length: replicas }, (_, r) => replicaRows(count, replicas, r)).map(({ from, to }) => to - from);
        expect(Math.max(...sizes) - Math.min(...sizes)).toBeLessThanOrEqual(1);
        expect(sizes.reduce((a, b) => a + b, 0)).toBe(count);
      }),
    );
    expect(microBatches({ from: 10, to: 13 }, 5)).toHaveLength(3);
    expect(microBatches({ from: 10, to: 10 }, 5)).toEqual([]);
  });

  it('drops the ragged round where that is asked for', () => {
    const schedule = createSchedule({ examples: 10, globalBatch: 4, dropRemainder: true, length: { epochs: 2 } });
    expect(schedule.roundsPerEpoch).toBe(2);
    expect([0, 1, 2, 3].map((k) => schedule.round(k).count)).toEqual([4, 4, 4, 4]);
    expect(schedule.round(2)).toEqual({ epoch: 1, roundInEpoch: 0, first: 0, count: 4 });
  });

  it('may end inside an epoch when its length is in rounds', () => {
    const schedule = createSchedule({ examples: 10, globalBatch: 4, dropRemainder: false, length: { rounds: 5 } });
    expect(schedule.totalRounds).toBe(5);
    expect(schedule.round(2)).toEqual({ epoch: 0, roundInEpoch: 2, first: 8, count: 2 });
    expect(schedule.round(4)).toEqual({ epoch: 1, roundInEpoch: 1, first: 4, count: 4 });
    for (const k of [-1, 5, 0.5]) expect(() => schedule.round(k)).toThrow(RangeError);
  });

  it('has one ragged round per epoch when the batch is larger than the dataset', () => {
    const schedule = createSchedule({ examples: 10, globalBatch: 64, dropRemainder: false, length: { epochs: 3 } });
    expect(schedule.totalRounds).toBe(3);
    expect(schedule.round(1)).toEqual({ epoch: 1, roundInEpoch: 0, first: 0, count: 10 });
  });

  it('refuses what leaves no round, or too many, naming the field', () => {
    const fieldOf = (options: Partial<Parameters<typeof createSchedule>[0]>): string => {
      try {
        createSchedule({ examples: 10, globalBatch: 4, dropRemainder: false, length: { epochs: 1 }, ...options });
      } catch (error) {
        if (error instanceof LearningError && error.code === 'SCHEDULE_IMPOSSIBLE') return error.field;
        throw error;
      }
      return 'nothing was refused';
    };
    expect(fieldOf({ globalBatch: 64, dropRemainder: true })).toBe('globalBatch');
    expect(fieldOf({ globalBatch: 0 })).toBe('globalBatch');
    expect(fieldOf({ examples: 0 })).toBe('dataset');
    expect(fieldOf({ length: { rounds: 0 } })).toBe('length.rounds');
    expect(fieldOf({ length: { epochs: 1e5 }, examples: 60_000, globalBatch: 1 })).toBe('length.epochs');
  });
});
