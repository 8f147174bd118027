/** What benches that train in one process share: a spec from its input, and the error of the trained model on the test split. */
import { rowBuffers } from '@paceline/data';
import { parseRunSpec } from '@paceline/spec';

const EVALUATED_AT_ONCE = 500;

/** @param {import('@paceline/spec').RunSpecInput} input */
export function specOf(input) {
  const parsed = parseRunSpec(input);
  if (!parsed.ok) throw new Error(parsed.issues.map(({ path, message }) => `${path}: ${message}`).join('; '));
  return parsed.spec;
}

/**
 * Percent of the test split that the weights which the engine has loaded get wrong.
 * @param {import('@paceline/engine').Engine} engine
 * @param {Awaited<ReturnType<typeof import('@paceline/data').openDataset>>['evaluation']} evaluation
 * @param {import('@paceline/spec').RowFormat} format
 */
export function testErrorPercent(engine, evaluation, format) {
  const accuracy = engine.metricNames.indexOf('accuracy');
  const all = Int32Array.from({ length: evaluation.count }, (_, i) => i);
  const scored = rowBuffers(format, EVALUATED_AT_ONCE);
  let right = 0;
  for (let from = 0; from < all.length; from += EVALUATED_AT_ONCE) {
    const count = Math.min(EVALUATED_AT_ONCE, all.length - from);
    evaluation.gather(all, from, from + count, scored);
    right += engine.evaluate(Object.assign({ count }, scored)).metricSums[accuracy] ?? NaN;
  }
  return 100 * (1 - right / all.length);
}
