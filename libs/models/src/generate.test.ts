/** Text of a model whose answers are known: after each character of a ring comes the next one. */
import type { FeaturePlan, RowFormat } from '@paceline/spec';
import { describe, expect, it } from 'vitest';
import { generate } from './generate.js';
import type { ModelFolder } from './model-folder.js';

const RING = [...'abcd'];
const LENGTH = 3;
const rowFormat: RowFormat = {
  inputs: [{ name: 'x', shape: [LENGTH], ids: 6 }],
  targets: [{ name: 'y', kind: 'classes', shape: [LENGTH], classes: 6 }],
  isWeighted: false,
};
const encoder = {
  kind: 'text',
  column: 'text',
  tokens: 'character',
  length: LENGTH,
  lowerCase: false,
  vocabulary: RING,
  encode: 'ids',
  ids: 6,
} as const;
const at = { first: 0, step: 1, count: 1 };
const planOf = (skip: number) =>
  ({
    format: 'paceline.features',
    version: 1,
    rowFormat,
    inputs: [{ rows: at, encoders: [{ ...encoder, skip: 0 }] }],
    targets: [{ rows: at, encoders: [{ ...encoder, skip }] }],
    weight: {},
  }) as unknown as FeaturePlan;

/** Predicts for each token the next one of the ring, `sure` times as likely as the others. */
function ring(sure: number, skip = 1, gives: 'logits' | 'probabilities' = 'logits'): ModelFolder {
  const seen: number[][] = [];
  const predict = ([ids]: readonly Float32Array[]): Float32Array[] => {
    seen.push([...ids!]);
    const out = new Float32Array(LENGTH * 6);
    ids!.forEach((id, step) => RING.forEach((_, k) => (out[step * 6 + k + 2] = (id - 1) % 4 === k ? sure : gives === 'logits' ? 0 : 0.01)));
    return [out];
  };
  const outputs = [{ name: 'y', kind: 'classes' as const, gives, labels: ['', '?', ...RING], shape: [LENGTH] }];
  const preprocessing = { format: 'paceline.preprocessing' as const, version: 1 as const, plan: planOf(skip), inputOrder: [0], outputs };
  const predictor = { inputs: [{ name: 'x', shape: [LENGTH] }], outputs: [{ name: 'y', shape: [LENGTH, 6] }], predict } as never;
  return { predictor, preprocessing, card: undefined };
}
const asked = { prompt: 'a', length: 9, temperature: 0, seed: 1 };

describe('text of a language model', () => {
  it.each([
    ['a', 'bcdabcdab'],
    ['dcbabcd', 'abcdabcda'],
  ])('goes on from %s with the most probable token at temperature 0', async (prompt, text) => {
    expect(await generate(ring(5), { ...asked, prompt })).toBe(text);
    expect(await generate(ring(0.97, 1, 'probabilities'), { ...asked, prompt })).toBe(text);
  });

  it('is the same for the same seed, another one for another, and never padding', async () => {
    const drawn = (seed: number, temperature: number) => generate(ring(2), { ...asked, length: 60, temperature, seed });
    const [one, again, other, bold] = [await drawn(1, 1), await drawn(1, 1), await drawn(2, 1), await drawn(1, 0.05)];
    expect(one).toBe(again);
    expect(one).not.toBe(other);
    expect([...one].every((character) => RING.includes(character))).toBe(true);
    expect(new Set(one).size).toBe(4);
    expect(bold).toBe('bcda'.repeat(15));
  });

  it.each<[string, ModelFolder, string, string]>([
    ['a model that tells something else', ring(1, 0), 'a', 'NOT_GENERATIVE'],
    ['a model without columns', { ...ring(1), preprocessing: undefined }, 'a', 'NOT_GENERATIVE'],
    ['an empty prompt', ring(1), '', 'ROW_INVALID'],
  ])('is refused for %s', async (_, model, prompt, code) => {
    await expect(generate(model, { ...asked, prompt })).rejects.toMatchObject({ code });
  });
});
