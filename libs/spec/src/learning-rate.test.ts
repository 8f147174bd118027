import { describe, expect, it } from 'vitest';
import { learningRateSchema, RATE_SCHEDULES, type LearningRateSpec } from './learning-rate.js';
import { isRateOver, pinDecay, rateFactor, unpinDecay } from './rate-factor.js';

const spec = (given: object): LearningRateSpec => learningRateSchema.parse(given);
const context = { globalBatch: 1024, roundsPerEpoch: 10, totalRounds: 100 };
const factors = (given: object, rounds: readonly number[], at = context): number[] => rounds.map(rateFactor(spec(given), at));
const close = (actual: readonly number[], expected: readonly number[]): void =>
  actual.forEach((value, i) => expect(value, `of ${i}`).toBeCloseTo(expected[i]!, 12));

describe('the learning rate of a round', () => {
  it('is that of the optimizer when nothing is asked', () => {
    expect(rateFactor(undefined, context)(7)).toBe(1);
    expect(factors({}, [0, 50, 1000])).toEqual([1, 1, 1]);
  });

  it('grows with the batch, and warms up from the rate before scaling', () => {
    expect(factors({ scaling: 'linear' }, [0])).toEqual([4]);
    expect(factors({ scaling: 'square-root' }, [0])).toEqual([2]);
    close(factors({ scaling: 'linear', warmupEpochs: 1 }, [0, 5, 10, 11]), [1, 2.5, 4, 4]);
    close(factors({ warmupRounds: 4 }, [0, 1, 3, 4]), [0, 0.25, 0.75, 1]);
    close(factors({ warmupRounds: 4, warmupStart: 0.5 }, [0, 2, 4]), [0.5, 0.75, 1]);
  });

  // By the formulas of keras.optimizers.schedules with an initial rate of 1 and decay_steps 20.
  it('falls as the schedules of Keras do', () => {
    close(factors({ schedule: 'step', decayRounds: 20, factor: 0.5 }, [0, 19, 20, 45]), [1, 1, 0.5, 0.25]);
    close(factors({ schedule: 'exponential', decayRounds: 20, factor: 0.5 }, [0, 10, 20]), [1, Math.SQRT1_2, 0.5]);
    close(factors({ schedule: 'polynomial', decayRounds: 20, endFactor: 0.1, power: 2 }, [0, 10, 20, 30]), [1, 0.325, 0.1, 0.1]);
    close(factors({ schedule: 'cosine', decayRounds: 20, endFactor: 0.1 }, [0, 10, 20, 30]), [1, 0.55, 0.1, 0.1]);
    // Periods of 20, 40, 80 rounds.
    close(factors({ schedule: 'cosine-restarts', decayRounds: 20, restartFactor: 0.5 }, [0, 10, 20, 40, 60]), [1, 0.5, 0.5, 0.25, 0.25]);
    close(factors({ schedule: 'cosine-restarts', decayRounds: 20, periodGrowth: 1 }, [0, 10, 20, 50]), [1, 0.5, 1, 0.5]);
    close(
      factors({ schedule: 'one-cycle', decayRounds: 10, riseShare: 0.5, startDivisor: 10, endDivisor: 10 }, [0, 5, 10]),
      [0.1, 1, 0.01],
    );
  });

  it('ends a decay without a length with the run, after the warm-up', () => {
    close(factors({ schedule: 'cosine', warmupRounds: 20 }, [20, 60, 100]), [1, 0.5, 0]);
    close(factors({ schedule: 'polynomial', decayEpochs: 2 }, [10, 20]), [0.5, 0]);
  });

  it('keeps its length when the run is extended', () => {
    const pinned = pinDecay(spec({ schedule: 'cosine', warmupEpochs: 2 }), context);
    expect(pinned).toMatchObject({ decayRounds: 80 });
    close([60].map(rateFactor(pinned, Object.assign({}, context, { totalRounds: 1000 }))), [0.5]);
    expect(pinDecay(spec({}), context)).toEqual(spec({}));
  });

  it('is open again when another run goes on from there, unless it was given', () => {
    const given = spec({ schedule: 'cosine', warmupEpochs: 2 });
    expect(unpinDecay(pinDecay(given, context), context)).toEqual(given);
    const own = spec({ schedule: 'cosine', decayRounds: 30 });
    expect(unpinDecay(pinDecay(own, context), context)).toEqual(own);
    const steps = spec({ schedule: 'step', decayRounds: 100 });
    expect(unpinDecay(steps, context)).toEqual(steps);
  });

  it('is over when every round to come has the rate 0', () => {
    const longer = Object.assign({}, context, { totalRounds: 200 });
    const pinned = pinDecay(spec({ schedule: 'cosine' }), context);
    expect(isRateOver(pinned, longer, 100)).toBe(true);
    expect(isRateOver(pinned, longer, 99)).toBe(false);
    expect(isRateOver(spec({ schedule: 'cosine' }), longer, 100)).toBe(false);
    expect(isRateOver(spec({ schedule: 'cosine', decayRounds: 100, endFactor: 0.1 }), longer, 100)).toBe(false);
    expect(isRateOver(undefined, longer, 100)).toBe(false);
  });

  it('is finite, and never negative, for every schedule and any round', () => {
    for (const schedule of RATE_SCHEDULES)
      for (const round of [0, 1, 99, 100, 101, 1e6]) {
        const [factor] = factors({ schedule, decayRounds: schedule === 'constant' ? undefined : 3, warmupRounds: 2 }, [round]);
        expect(factor! >= 0 && Number.isFinite(factor), `${schedule} at ${round}`).toBe(true);
      }
  });

  it('refuses what contradicts itself', () => {
    const refused = (given: object): string[] => learningRateSchema.safeParse(given).error!.issues.map(({ path }) => path.join('.'));
    expect(refused({ warmupRounds: 1, warmupEpochs: 1 })).toEqual(['warmupEpochs']);
    expect(refused({ schedule: 'cosine', decayRounds: 1, decayEpochs: 1 })).toEqual(['decayEpochs']);
    expect(refused({ warmupStart: 0.5 })).toEqual(['warmupStart']);
    expect(refused({ decayEpochs: 2, endFactor: 0.1 })).toEqual(['decayEpochs', 'endFactor']);
    expect(refused({ baseBatch: 128 })).toEqual(['baseBatch']);
    expect(refused({ schedule: 'cosine', riseShare: 0.5, power: 2 })).toEqual(['power', 'riseShare']);
    for (const schedule of RATE_SCHEDULES)
      expect(spec(spec({ schedule, decayRounds: schedule === 'constant' ? undefined : 3 }))).toBeDefined();
    expect(refused({ schedule: 'step' })).toEqual(['decayRounds']);
    expect(() => rateFactor(spec({}), context)(-1)).toThrow(RangeError);
  });
});
