/**
 * `preprocessing.json`: what is done to a row before it goes into an exported model, and what the numbers that come out mean. It says everything by
 * itself, so that the model is used without Paceline.
 */
import { featurePlanSchema } from '@paceline/spec';
import { z } from 'zod';

const shape = z.array(z.int().min(1)).max(6);
const name = z.string().min(1).max(200);
export const LABELS_MAX = 1_000_000;

const inputSchema = z.strictObject({
  name,
  /** Shape of one example, without the batch. */
  shape,
  /** Pixels in row-major order, each divided by `divideBy`. */
  image: z.strictObject({
    height: z.int().min(1).max(4096),
    width: z.int().min(1).max(4096),
    channels: z.union([z.literal(1), z.literal(3)]),
    divideBy: z.number().positive(),
  }),
});

const outputSchema = z.discriminatedUnion('kind', [
  z.strictObject({
    name,
    kind: z.literal('classes'),
    /** What the numbers are: `logits` become probabilities by softmax, and by sigmoid where there is one number for two classes. */
    gives: z.enum(['logits', 'probabilities']),
    /** In the order of the numbers. A single number speaks for the second of two labels. */
    labels: z.array(z.string().max(1000)).min(2).max(LABELS_MAX),
    /** Shape of the labels of an example: [steps] with a label for each step. Left out: one label. */
    shape: shape.optional(),
  }),
  z.strictObject({
    name,
    kind: z.literal('values'),
    shape,
    /** Targets were scaled: number k means number × divide[k mod length] + subtract[k mod length]. */
    scale: z.strictObject({ subtract: z.array(z.number()).min(1), divide: z.array(z.number()).min(1) }).optional(),
  }),
]);

export const preprocessingSchema = z.strictObject({
  format: z.literal('paceline.preprocessing'),
  version: z.literal(1),
  /** For the built-in images, MNIST: in the order of the model's inputs. */
  inputs: z.array(inputSchema).max(32).optional(),
  /** For datasets with columns: the resolved features of the run, as the workers have computed them. */
  plan: featurePlanSchema.optional(),
  /** With a plan: the number in the plan of each input of the model. */
  inputOrder: z.array(z.int().min(0).max(31)).max(32).optional(),
  /** In the order of the model's outputs. */
  outputs: z.array(outputSchema).max(32),
});
export type Preprocessing = z.output<typeof preprocessingSchema>;
export type PreparedInput = z.output<typeof inputSchema>;
export type PreparedOutput = z.output<typeof outputSchema>;
