/** Targets of the plan. A target is never made up: where its column has no value the features are refused. */
import type { FeaturePlan, Target, TargetField } from '@paceline/spec';
import { linearOf, numbersEncoder } from './resolve-scales.js';
import { isMissingElements, type ResolvedInput } from './resolve-inputs.js';
import { rowAt, type Resolution } from './resolution.js';

export interface ResolvedTarget {
  readonly field: TargetField;
  readonly planned: FeaturePlan['targets'][number];
}

export type TargetOf<K extends Target['kind']> = Extract<Target, { kind: K }>;

/** How many rows ahead of the inputs the furthest target lies. */
export const longestDelay = (targets: Readonly<Record<string, Target>>): number =>
  Math.max(0, ...Object.values(targets).map((target) => (target.kind === 'window' ? target.delay : 0)));

/** @param now the last row that inputs see, counted from the first row of an example */
export function resolveTarget(
  resolution: Resolution,
  name: string,
  target: Target,
  now: number,
  inputs: readonly ResolvedInput[],
): ResolvedTarget | undefined {
  const path = `features.targets.${name}`;
  const rows = rowAt(now);
  switch (target.kind) {
    case 'class':
      return resolveClass(resolution, path, name, target, now);
    case 'number': {
      const encoder = numbersEncoder(resolution, path, target.columns, target.scale, 'refused');
      return encoder && { field: { name, kind: 'values', shape: [target.columns.length] }, planned: { rows, encoders: [encoder] } };
    }
    case 'array': {
      const column = resolution.column(`${path}.column`, target.column, ['array']);
      if (!column) return undefined;
      if (isMissingElements(resolution, `${path}.column`, column)) return undefined;
      if (target.scale === 'unit' && column.dtype !== 'U8')
        return resolution.issue(`${path}.scale`, 'unit divides bytes by 255, and this column holds no bytes: write min-max');
      const { shape, statistics } = column;
      const encoder = { kind: 'array' as const, column: column.name, shape, ...linearOf(target.scale, statistics) };
      return { field: { name, kind: 'values', shape }, planned: { rows, encoders: [encoder] } };
    }
    case 'sequence':
      return resolveSequence(resolution, path, name, target, now);
    case 'window': {
      if (!resolution.manifest.isOrdered)
        return resolution.issue(
          path,
          'needs rows in their order, and those of the dataset were mixed when it was imported: import it again in order',
        );
      const encoder = numbersEncoder(resolution, path, target.columns, target.scale, 'refused');
      return (
        encoder && {
          field: { name, kind: 'values', shape: [target.columns.length] },
          planned: { rows: rowAt(now + target.delay), encoders: [encoder] },
        }
      );
    }
    case 'next-token':
      return resolveNextToken(resolution, path, name, target, inputs);
    case 'same': {
      const [input, another] = inputs;
      if (!input) return undefined;
      if (another)
        return resolution.issue(path, `copies the input, and there are several: ${inputs.map(({ field }) => field.name).join(', ')}`);
      return {
        field: { name, kind: 'values', shape: input.field.shape },
        planned: { rows: input.planned.rows, encoders: [{ kind: 'same', input: input.field.name }] },
      };
    }
  }
}

function resolveClass(
  resolution: Resolution,
  path: string,
  name: string,
  target: TargetOf<'class'>,
  now: number,
): ResolvedTarget | undefined {
  const column = resolution.column(`${path}.column`, target.column, ['category']);
  if (!column) return undefined;
  if (resolution.isMissing(`${path}.column`, column, `no ${JSON.stringify(column.name)}, and a target needs one`)) return undefined;
  const names = resolution.sortedVocabularyOf(column);
  if (names.length < 2)
    return resolution.issue(
      `${path}.column`,
      `${JSON.stringify(column.name)} has ${names.length} categories; there is something to learn from two on`,
    );
  return {
    field: { name, kind: 'classes', shape: [], classes: names.length },
    planned: { rows: rowAt(now), encoders: [{ kind: 'class', column: column.name, names }], labels: names },
  };
}

function resolveSequence(
  resolution: Resolution,
  path: string,
  name: string,
  target: TargetOf<'sequence'>,
  now: number,
): ResolvedTarget | undefined {
  const column = resolution.column(`${path}.column`, target.column, ['sequence']);
  if (!column) return undefined;
  const { length } = target;
  // What shorter sequences lack is masked: it counts neither in the loss nor in the metrics.
  const masked = column.lengths.minimum < length;
  const encoder = Object.assign(
    { kind: 'sequence' as const, column: column.name, length, shape: column.shape, pad: target.pad, value: 0 },
    masked && { isMasked: true as const },
  );
  const padded = masked && { isPadded: true as const };
  const planned = { rows: rowAt(now), encoders: [encoder] };
  if (target.of === 'values')
    return { field: Object.assign({ name, kind: 'values' as const, shape: [length, ...column.shape] }, padded), planned };
  const { minimum, maximum } = column.statistics;
  if (column.dtype !== 'I32' || column.shape.length > 0 || minimum < 0 || maximum < 1)
    return resolution.issue(
      path,
      `holds no classes: they are whole numbers from 0, one per step, at least two of them, and ${JSON.stringify(column.name)} is ${column.dtype} [${column.shape.join(', ')}] from ${minimum} to ${maximum}; write of: values`,
    );
  const held = resolution.heldOut(column);
  const odd = [held.minimum, held.maximum].find((value) => value !== undefined && (value < 0 || value > maximum));
  if (odd !== undefined)
    return resolution.issue(
      path,
      `has the class ${odd} in the ${resolution.evaluateOn} split, and the training split has classes from 0 to ${maximum}: mend the data, or name another split in features.evaluateOn`,
    );
  return { field: Object.assign({ name, kind: 'classes' as const, shape: [length], classes: maximum + 1 }, padded), planned };
}

function resolveNextToken(
  resolution: Resolution,
  path: string,
  name: string,
  target: TargetOf<'next-token'>,
  inputs: readonly ResolvedInput[],
): ResolvedTarget | undefined {
  const column = resolution.column(`${path}.column`, target.column, ['text']);
  if (!column) return undefined;
  for (const { planned } of inputs) {
    const encoder = planned.encoders.find((each) => each.kind === 'text' && each.column === column.name && each.encode === 'ids');
    if (encoder?.kind !== 'text') continue;
    return {
      field: { name, kind: 'classes', shape: [encoder.length], classes: encoder.ids, isPadded: true },
      planned: { rows: planned.rows, encoders: [Object.assign({}, encoder, { skip: 1, isMasked: true as const })] },
    };
  }
  return resolution.issue(path, `needs an input of kind text with encode: ids of the column ${JSON.stringify(column.name)}`);
}
