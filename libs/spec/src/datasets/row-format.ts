/**
 * What one example of a dataset looks like to a model: named inputs, named targets, perhaps a weight. Plain data; api, servers and workers
 * agree on it before a byte moves, and the model is checked against it. All numbers are float32: class indices and token ids too,
 * which float32 holds exactly up to 2^24.
 */
import { z } from 'zod';

const name = z
  .string()
  .min(1)
  .max(100)
  .regex(/^[^\p{Cc}\p{Cf}\p{Cs}]*$/u, 'must not contain control characters or halves of characters');
const shape = z
  .array(
    z
      .int()
      .min(1)
      .max(1 << 24),
  )
  .max(6);

const isPadded = z.literal(true).optional();

/** One input of the model. `shape` is that of one example, without the batch: [4], [28, 28, 1]. */
export const inputFieldSchema = z.strictObject({
  name,
  shape,
  /** The numbers are ids of tokens, all below this: what an Embedding needs to know. */
  ids: z
    .int()
    .min(1)
    .max(1 << 24)
    .optional(),
});

/**
 * One target of the model. `classes`: each element is the index of one of `classes` classes; the shape is [] for one label per example,
 * [steps] for one label per step. `values`: numbers of the shape of the model's output. Where a target `isPadded`, NaN stands for steps that an example
 * does not have: they count neither in the loss nor in the metrics.
 */
export const targetFieldSchema = z.discriminatedUnion('kind', [
  z.strictObject({
    name,
    kind: z.literal('classes'),
    shape,
    classes: z
      .int()
      .min(2)
      .max(1 << 24),
    isPadded,
    /** A factor of the loss of this target alone, by the class of the example, in training alone. */
    classWeights: z.array(z.number().min(0)).optional(),
  }),
  z.strictObject({ name, kind: z.literal('values'), shape, isPadded }),
]);

export const rowFormatSchema = z.strictObject({
  inputs: z.array(inputFieldSchema).min(1).max(32),
  targets: z.array(targetFieldSchema).min(1).max(32),
  /** Each example carries a weight, a factor of its loss. */
  isWeighted: z.boolean(),
});

export type InputField = z.output<typeof inputFieldSchema>;
export type TargetField = z.output<typeof targetFieldSchema>;
export type RowFormat = z.output<typeof rowFormatSchema>;

/** Floats of one example of a field. */
export const fieldLength = (field: { readonly shape: readonly number[] }): number => field.shape.reduce((product, n) => product * n, 1);

/** The number of each end's field: the field of the same name, else in their order. */
export function fieldsOfEnds(ends: readonly { readonly name: string }[], fields: readonly { readonly name: string }[]): number[] {
  const byName = ends.map(({ name }) => fields.findIndex((field) => field.name === name));
  const rest = fields.flatMap((_, i) => (byName.includes(i) ? [] : [i]));
  return byName.map((field) => (field >= 0 ? field : rest.shift()!));
}
