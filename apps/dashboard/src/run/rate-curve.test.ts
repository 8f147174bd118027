import { describe, expect, it } from 'vitest';
import { parseRunSpec } from '@paceline/spec';
import { rateCurve } from './rate-curve.js';

function specOf(input: object) {
  const parsed = parseRunSpec(input);
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  return parsed.spec;
}
const optimizer = { name: 'sgd', learningRate: 0.1 };
const length = { totalRounds: 1000, totalEpochs: 5 };

describe('the curve of the learning rate', () => {
  it('rises in the warm-up and falls to the end, in at most 300 points', () => {
    const curve = rateCurve(specOf({ optimizer, learningRate: { warmupRounds: 100, schedule: 'cosine' } }), length);
    expect(curve).toHaveLength(300);
    expect([curve[0], curve.at(-1)!.round]).toEqual([{ round: 0, rounds: 1, value: 0, min: 0, max: 0 }, 999]);
    const highest = curve.reduce((a, b) => (b.value > a.value ? b : a));
    expect(highest.value).toBeCloseTo(0.1, 4);
    expect(Math.abs(highest.round - 100)).toBeLessThan(4);
    expect(curve.at(-1)!.value).toBeLessThan(0.001);
  });
  it('falls where it was lowered on a plateau, beside a schedule and without one', () => {
    const reductions = [
      { round: 400, was: 1, factor: 0.5 },
      { round: 700, was: 0.5, factor: 0.25 },
    ];
    const spec = specOf({ optimizer, reduceLROnPlateau: {} });
    const at = (curve: ReturnType<typeof rateCurve>, round: number) => curve.find((point) => point.round === round)?.value;
    const constant = rateCurve(spec, length, reductions);
    expect([0, 399, 400, 699, 700, 999].map((round) => at(constant, round))).toEqual([0.1, 0.1, 0.05, 0.05, 0.025, 0.025]);
    expect(rateCurve(spec, length).every(({ value }) => value === 0.1)).toBe(true);
    const cosine = specOf({ optimizer, learningRate: { schedule: 'cosine' }, reduceLROnPlateau: {} });
    expect(at(rateCurve(cosine, length, reductions), 999)).toBeCloseTo(at(rateCurve(cosine, length), 999)! / 4, 12);
    // An attempt may begin with a lowered rate: its first reduction says what the rate was before.
    expect(at(rateCurve(spec, length, reductions.slice(1)), 0)).toBe(0.05);
  });
  it('is not drawn for a constant rate, or for a spec that cannot be read', () => {
    expect(rateCurve(specOf({ optimizer }), length)).toEqual([]);
    expect(rateCurve(null, length)).toEqual([]);
    expect(rateCurve({ learningRate: {}, optimizer: {} }, length)).toEqual([]);
  });
});
