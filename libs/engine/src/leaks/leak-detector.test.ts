import { describe, expect, it } from 'vitest';
import { LeakDetector, type Growth, type LeakLimits, type LeakSample } from './leak-detector.js';

const MB = 1e6;
const LIMITS: LeakLimits = { tensors: 200, buffers: 200, bytes: 64 * MB, rssBytes: 512 * MB };
const STEADY: LeakSample = { tensors: 40, buffers: 40, bytes: 3 * MB, rssBytes: 300 * MB };
const BUCKETS_OF_A_ROW = 8;

/** In [0, 1). */
function noise(seed: number): () => number {
  let state = seed;
  return () => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
}

function watch(
  rounds: number,
  sample: (round: number) => Partial<LeakSample>,
  limits = LIMITS,
): { round: number; growth: Growth } | undefined {
  const detector = new LeakDetector(limits);
  for (let round = 0; round < rounds; round++) {
    const growth = detector.observe({ ...STEADY, ...sample(round) });
    if (growth) return { round, growth };
  }
  return undefined;
}

describe('a leak', () => {
  it.each([1 / 20, 1 / 3, 1, 5, 300])('of %s tensors a round is found, with its rate, before it is eight times its limit', (rate) => {
    const found = watch(100_000, (round) => ({ tensors: 40 + Math.floor(round * rate) }));
    expect(found!.growth.measure).toBe('tensors');
    expect(found!.growth.perRound).toBeCloseTo(rate, 1);
    expect(found!.growth.to - found!.growth.from).toBeGreaterThanOrEqual(LIMITS.tensors);
    const shortestRow = (BUCKETS_OF_A_ROW + 3) * BUCKETS_OF_A_ROW * rate;
    expect(found!.round * rate).toBeLessThan(Math.max(10 * LIMITS.tensors, shortestRow));
  });

  it('of memory is found under the noise of a garbage collector', () => {
    const random = noise(1);
    const found = watch(100_000, (round) => ({ rssBytes: (300 + round * 0.2 + (round % 37) * 4 + random() * 20) * MB }));
    expect(found!.growth.measure).toBe('rssBytes');
    expect(found!.growth.perRound / MB).toBeCloseTo(0.2, 1);
    expect(found!.round).toBeLessThan(10 * (512 / 0.2));
  });

  it('that begins late is found as fast as one from the start', () => {
    const found = watch(60_000, (round) => ({ bytes: STEADY.bytes + Math.max(0, round - 50_000) * MB }));
    expect(found!.growth.measure).toBe('bytes');
    expect(found!.round).toBeLessThan(50_000 + 10 * 64);
  });

  it('of values that no tensor names is one too', () => {
    expect(watch(5_000, (round) => ({ buffers: 40 + round }))!.growth.measure).toBe('buffers');
  });

  it('is named by tensors, when bytes and memory grow with them', () => {
    const found = watch(5_000, (round) => ({ tensors: 40 + 10 * round, bytes: (3 + 20 * round) * MB, rssBytes: (300 + 100 * round) * MB }));
    expect(found!.growth.measure).toBe('tensors');
  });

  it('is none where the limit is 0', () => {
    expect(watch(5_000, (round) => ({ tensors: 40 + round }), { ...LIMITS, tensors: 0 })).toBeUndefined();
  });
});

describe('no leak', () => {
  const ROUNDS = 30_000;

  it('an engine that stays as it is', () => {
    expect(watch(ROUNDS, () => ({}))).toBeUndefined();
  });

  it.each([1, 2, 3, 4, 5])('a garbage collector that lets gigabytes pile up and fall (seed %i)', (seed) => {
    const random = noise(seed);
    let [garbage, untilCollected] = [0, 0];
    const found = watch(ROUNDS, () => {
      garbage = untilCollected-- > 0 ? garbage + random() * 10 : 0;
      if (garbage === 0) untilCollected = 20 + random() * 230;
      return { rssBytes: (300 + garbage) * MB };
    });
    expect(found).toBeUndefined();
  });

  it('an evaluation that needs a gigabyte and keeps 300 tensors and half of it, once', () => {
    const found = watch(ROUNDS, (round) => ({
      rssBytes: (round < 900 ? 300 : 900) * MB + (round % 468 === 0 ? 1_000 * MB : 0),
      tensors: round < 900 ? 40 : 340,
      bytes: (round < 900 ? 3 : 103) * MB,
    }));
    expect(found).toBeUndefined();
  });

  it('caches and arenas that grow step by step to where they stay', () => {
    const found = watch(ROUNDS, (round) => ({
      rssBytes: (300 + 900 * (1 - Math.exp(-round / 6))) * MB,
      tensors: 40 + Math.min(round, 10) * 30,
    }));
    expect(found).toBeUndefined();
  });
});

it('forgets a growth that was none, and finds the next', () => {
  const detector = new LeakDetector(LIMITS);
  const at = (round: number): Growth | undefined => detector.observe({ ...STEADY, rssBytes: (300 + round * 10) * MB });
  const seen: number[] = [];
  for (let round = 0; round < 400; round++) {
    if (!at(round)) continue;
    seen.push(round);
    detector.forget('rssBytes');
  }
  expect(seen.length).toBeGreaterThan(2);
  expect(seen[1]! - seen[0]!).toBeGreaterThanOrEqual(64);
});
