import { describe, expect, it } from 'vitest';
import { defaultLoss, defaultModel } from './losses.js';
import { parseRunSpec } from './run-spec.js';

describe('a spec without a loss', () => {
  it('is minimised by what fits the target', () => {
    expect(defaultLoss({ kind: 'values' }, 3)).toBe('meanSquaredError');
    expect(defaultLoss({ kind: 'classes' }, 1)).toBe('binaryCrossentropy');
    expect(defaultLoss({ kind: 'classes' }, 2)).toBe('sparseCategoricalCrossentropy');
    expect(parseRunSpec({})).toMatchObject({
      ok: true,
      spec: expect.not.objectContaining({ loss: expect.anything() as unknown }) as unknown,
    });
  });
});

describe('a spec without a model', () => {
  const rows = (...shapes: number[][]) => ({ inputs: shapes.map((shape, i) => ({ name: `x${i}`, shape })) });
  it.each([
    ['a table', rows([13]), 'mlp'],
    ['the images of MNIST', rows([28, 28, 1]), 'mlp'],
    ['colour images', rows([32, 36, 3]), 'cnn'],
    ['a window over time', rows([20, 140]), 'mlp'],
    ['too flat an image', rows([8, 200, 3]), 'mlp'],
    ['an image beside numbers', rows([32, 32, 3], [4]), 'mlp'],
  ])('trains what fits %s', (_, format, model) => {
    expect(defaultModel(format)).toBe(model);
  });
});
