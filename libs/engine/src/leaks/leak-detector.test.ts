import { describe, expect, it } from 'vitest';
import { LeakDetector, type Growth, type LeakLimits, type LeakSample } from './leak-detector.js';

const MB = 1e6;
const LIMITS: LeakLimits = { tensors: 200, buffers: 200, bytes: 64 * MB, rssBytes: 512 * MB };
const STEADY: LeakSample = { tensors: 40, buffers: 40, bytes: 3 * MB, rssBytes: 300 * MB };

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
  const lessThan = (limit: number, rate: number): number => Math.max(6 * limit, 5 * rate);

  it.each([1 / 20, 1 / 3, 1, 1.7, 5, 7, 19, 28, 100, 200, 300, 5_000])(
    'of %s tensors a round is found, with its rate, before it is six times its limit or what five rounds leak',
    (rate) => {
      const found = watch(100_000, (round) => ({ tensors: 40 + Math.floor(round * rate) }));
      expect(found!.growth.measure).toBe('tensors');
      expect(found!.growth.perRound).toBeCloseTo(rate, 0);
      expect(found!.growth.to - found!.growth.from).toBeGreaterThanOrEqual(LIMITS.tensors);
      expect(found!.round * rate).toBeLessThan(lessThan(LIMITS.tensors, rate));
    },
  );

  it.each([0.4, 1.7, 7, 28, 1_000])('of %s tensors a round that begins at any time is found as early', (rate) => {
    for (let begin = 1_000; begin < 1_000 + 64; begin += 5) {
      const found = watch(10_000, (round) => ({ tensors: 40 + Math.floor(Math.max(0, round - begin) * rate) }));
      expect((found!.round - begin) * rate).toBeLessThan(lessThan(LIMITS.tensors, rate));
    }
  });

  it('of 100 MB of tensors a round is found in the first rounds', () => {
    const found = watch(100, (round) => ({ bytes: (3 + round * 100) * MB }));
    expect(found).toEqual({ round: 3, growth: { measure: 'bytes', from: 3 * MB, to: 303 * MB, rounds: 3, perRound: 100 * MB } });
  });

  it('of 300 MB in every third round is found in the first rounds too', () => {
    const found = watch(100, (round) => ({ bytes: (3 + Math.floor(round / 3) * 300) * MB }));
    expect(found!.growth.measure).toBe('bytes');
    expect(found!.round).toBeLessThan(10);
  });

  it('of 100 MB of the process a round is found in 24 rounds', () => {
    const found = watch(100, (round) => ({ rssBytes: (300 + round * 100) * MB }));
    expect(found!.growth.measure).toBe('rssBytes');
    expect(found!.round).toBeLessThan(24);
  });

  it('of memory is found under the noise of a garbage collector', () => {
    const random = noise(1);
    const found = watch(100_000, (round) => ({ rssBytes: (300 + round * 0.2 + (round % 37) * 4 + random() * 20) * MB }));
    expect(found!.growth.measure).toBe('rssBytes');
    expect(found!.growth.perRound / MB).toBeCloseTo(0.2, 1);
    expect(found!.round).toBeLessThan(6 * (512 / 0.2));
  });

  it('that begins late is found as fast as one from the start', () => {
    const found = watch(60_000, (round) => ({ bytes: STEADY.bytes + Math.max(0, round - 50_000) * MB }));
    expect(found!.growth.measure).toBe('bytes');
    expect(found!.round).toBeLessThan(50_000 + 6 * 64);
  });

  it('of values that no tensor names is one too', () => {
    expect(watch(5_000, (round) => ({ buffers: 40 + round }))!.growth.measure).toBe('buffers');
  });

  it('is named by tensors, when bytes and memory grow with them', () => {
    const found = watch(5_000, (round) => ({ tensors: 40 + 10 * round, bytes: (3 + 3 * round) * MB, rssBytes: (300 + 20 * round) * MB }));
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

  it.each([1, 2, 3, 4, 5])('a garbage collector that lets gigabytes pile up and fall, when one asks it to collect (seed %i)', (seed) => {
    const random = noise(seed);
    const detector = new LeakDetector(LIMITS);
    let [garbage, untilCollected, collections] = [0, 0, 0];
    for (let round = 0; round < ROUNDS; round++) {
      garbage = untilCollected-- > 0 ? garbage + random() * 10 : 0;
      if (garbage === 0) untilCollected = 20 + random() * 230;
      const growth = detector.observe({ ...STEADY, rssBytes: (300 + garbage) * MB });
      if (!growth) continue;
      collections++;
      garbage = 0;
      expect(300 * MB - growth.from).toBeLessThan(LIMITS.rssBytes);
      detector.forget(growth.measure);
    }
    expect(collections).toBeLessThan(ROUNDS / 100);
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

it('a rush that was none does not hide a slow leak below it', () => {
  const detector = new LeakDetector(LIMITS);
  let [garbage, collections] = [0, 0];
  for (let round = 0; round < 20_000; round++) {
    garbage += 400;
    const growth = detector.observe({ ...STEADY, rssBytes: (300 + garbage + round * 0.2) * MB });
    if (!growth) continue;
    garbage = 0;
    collections++;
    if (round * 0.2 - (growth.from / MB - 300) >= 512) {
      expect(growth.perRound / MB).toBeCloseTo(0.2, 0);
      expect(round).toBeLessThan(6 * (512 / 0.2));
      expect(collections).toBeGreaterThan(100);
      return;
    }
    detector.forget(growth.measure);
  }
  expect.fail('it was never found');
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
