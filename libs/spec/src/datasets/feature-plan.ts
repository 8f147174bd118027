/**
 * The feature plan: what the features of a run come to, resolved against a manifest. It says everything by itself (means, deviations,
 * vocabularies, sizes), so that the same numbers are made from the shards of the dataset and from a row that somebody types in.
 *
 * A field of the model (an input or a target) is made of one or more rows of the dataset, and of encoders whose values lie side by side.
 * All arithmetic is in float64 on float32 values, and each result is rounded to float32 once.
 */
import { z } from 'zod';
import { DATASET_LIMITS, dialectSchema, SPLITS } from './manifest.js';
import { rowFormatSchema } from './row-format.js';

const column = z.string().min(1).max(200);
const finite = z.number();
const size = z
  .int()
  .min(1)
  .max(1 << 24);
const shape = z.array(size).max(5);
const names = z.array(z.string().max(DATASET_LIMITS.vocabularyCharacters)).max(DATASET_LIMITS.vocabularyEntries);
/** Scaling of an element: (value - subtract) / divide. */
const linear = { subtract: finite, divide: finite };

/** Marks a target whose padding is NaN: such a step does not count. */
const isMasked = z.literal(true).optional();

export const encoderSchema = z.discriminatedUnion('kind', [
  /** One value per column: (value - subtract[i]) / divide[i]. `missing[i]` stands for a missing value before that; null refuses it. */
  z.strictObject({
    kind: z.literal('numbers'),
    columns: z.array(column).min(1).max(DATASET_LIMITS.columns),
    missing: z.array(finite.nullable()),
    subtract: z.array(finite),
    divide: z.array(finite),
  }),
  /** One value per name, 1 at the place of the category. A category that is unknown or missing is all zeros. */
  z.strictObject({ kind: z.literal('one-hot'), column, names }),
  /** 1 + the place of the category among the names; 0 where it is unknown or missing. */
  z.strictObject({ kind: z.literal('index'), column, names }),
  /** One value per bucket, 1 at FNV-1a (32 bits, of the UTF-8 bytes) modulo buckets. A missing category is all zeros. */
  z.strictObject({ kind: z.literal('hash'), column, buckets: size }),
  /** The place of the category among the names, for a target. One that is unknown or missing is refused. */
  z.strictObject({ kind: z.literal('class'), column, names }),
  z.strictObject({ kind: z.literal('array'), column, shape, ...linear }),
  z.strictObject({
    kind: z.literal('image'),
    column,
    height: size,
    width: size,
    channels: z.union([z.literal(1), z.literal(3)]),
    fit: z.enum(['stretch', 'crop', 'pad']),
    ...linear,
  }),
  /** `shape` is that of an element. */
  z.strictObject({ kind: z.literal('sequence'), column, length: size, shape, pad: z.enum(['before', 'after']), value: finite, isMasked }),
  /**
   * Token of id i + 2 is vocabulary[i]; 0 is padding, 1 is unknown. With a tokenizer the ids are those of its tokenizer.json.
   * `skip` leaves out the first tokens: 1 for the target of a language model.
   */
  z.strictObject({
    kind: z.literal('text'),
    column,
    tokens: z.enum(['character', 'word', 'tokenizer']),
    length: size,
    skip: z.int().min(0).max(1),
    lowerCase: z.boolean(),
    vocabulary: names,
    tokenizer: z.json().optional(),
    encode: z.enum(['ids', 'multi-hot']),
    /** Ids are below it. */
    ids: size,
    isMasked,
  }),
  /** A copy of an input. */
  z.strictObject({ kind: z.literal('same'), input: z.string() }),
]);
export type Encoder = z.output<typeof encoderSchema>;
export type EncoderOf<K extends Encoder['kind']> = Extract<Encoder, { kind: K }>;

/** Which rows make a field of example i: i + first, i + first + step, ...; `count` of them, one after the other. */
const rowsOfExample = z.strictObject({ first: z.int().min(0), step: z.int().min(1), count: z.int().min(1) });
export type RowsOfExample = z.output<typeof rowsOfExample>;

/** Shapes and names are in the format, in the same order. */
const plannedField = z.strictObject({ rows: rowsOfExample, encoders: z.array(encoderSchema).min(1) });
export type PlannedField = z.output<typeof plannedField>;

export const featurePlanSchema = z.strictObject({
  format: z.literal('paceline.features'),
  version: z.literal(1),
  rowFormat: rowFormatSchema,
  inputs: z.array(plannedField),
  /** `labels`: what the classes are called, in the order of their indices. */
  targets: z.array(plannedField.extend({ labels: names.optional() })),
  /** The weight of an example is the product of what is there. */
  weight: z.strictObject({
    column: column.optional(),
    /** A weight per class of the first target, in training alone. */
    classes: z.array(z.number().min(0)).optional(),
  }),
  /** Rows that an example spans: 1, or more with windows. A series of n rows has n - span + 1 examples. */
  span: z.int().min(1),
  examples: z.partialRecord(z.enum(SPLITS), z.int().min(0)),
  evaluateOn: z.enum(SPLITS),
  /** How the files write numbers and separate columns that the dataset was made of. */
  dialect: dialectSchema.optional(),
});
export type FeaturePlan = z.output<typeof featurePlanSchema>;

const WHOLE_NUMBER = /^(?:0|-?[1-9][0-9]{0,14})$/;

/** The order of classes: whole numbers by value when all are such, or else by their UTF-16 units. */
export function sortedVocabulary(vocabulary: readonly string[]): string[] {
  if (vocabulary.every((name) => WHOLE_NUMBER.test(name))) return [...vocabulary].sort((a, b) => Number(a) - Number(b));
  return [...vocabulary].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
}
