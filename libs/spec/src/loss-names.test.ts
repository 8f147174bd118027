import { describe, expect, it } from 'vitest';
import { lossName } from './losses.js';
import { parseRunSpec, type RunSpec } from './run-spec.js';

const specOf = (input: unknown): RunSpec => {
  const result = parseRunSpec(input);
  if (!result.ok) throw new Error(JSON.stringify(result.issues));
  return result.spec;
};

describe('the names of Keras and tf.js', () => {
  it.each([
    ['mse', 'meanSquaredError'],
    ['mean_squared_error', 'meanSquaredError'],
    ['MeanSquaredError', 'meanSquaredError'],
    ['sparse_categorical_crossentropy', 'sparseCategoricalCrossentropy'],
    ['BinaryCrossentropy', 'binaryCrossentropy'],
    ['mape', 'meanAbsolutePercentageError'],
    ['MSLE', 'meanSquaredLogarithmicError'],
    ['huber_loss', 'huber'],
    ['Huber', 'huber'],
    ['log_cosh', 'logCosh'],
    ['logcosh', 'logCosh'],
    ['squared_hinge', 'squaredHinge'],
    ['CategoricalHinge', 'categoricalHinge'],
    ['KLDivergence', 'kullbackLeiblerDivergence'],
    ['kl_divergence', 'kullbackLeiblerDivergence'],
    ['cosineProximity', 'cosineSimilarity'],
    ['cosine_similarity', 'cosineSimilarity'],
  ])('%s is %s', (given, name) => {
    expect(lossName(given)).toBe(name);
    expect(specOf({ loss: given }).loss).toBe(name);
  });
});

describe('a loss with options', () => {
  it('is a name with options beside it', () => {
    expect(specOf({ loss: { name: 'Huber', delta: 2 } })).toMatchObject({ loss: 'huber', lossOptions: { delta: 2 } });
    expect(specOf({ loss: { name: 'categorical_crossentropy', label_smoothing: 0.1, from_logits: true } })).toMatchObject({
      loss: 'categoricalCrossentropy',
      lossOptions: { labelSmoothing: 0.1 },
      lossFromLogits: true,
    });
  });

  it('may be given per output, also as loss', () => {
    const losses = { label: 'sparseCategoricalCrossentropy', price: { name: 'huber', delta: 3 } };
    const given = { label: 'sparse_categorical_crossentropy', price: { name: 'Huber', delta: 3 } };
    for (const input of [{ losses: given }, { loss: given }]) {
      const spec = specOf({ ...input, lossWeights: { price: 0.5 } });
      expect([spec.loss, spec.losses, spec.lossWeights]).toEqual([undefined, losses, { price: 0.5 }]);
    }
  });

  it('leaves a spec without one as it was', () => {
    expect(Object.keys(specOf({ loss: 'mse' }))).not.toContain('lossOptions');
    expect(Object.keys(specOf({}))).not.toContain('loss');
  });

  it.each([
    [{ loss: 'hubert' }, 'loss', 'did you mean huber?'],
    [{ loss: { name: 'huber', dleta: 1 } }, 'lossOptions.dleta', 'did you mean delta?'],
    [{ loss: { name: 'huber', delta: 'x' } }, 'lossOptions.delta', 'must be a number'],
    [{ loss: { name: 'huber', delta: 0 } }, 'lossOptions.delta', 'above 0'],
    [{ loss: { name: 'binaryCrossentropy', labelSmoothing: 1 } }, 'lossOptions.labelSmoothing', 'below 1'],
    [{ losses: { a: { name: 'huber', delta: 'x' } } }, 'losses.a.delta', 'must be a number'],
    [{ losses: { a: 'mze' } }, 'losses.a', 'meanSquaredError'],
    [{ loss: { a: 'mse' }, losses: { a: 'mse' } }, 'loss', 'must be one of'],
    [{ loss: 3 }, 'loss', 'must be one of'],
  ])('%j is refused', (input, path, message) => {
    const result = parseRunSpec(input);
    expect(result.ok ? [] : result.issues).toContainEqual({ path, message: expect.stringContaining(message) as string });
  });
});
