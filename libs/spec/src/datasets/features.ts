/**
 * Which columns of a dataset become inputs, targets and weights of a model, and how: a typed list in the run spec. It is resolved against the
 * manifest (statistics and vocabularies) into a plan that says everything by itself, so that it is kept with an exported model and applied
 * to new rows. Deterministic; computed by the loader thread.
 */
import { z } from 'zod';
import { SPLITS } from './manifest.js';

/** In one map, and of the classes of one of several targets. */
export const CLASS_WEIGHTS_MAX = 100_000;
const classWeight = z.number().min(0).max(1e6);
const entriesOf = (weights: Readonly<Record<string, number | Readonly<Record<string, number>>>>): number =>
  Object.values(weights).reduce<number>((sum, weight) => sum + (typeof weight === 'number' ? 1 : Object.keys(weight).length), 0);
/** As many words, of some 15 bytes each, as a stored spec has room for. */
const VOCABULARY_MAX = 100_000;

const column = z.string().min(1).max(200);
const columns = z.array(column).min(1).max(100_000);
const length = z.int().min(1).max(1_000_000);
const numberScale = z
  .enum(['standard', 'min-max', 'none'])
  .describe('standard: minus mean, divided by deviation; min-max: to 0..1; both from the training split.');

export const featureSchema = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.literal('number'),
    columns,
    scale: numberScale.default('standard'),
    missing: z
      .union([z.literal('mean'), z.number()])
      .describe('What stands for a missing value, before scaling.')
      .default('mean'),
  }),
  z.strictObject({
    kind: z.literal('category'),
    column,
    encode: z
      .enum(['one-hot', 'index', 'hash'])
      .describe(
        'index: 1 + the position in the sorted vocabulary, 0 for an unknown or missing category, for an Embedding; hash: one-hot over `buckets`. Unknown or missing is all zeros in one-hot.',
      )
      .default('one-hot'),
    buckets: z.int().min(2).max(100_000).describe('With encode hash.').default(64),
  }),
  z.strictObject({
    kind: z.literal('image'),
    column,
    height: z.int().min(1).max(4096),
    width: z.int().min(1).max(4096),
    channels: z.union([z.literal(1), z.literal(3)]).default(3),
    fit: z
      .enum(['stretch', 'crop', 'pad'])
      .describe('crop: the middle, after scaling the shorter side; pad: black bars.')
      .default('stretch'),
    scale: z.enum(['unit', 'symmetric', 'none']).describe('unit: 0..1; symmetric: -1..1; none: 0..255.').default('unit'),
  }),
  z.strictObject({
    kind: z.literal('text'),
    column,
    tokens: z.enum(['character', 'word', 'tokenizer']).default('word'),
    length: length.describe('Tokens per example: longer texts are cut, shorter ones padded with 0.'),
    vocabulary: z
      .array(z.string().max(200))
      .max(VOCABULARY_MAX)
      .describe('Token of id i + 2; 0 is padding, 1 is unknown. Made from the training split when left out.')
      .optional(),
    vocabularySize: z.int().min(3).max(VOCABULARY_MAX).describe('Most frequent tokens that get an id of their own.').default(10_000),
    lowerCase: z.boolean().default(true),
    tokenizer: z.json().describe('With tokens tokenizer: the tokenizer.json of Hugging Face.').optional(),
    encode: z.enum(['ids', 'multi-hot']).default('ids'),
  }),
  z.strictObject({
    kind: z.literal('sequence'),
    column,
    length: length.describe('Longer sequences are cut, shorter ones padded.'),
    pad: z.enum(['before', 'after']).default('after'),
    value: z.number().default(0),
  }),
  z.strictObject({ kind: z.literal('array'), column, scale: z.enum(['standard', 'min-max', 'unit', 'none']).default('none') }),
  z.strictObject({
    kind: z.literal('window'),
    columns,
    lookback: length.describe('Rows that an example looks back.'),
    step: z.int().min(1).max(1_000_000).describe('Every how many rows one is taken.').default(1),
    scale: numberScale.default('standard'),
  }),
]);
export type Feature = z.output<typeof featureSchema>;

export const targetSchema = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('class'), column }),
  z.strictObject({ kind: z.literal('number'), columns, scale: numberScale.default('none') }),
  z.strictObject({ kind: z.literal('array'), column, scale: z.enum(['standard', 'min-max', 'unit', 'none']).default('none') }),
  z.strictObject({
    kind: z.literal('sequence'),
    column,
    length,
    of: z.enum(['classes', 'values']).default('classes'),
    pad: z.enum(['before', 'after']).describe('As that of the input, so that steps stay beside each other.').default('after'),
  }),
  z.strictObject({
    kind: z.literal('window'),
    columns,
    delay: z.int().min(1).max(1_000_000).describe('Rows ahead of the last row of the input window.').default(1),
    scale: numberScale.default('standard'),
  }),
  z.strictObject({ kind: z.literal('next-token'), column }).describe('The tokens of a text input, one step later.'),
  z.strictObject({ kind: z.literal('same') }).describe('The input itself, for autoencoders.'),
]);
export type Target = z.output<typeof targetSchema>;

const fieldName = z.string().regex(/^[A-Za-z][A-Za-z0-9_-]{0,63}$/, 'must begin with a letter and hold letters, digits, _ and -');

export const DATASET_NAME = /^[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?$/;

/** `flowers`, or `flowers@1a2b3c4d` for one version: 8 to 64 hexadecimal digits of its hash. */
export const datasetReferenceSchema = z
  .string()
  .max(129)
  .regex(
    /^[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?(?:@[0-9a-f]{8,64})?$/,
    'must be a name of 1 to 64 lower-case letters, digits, dots, dashes and underscores, with @ and at least 8 digits of a version behind it if wanted',
  );

/** A name of a team for a trained model: `flowers:best`. */
export const MODEL_ALIAS = /^[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?:[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?$/;

/** The two parts of a reference that the schema has let through. */
export function parseDatasetReference(reference: string): { readonly name: string; readonly version: string | undefined } {
  const [name = '', version] = reference.split('@');
  return { name, version };
}

export const featuresSchema = z.strictObject({
  inputs: z
    .record(fieldName, z.array(featureSchema).min(1).max(1000))
    .describe('Inputs of the model by name; the features of one input lie side by side. Left out: every column but the target.')
    .optional(),
  targets: z.record(fieldName, targetSchema).describe('Targets by the name of the output. Left out: the label of the dataset.').optional(),
  weightColumn: column.describe('A column with the weight of each example, a factor of its loss.').optional(),
  classWeights: z
    .record(z.string().max(1000), z.union([classWeight, z.record(z.string().max(1000), classWeight)]))
    .refine((weights) => entriesOf(weights) <= CLASS_WEIGHTS_MAX, `must have at most ${CLASS_WEIGHTS_MAX} entries`)
    .describe('A weight per class, by its name; with several targets that are classes by the name of the target, then of the class.')
    .optional(),
  balanceClasses: z.boolean().describe('Weigh each class by the inverse of how often it occurs in the training split.').optional(),
  evaluateOn: z.enum(SPLITS).describe('The split of the evaluation. Left out: test, or else validation, or else train.').optional(),
});
export type Features = z.output<typeof featuresSchema>;
