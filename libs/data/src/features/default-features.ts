/**
 * What the features are where a spec leaves them out. The target is the label of the dataset: a category gives classes, numbers and arrays
 * values. Every other column is an input: numbers (standardised) and categories (one-hot, hashed above 1000 of them) side by side in `x`;
 * an image (of the mean size, at most 128 × 128), array, sequence or text column (which words occur) becomes an input of its own, if there is
 * exactly one. Numbers to be predicted are standardised too: a loss of prices in dollars would drive any learning rate to infinity.
 */
import type { Column, Feature, Features, Target } from '@paceline/spec';
import type { Resolution } from './resolution.js';

export interface CompleteFeatures {
  readonly inputs: Readonly<Record<string, readonly Feature[]>>;
  readonly targets: Readonly<Record<string, Target>>;
}

const ONE_HOT_MAX = 1000;
const HASH_BUCKETS = 1024;
/** What a processor trains on at some speed. */
const IMAGE_SIDE_MAX = 128;
const TEXT_IDS_MAX = 256;
/** Which words occur costs nothing more in a long text: what is said last counts like what is said first. */
const TEXT_WORDS_MAX = 100_000;
const FIELD_NAME = /^[A-Za-z][A-Za-z0-9_-]{0,63}$/;
const TARGET_NAME = 'y';

export function completeFeatures(resolution: Resolution, given: Features | undefined): CompleteFeatures | undefined {
  const targets = given?.targets ?? defaultTargets(resolution);
  if (!targets) return undefined;
  const inputs = given?.inputs ?? defaultInputs(resolution, usedBeside(targets, given), targets);
  return inputs && { inputs, targets };
}

function defaultTargets(resolution: Resolution): Record<string, Target> | undefined {
  const { label, columns } = resolution.manifest;
  if (label === undefined)
    return resolution.issue('features.targets', `is missing: the dataset names no label. Its columns are ${resolution.columnNames()}`);
  const column = columns.find(({ name }) => name === label)!;
  switch (column.kind) {
    case 'category':
      return { [TARGET_NAME]: { kind: 'class', column: label } };
    case 'number':
      return { [TARGET_NAME]: { kind: 'number', columns: [label], scale: 'standard' } };
    case 'array':
      return { [TARGET_NAME]: { kind: 'array', column: label, scale: 'none' } };
    case 'sequence':
    case 'text':
    case 'image':
      return resolution.issue(
        'features.targets',
        `is missing: the label ${JSON.stringify(label)} is a column of kind ${column.kind}, so say what is to be learned of it`,
      );
  }
}

function usedBeside(targets: Readonly<Record<string, Target>>, given: Features | undefined): ReadonlySet<string> {
  const used = new Set(given?.weightColumn === undefined ? [] : [given.weightColumn]);
  for (const target of Object.values(targets)) {
    // What comes next is told from what was: such columns are inputs too.
    if (target.kind === 'class' || target.kind === 'array' || target.kind === 'sequence') used.add(target.column);
    if (target.kind === 'number') for (const name of target.columns) used.add(name);
  }
  return used;
}

function defaultInputs(
  resolution: Resolution,
  used: ReadonlySet<string>,
  targets: Readonly<Record<string, Target>>,
): Record<string, Feature[]> | undefined {
  // Which words occur is what dense layers learn from; ids are for an Embedding.
  const encode = Object.values(targets).some(({ kind }) => kind === 'next-token') ? 'ids' : 'multi-hot';
  const columns = resolution.manifest.columns.filter(({ name }) => !used.has(name));
  const numbers = columns.filter(({ kind }) => kind === 'number').map(({ name }) => name);
  const flat: Feature[] = numbers.length > 0 ? [{ kind: 'number', columns: numbers, scale: 'standard', missing: 'mean' }] : [];
  for (const column of columns) {
    if (column.kind === 'category' && column.vocabulary.length > 0)
      flat.push({
        kind: 'category',
        column: column.name,
        encode: column.vocabulary.length > ONE_HOT_MAX ? 'hash' : 'one-hot',
        buckets: HASH_BUCKETS,
      });
  }
  const whole = columns.flatMap((column) => ownInput(column, encode) ?? []);
  if (whole.length > 1)
    return resolution.issue(
      'features.inputs',
      `is missing: several columns are inputs of their own (${columns
        .filter((column) => ownInput(column, encode))
        .map(({ name, kind }) => `${name}: ${kind}`)
        .slice(0, 20)
        .join(', ')}), so say which, or import the data again without the others (type ignore)`,
    );
  if (flat.length === 0 && whole.length === 0)
    return resolution.issue('features.inputs', 'there is no column left for an input: import the data with more columns');
  const [only] = whole;
  const inputs: Record<string, Feature[]> = flat.length > 0 ? { x: flat } : {};
  if (only) inputs[flat.length === 0 ? 'x' : nameBeside('x', only)] = [only];
  return inputs;
}

const nameBeside = (taken: string, feature: Feature): string =>
  'column' in feature && FIELD_NAME.test(feature.column) && feature.column !== taken ? feature.column : feature.kind;

function ownInput(column: Column, encode: 'ids' | 'multi-hot'): Feature | undefined {
  const { name } = column;
  switch (column.kind) {
    case 'number':
    case 'category':
      return undefined;
    case 'array':
      return { kind: 'array', column: name, scale: column.dtype === 'U8' ? 'unit' : 'none' };
    case 'sequence':
      return { kind: 'sequence', column: name, length: Math.min(Math.max(1, column.lengths.maximum), 1_000_000), pad: 'after', value: 0 };
    case 'text':
      return {
        kind: 'text',
        column: name,
        tokens: 'word',
        length: encode === 'multi-hot' ? TEXT_WORDS_MAX : Math.min(Math.max(1, column.lengths.maximum), TEXT_IDS_MAX),
        vocabularySize: 10_000,
        lowerCase: true,
        encode,
      };
    case 'image': {
      const { heights, widths, channels } = column;
      const side = ({ mean }: { readonly mean: number }): number => Math.max(1, Math.min(IMAGE_SIDE_MAX, Math.round(mean)));
      return {
        kind: 'image',
        column: name,
        height: side(heights),
        width: side(widths),
        channels: channels.length > 0 && channels.every((count) => count <= 2) ? 1 : 3,
        fit: 'stretch',
        scale: 'unit',
      };
    }
  }
}
