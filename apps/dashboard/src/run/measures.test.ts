import { describe, expect, it } from 'vitest';
import { figureOf, inDataUnit, mainMeasures, measureOf, measuresAt, measuresOf, outputsOf } from './measures.js';

const expected = (spec: unknown) => measuresOf({ spec, progress: {}, result: null }).map(({ name }) => name);
const told = (...names: string[]) =>
  measuresOf({ spec: {}, progress: { values: Object.fromEntries(names.map((name) => [name, 1])) }, result: null });

describe('what a run is measured by', () => {
  it('is what it tells, before that what its spec says, and otherwise what its loss calls for', () => {
    expect(expected({ loss: 'sparseCategoricalCrossentropy' })).toEqual(['accuracy']);
    expect(expected({ loss: 'meanSquaredError' })).toEqual(['meanAbsoluteError']);
    expect(expected({ loss: 'meanSquaredError', metrics: ['r2Score', 'meanSquaredError', 'meanAbsoluteError'] })).toEqual([
      'meanAbsoluteError',
      'meanSquaredError',
      'r2Score',
    ]);
    expect([expected({ metrics: [] }), expected(null), expected({ metrics: ['nonsense', 3] })]).toEqual([[], ['accuracy'], []]);
    expect(told('auc', 'loss', 'accuracy').map(({ name }) => name)).toEqual(['accuracy', 'auc']);
    // A run that is over tells its result, also where nothing else is kept of it.
    expect(measuresOf({ spec: {}, progress: {}, result: { values: { loss: 1, f1Score: 0.5 } } }).map(({ label }) => label)).toEqual([
      'F1 score',
    ]);
  });
  it('of several outputs is one chart for each metric: the mean, or that of the output that is chosen', () => {
    const measures = told('meanAbsoluteError', 'rating_meanAbsoluteError', 'price_meanAbsoluteError', 'accuracy');
    expect(outputsOf(measures)).toEqual(['price', 'rating']);
    expect(measuresAt(measures, undefined).map(({ name }) => name)).toEqual(['accuracy', 'meanAbsoluteError']);
    expect(measuresAt(measures, 'rating').map(({ name }) => name)).toEqual(['accuracy', 'rating_meanAbsoluteError']);
    expect(mainMeasures(measures).map(({ name }) => name)).toEqual(['accuracy', 'meanAbsoluteError']);
    const losses = told('loss', 'price_loss', 'rating_loss', 'accuracy');
    expect(losses.map(({ name }) => name)).toEqual(['price_loss', 'rating_loss', 'accuracy']);
    expect(measuresAt(losses, 'price').map(({ name }) => name)).toEqual(['price_loss', 'accuracy']);
    expect(measuresAt(losses, undefined).map(({ name }) => name)).toEqual(['accuracy']);
    expect(mainMeasures(losses).map(({ name }) => name)).toEqual(['accuracy']);
    expect(mainMeasures(told('accuracy', 'confusionMatrix')).map(({ name }) => name)).toEqual(['accuracy']);
    expect(mainMeasures(told('confusionMatrix')).map(({ name }) => name)).toEqual(['confusionMatrix']);
  });
  it('writes shares as percentages, errors in their unit, and says which is better', () => {
    const forms = ['meanAbsoluteError', 'accuracy', 'auc', 'perplexity'].map((name) => {
      const { format, better, ceiling } = measureOf(name)!;
      return [format(0.5), better, ceiling];
    });
    expect(forms).toEqual([
      ['0.500', 'lower', undefined],
      ['50.00\u202f%', 'higher', 1],
      ['0.5', 'higher', 1],
      ['0.500', 'lower', undefined],
    ]);
    expect(measureOf('meanAbsoluteError')!.format(151_060.5)).toBe('151,061');
    expect([measureOf('toString'), figureOf({ loss: null }, 'loss'), figureOf(null, 'loss')]).toEqual([undefined, null, null]);
  });
  it('tells an error of a scaled target in the unit of the data, and of nothing else', () => {
    const scales = [{ output: 'price', target: 'price', factors: [134_533] }];
    const inUnit = (name: string, of = scales) => inDataUnit(measureOf(name)!, 0.0303, of);
    expect([inUnit('meanAbsoluteError'), inUnit('meanSquaredError')]).toEqual(['4076', '548,403,581']);
    expect([inUnit('r2Score'), inUnit('accuracy'), inUnit('meanAbsoluteError', [])]).toEqual([undefined, undefined, undefined]);
    const two = [...scales, { output: 'rent', target: 'rent', factors: [10, 20] }];
    expect(inUnit('meanAbsoluteError', [{ output: 'price', target: 'price', factors: [1] }])).toBe('0.0303');
    // A mean over outputs, or over numbers with different scales, has no unit.
    expect([inUnit('meanAbsoluteError', two), inUnit('rent_meanAbsoluteError', two)]).toEqual([undefined, undefined]);
    expect(inUnit('price_rootMeanSquaredError', two)).toBe('4076');
  });
});
