/** Inputs of the plan: each feature becomes an encoder with the numbers that the manifest has for it. */
import type { Column, Feature, InputField, PlannedField } from '@paceline/spec';
import { linearOf, numbersEncoder } from './resolve-scales.js';
import { rowAt, type Resolution, type ResolvedEncoder } from './resolution.js';
import { textEncoder } from './resolve-text.js';

export type FeatureOf<K extends Feature['kind']> = Extract<Feature, { kind: K }>;

export interface ResolvedInput {
  readonly field: InputField;
  readonly planned: PlannedField;
}

const WIDTH_MAX = 1 << 24;
const product = (shape: readonly number[]): number => shape.reduce((all, n) => all * n, 1);

/** How far back the longest window looks; 1 without windows. */
export function longestLookback(inputs: Readonly<Record<string, readonly Feature[]>>): number {
  return Math.max(1, ...Object.values(inputs).flatMap((list) => list.map((feature) => (feature.kind === 'window' ? feature.lookback : 1))));
}

/** @param now the last row that inputs see, counted from the first row of an example */
export function resolveInput(resolution: Resolution, name: string, features: readonly Feature[], now: number): ResolvedInput | undefined {
  const path = `features.inputs.${name}`;
  const windows = features.filter((feature) => feature.kind === 'window');
  if (windows.length > 0) return resolveWindows(resolution, path, name, features, now);
  const resolved = features.map((feature, i) => resolveFeature(resolution, `${path}.${i}`, feature));
  const whole = resolved.filter((each) => each !== undefined);
  if (whole.length < resolved.length) return undefined;
  if (whole.length === 1) {
    const [{ encoder, shape }] = whole as [ResolvedEncoder];
    const ids = encoder.kind === 'text' && encoder.encode === 'ids' ? { ids: encoder.ids } : {};
    const field: InputField = Object.assign({ name, shape: [...shape] }, ids);
    return bounded(resolution, path, { field, planned: { rows: rowAt(now), encoders: [encoder] } });
  }
  for (const [i, { shape }] of whole.entries()) {
    if (shape.length !== 1)
      return resolution.issue(
        `${path}.${i}`,
        `has the shape [${shape.join(', ')}] and cannot lie beside others: give it an input of its own, under another name in features.inputs`,
      );
  }
  const width = whole.reduce((sum, { shape }) => sum + product(shape), 0);
  return bounded(resolution, path, {
    field: { name, shape: [width] },
    planned: { rows: rowAt(now), encoders: whole.map(({ encoder }) => encoder) },
  });
}

function bounded(resolution: Resolution, path: string, input: ResolvedInput): ResolvedInput | undefined {
  const width = product(input.field.shape);
  if (width <= WIDTH_MAX) return input;
  return resolution.issue(path, `makes ${width} numbers of each example; at most ${WIDTH_MAX} are read: make it smaller`);
}

/** Windows side by side: the columns of each row after those of the one before. */
function resolveWindows(
  resolution: Resolution,
  path: string,
  name: string,
  features: readonly Feature[],
  now: number,
): ResolvedInput | undefined {
  const [first] = features as readonly [FeatureOf<'window'>];
  const odd = features.findIndex(
    (feature) => feature.kind !== 'window' || feature.lookback !== first.lookback || feature.step !== first.step,
  );
  if (odd !== -1)
    return resolution.issue(
      `${path}.${odd}`,
      'does not go with a window: features of one input that holds windows must all be windows of the same lookback and step',
    );
  if (!resolution.manifest.isOrdered)
    return resolution.issue(
      `${path}.0`,
      'needs rows in their order, and those of the dataset were mixed when it was imported: import it again in order',
    );
  const encoders = (features as readonly FeatureOf<'window'>[]).map(({ columns, scale }, i) =>
    numbersEncoder(resolution, `${path}.${i}`, columns, scale, 'mean'),
  );
  if (encoders.includes(undefined)) return undefined;
  const count = Math.ceil(first.lookback / first.step);
  const width = (features as readonly FeatureOf<'window'>[]).reduce((sum, { columns }) => sum + columns.length, 0);
  return bounded(resolution, path, {
    field: { name, shape: [count, width] },
    // The last row of the window is the present one, whatever the step.
    planned: {
      rows: { first: now - (count - 1) * first.step, step: first.step, count },
      encoders: encoders.filter((each) => each !== undefined),
    },
  });
}

function resolveFeature(
  resolution: Resolution,
  path: string,
  feature: Exclude<Feature, FeatureOf<'window'>> | Feature,
): ResolvedEncoder | undefined {
  switch (feature.kind) {
    case 'number': {
      const encoder = numbersEncoder(resolution, path, feature.columns, feature.scale, feature.missing);
      return encoder && { encoder, shape: [feature.columns.length] };
    }
    case 'category':
      return resolveCategory(resolution, path, feature);
    case 'array': {
      const column = resolution.column(`${path}.column`, feature.column, ['array']);
      if (!column) return undefined;
      if (isMissingElements(resolution, `${path}.column`, column)) return undefined;
      if (feature.scale === 'unit' && column.dtype !== 'U8')
        return resolution.issue(`${path}.scale`, 'unit divides bytes by 255, and this column holds no bytes: write min-max');
      return {
        encoder: { kind: 'array', column: column.name, shape: column.shape, ...linearOf(feature.scale, column.statistics) },
        shape: column.shape,
      };
    }
    case 'image':
      return resolveImage(resolution, path, feature);
    case 'sequence': {
      const column = resolution.column(`${path}.column`, feature.column, ['sequence']);
      if (!column) return undefined;
      const { length, pad, value } = feature;
      return {
        encoder: { kind: 'sequence', column: column.name, length, shape: column.shape, pad, value },
        shape: [length, ...column.shape],
      };
    }
    case 'text':
      return textEncoder(resolution, path, feature);
    case 'window':
      return resolution.issue(path, 'is a window among other features');
  }
}

/** Nothing stands for a missing element of an array. */
export function isMissingElements(resolution: Resolution, path: string, column: Extract<Column, { kind: 'array' }>): boolean {
  const { name, statistics } = column;
  const missing = statistics.missing || resolution.heldOut(column).missing;
  if (!missing) return false;
  const split = statistics.missing > 0 ? 'training' : resolution.evaluateOn;
  resolution.issue(
    path,
    `${missing} elements of ${JSON.stringify(name)} are missing in the ${split} split: import the data again and drop such rows`,
  );
  return true;
}

function resolveCategory(
  resolution: Resolution,
  path: string,
  { column: name, encode, buckets }: FeatureOf<'category'>,
): ResolvedEncoder | undefined {
  const column = resolution.column(`${path}.column`, name, ['category']);
  if (!column) return undefined;
  if (encode === 'hash') return { encoder: { kind: 'hash', column: name, buckets }, shape: [buckets] };
  const names = resolution.trainedVocabularyOf(column);
  if (names.length === 0)
    return resolution.issue(`${path}.column`, `${JSON.stringify(name)} has no category in the training split: leave it out`);
  if (encode === 'index') return { encoder: { kind: 'index', column: name, names }, shape: [1] };
  return { encoder: { kind: 'one-hot', column: name, names }, shape: [names.length] };
}

const IMAGE_SCALES = {
  unit: { subtract: 0, divide: 255 },
  symmetric: { subtract: 127.5, divide: 127.5 },
  none: { subtract: 0, divide: 1 },
};

function resolveImage(resolution: Resolution, path: string, feature: FeatureOf<'image'>): ResolvedEncoder | undefined {
  const column = resolution.column(`${path}.column`, feature.column, ['image']);
  if (!column) return undefined;
  const { height, width, channels, fit, scale } = feature;
  return {
    encoder: { kind: 'image', column: column.name, height, width, channels, fit, ...IMAGE_SCALES[scale] },
    shape: [height, width, channels],
  };
}
