/** Measures by name as they are written on the command line: shares as percent, everything else with four decimals; in the order of the metrics. */
import type { MeasuresByName } from '@paceline/client';
import { measureParts, METRIC_FORMS } from '@paceline/spec/metric-forms';
import { clean } from './terminal/clean.js';
import { decimals, percent, widthOf } from './terminal/format.js';

const ORDER = Object.keys(METRIC_FORMS);
const placeOf = (name: string): number => ORDER.indexOf(measureParts(name)?.metric ?? '');

/** Measures of the whole model come before those of its outputs. The api has no order of its own. */
export const inOrder = (names: readonly string[]): readonly string[] =>
  [...names].sort((a, b) => placeOf(a) - placeOf(b) || a.length - b.length || (a < b ? -1 : 1));

export function measureText(name: string, value: number | null | undefined): string {
  const parts = measureParts(name);
  return parts && METRIC_FORMS[parts.metric].unit === 'share' ? percent(value) : decimals(value, 4);
}

/** What stands in a column or a short line: `price_mae` for `price_meanAbsoluteError`. */
export function shortMeasure(name: string): string {
  const parts = measureParts(name);
  if (!parts) return clean(name, 60);
  const { short } = METRIC_FORMS[parts.metric];
  return parts.output === undefined ? short : `${clean(parts.output, 40)}_${short}`;
}

/** `loss 0.2315  accuracy 93.10 %`. @param prefix before each name, such as `val_` */
export function measuresText(values: MeasuresByName, prefix = ''): string {
  const known = inOrder(Object.keys(values)).filter((name) => values[name] !== null);
  return known.map((name) => `${prefix}${shortMeasure(name)} ${measureText(name, values[name])}`).join('  ');
}

const GAP = '   ';

/**
 * What was measured in training and, beside it, on the evaluation split: side by side in columns, as many as fit.
 * @returns lines of at most `width` columns, as long as one measure fits
 */
export function measurePairs(training: MeasuresByName, validation: MeasuresByName, width: number): string[] {
  const names = inOrder([...new Set([...Object.keys(training), ...Object.keys(validation)])]);
  const cells = names.map((name) => [shortMeasure(name), measureText(name, training[name]), measureText(name, validation[name])] as const);
  const widest = ([0, 1, 2] as const).map((i) => Math.max(0, ...cells.map((cell) => widthOf(cell[i]))));
  const texts = cells.map(
    ([name, train, val]) => `${name.padEnd(widest[0]!)} ${train.padStart(widest[1]!)} val ${val.padStart(widest[2]!)}`,
  );
  const across = Math.max(1, Math.floor((width + GAP.length) / (widthOf(texts[0] ?? '') + GAP.length)));
  const down = Math.ceil(texts.length / across);
  // Down first, so that what belongs together stands together.
  return Array.from({ length: down }, (_, row) => texts.filter((_text, i) => i % down === row).join(GAP));
}
