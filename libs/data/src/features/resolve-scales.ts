/** Scales of numbers, from the statistics of the training split. A column without spread is only moved, not divided. */
import type { EncoderOf, Feature, NumberStatistics } from '@paceline/spec';
import type { Resolution } from './resolution.js';

export type Scale = 'standard' | 'min-max' | 'unit' | 'none';

interface Linear {
  readonly subtract: number;
  readonly divide: number;
}

const BYTE_MAX = 255;

export function linearOf(scale: Scale, { mean, deviation, minimum, maximum }: NumberStatistics): Linear {
  switch (scale) {
    case 'standard':
      return { subtract: mean, divide: deviation > 0 ? deviation : 1 };
    case 'min-max':
      return { subtract: minimum, divide: maximum > minimum ? maximum - minimum : 1 };
    case 'unit':
      return { subtract: 0, divide: BYTE_MAX };
    case 'none':
      return { subtract: 0, divide: 1 };
  }
}

/**
 * One encoder for several columns of numbers.
 * @param missing what stands for a missing value; `refused` for targets, where nothing may
 */
export function numbersEncoder(
  resolution: Resolution,
  path: string,
  columns: readonly string[],
  scale: Exclude<Scale, 'unit'>,
  missing: Extract<Feature, { kind: 'number' }>['missing'] | 'refused',
): EncoderOf<'numbers'> | undefined {
  const encoder = {
    kind: 'numbers' as const,
    columns: [...columns],
    missing: [] as (number | null)[],
    subtract: [] as number[],
    divide: [] as number[],
  };
  const seen = new Set<string>();
  for (const [i, name] of columns.entries()) {
    if (resolution.isFull) return undefined;
    const column = resolution.column(`${path}.columns.${i}`, name, ['number']);
    if (!column) continue;
    const { statistics } = column;
    if (seen.has(name)) resolution.issue(`${path}.columns.${i}`, `${JSON.stringify(name)} stands twice`);
    seen.add(name);
    if (missing === 'refused') resolution.isMissing(`${path}.columns.${i}`, column, `no ${JSON.stringify(name)}, and a target needs one`);
    const { subtract, divide } = linearOf(scale, statistics);
    encoder.missing.push(missing === 'refused' ? null : missing === 'mean' ? statistics.mean : missing);
    encoder.subtract.push(subtract);
    encoder.divide.push(divide);
  }
  return encoder.subtract.length === columns.length ? encoder : undefined;
}
