/** Options without what they belong to are refused with the name of the field; with it, or as defaults, they are taken. */
import { describe, expect, it } from 'vitest';
import { unusedAtOutputs } from './unused-options.js';
import { parseRunSpec, parseStoredSpec, runSpecSchema } from './run-spec.js';

const fieldsOf = (input: unknown): string[] => {
  const result = parseRunSpec(input);
  return result.ok ? [] : result.issues.map(({ path }) => path);
};

describe('options that nothing uses', () => {
  it.each([
    [{ metricOptions: { topK: 3 } }, 'metricOptions.topK'],
    [{ metrics: ['accuracy'], metricOptions: { threshold: 0.2 } }, 'metricOptions.threshold'],
    [{ metrics: ['auc'], metricOptions: { average: 'macro' } }, 'metricOptions.average'],
    [{ metrics: ['precision'], metricOptions: { aucThresholds: 20 } }, 'metricOptions.aucThresholds'],
    [{ metricOptions: { aucCurve: 'PR' } }, 'metricOptions.aucCurve'],
    [{ loss: 'mse', lossFromLogits: true }, 'lossFromLogits'],
    [{ loss: 'mse', losses: { a: 'huber' }, lossFromLogits: false }, 'lossFromLogits'],
    [{ optimizer: { name: 'adam', weightDecayExclude: ['*/bias'] } }, 'optimizer.weightDecayExclude'],
    [{ optimizer: { name: 'lamb', weightDecay: 0, weightDecayExclude: ['*/bias'] } }, 'optimizer.weightDecayExclude'],
    [{ reduceLROnPlateau: { minLearningRate: 0.05 } }, 'reduceLROnPlateau.minLearningRate'],
    [{ strategy: { kind: 'parameter-server', stalenessBound: 8 } }, 'strategy.stalenessBound'],
    [{ strategy: { kind: 'parameter-server', mode: 'async', stalenessBound: 0 } }, 'strategy.stalenessBound'],
  ])('%j is refused at %s', (input, field) => {
    expect(fieldsOf(input)).toEqual([field]);
  });

  it.each([
    { metrics: ['topK'], metricOptions: { topK: 3 } },
    { metrics: ['f1_score'], metricOptions: { threshold: 0.2, average: 'macro' } },
    { metrics: ['auc'], metricOptions: { aucThresholds: 20, aucCurve: 'PR' } },
    { metricOptions: { weighted: true } },
    { lossFromLogits: true },
    { loss: 'mse', losses: { a: { name: 'binaryCrossentropy' } }, lossFromLogits: true },
    { optimizer: { name: 'adamw', weightDecayExclude: ['*/bias'] } },
    { optimizer: { name: 'lars', weightDecay: 0, weightDecayExclude: ['*/bias'] } },
    { reduceLROnPlateau: { minLearningRate: 0.01 } },
    { strategy: { kind: 'parameter-server', stalenessBound: 4 } },
    { strategy: { kind: 'parameter-server', mode: 'ssp', stalenessBound: 8 } },
  ])('%j is taken', (input) => {
    expect(fieldsOf(input)).toEqual([]);
  });

  it.each([{ metricOptions: { topK: 3 } }, { strategy: { kind: 'parameter-server', stalenessBound: 8 } }])(
    '%j of a run that was stored goes on',
    (input) => {
      expect(runSpecSchema.safeParse(input).success).toBe(true);
      expect(parseStoredSpec(input).ok).toBe(true);
    },
  );

  it('options of losses are refused where each output has a loss of its own', () => {
    const outputs = [{ name: 'kind' }, { name: 'price' }];
    const both = { kind: 'sparseCategoricalCrossentropy', price: 'huber' } as const;
    expect(unusedAtOutputs({ losses: both, lossOptions: { delta: 5 } }, outputs)).toEqual([
      ['lossOptions.delta', 'is of loss, and each output has its own in losses: give it there, as price: {name: huber, delta: 5}'],
    ]);
    expect(unusedAtOutputs({ losses: { price: 'huber' }, lossOptions: { labelSmoothing: 0.1 } }, outputs)).toEqual([]);
    expect(unusedAtOutputs({ losses: both, lossOptions: {} }, outputs)).toEqual([]);
  });

  it('says which metric to add', () => {
    const result = parseRunSpec({ metricOptions: { threshold: 0.2 } });
    expect(result.ok || result.issues[0]?.message).toBe(
      'is not used: add binaryAccuracy, precision, recall or f1Score to metrics, or leave it out',
    );
  });
});
