/** Description of the data of a run for servers and workers. It travels in their jobs; the rows do not. */
import { z } from 'zod';
import { LIMITS } from '../limits.js';
import { SPLITS } from './manifest.js';
import { rowFormatSchema } from './row-format.js';

export const runDataSchema = z.strictObject({
  source: z.discriminatedUnion('kind', [
    z.strictObject({ kind: z.literal('built-in'), name: z.string().min(1).max(64) }),
    z.strictObject({
      kind: z.literal('prepared'),
      teamId: z.uuid(),
      /** SHA-256 of the manifest. */
      version: z.string().regex(/^[0-9a-f]{64}$/),
    }),
  ]),
  format: rowFormatSchema,
  /** Examples in the training split and in that of the evaluation: fewer than rows where windows are cut. */
  trainExamples: z.int().min(1),
  /** Examples of the training split that are measured by validations and not trained on; `trainExamples` is without them. */
  heldOutExamples: z.int().min(1).max(LIMITS.heldOutExamples).optional(),
  evalExamples: z.int().min(0),
  evaluateOn: z.enum(SPLITS),
});
export type RunData = z.output<typeof runDataSchema>;
