/** Fields of the run spec that ask for validations while training, and say what follows from them. Names and defaults are those of Keras where it has them. */
import { z } from 'zod';
import { LIMITS } from './limits.js';

/** Groups that ask for validations while training. */
const VALIDATION_FIELDS = ['validation', 'earlyStopping', 'reduceLROnPlateau'] as const;

export const validationSchema = z
  .strictObject({
    everyRounds: z.int().min(1).max(LIMITS.rounds).describe('Measure each time this many rounds are committed.').optional(),
    everyEpochs: z
      .number()
      .positive()
      .max(LIMITS.epochs)
      .describe('The same in epochs (validation_freq of Keras); 1 where neither is given.')
      .optional(),
    split: z
      .number()
      .gt(0)
      .lt(1)
      .describe('Share of the training split that is held out: not trained on, but measured in place of the evaluation split.')
      .optional(),
    rows: z.int().min(1).max(LIMITS.heldOutExamples).describe('The same as a number of examples.').optional(),
  })
  .superRefine((given, ctx) => {
    if (given.split !== undefined && given.rows !== undefined)
      ctx.addIssue({ code: 'custom', path: ['rows'], message: 'cannot be given together with split: give one of the two' });
    if (given.everyRounds !== undefined && given.everyEpochs !== undefined)
      ctx.addIssue({ code: 'custom', path: ['everyEpochs'], message: 'cannot be given together with everyRounds: give one of the two' });
  });

export const MONITOR_MODES = ['auto', 'min', 'max'] as const;
/** Fields that early stopping and the plateau share, named as in Keras. */
const monitorFields = {
  metric: z
    .string()
    .regex(/^val_[\w.-]{1,100}$/, 'must be val_ and the name of a metric, such as val_loss')
    .describe('What is watched: val_loss, or val_ and the name of a metric of the run.')
    .default('val_loss'),
  patience: z.int().min(0).max(LIMITS.rounds),
  mode: z.enum(MONITOR_MODES).describe('Which is better, less or more; auto: as the metric is.').default('auto'),
};

export const earlyStoppingSchema = z.strictObject({
  ...monitorFields,
  minDelta: z.number().min(0).max(1e6).describe('A smaller improvement is none.').default(0),
  patience: monitorFields.patience.describe('Validations without improvement after which the run ends.').default(0),
  restoreBest: z.boolean().describe('Keep a checkpoint of the best validation, and end with its weights.').default(false),
  baseline: z
    .number()
    .min(-1e9)
    .max(1e9)
    .describe('Improvements count for the patience only where they are better than this too. Left out: all do.')
    .optional(),
  startFromRound: z.int().min(0).max(LIMITS.rounds).describe('Committed rounds before which nothing is watched.').default(0),
});

export const plateauSchema = z.strictObject({
  ...monitorFields,
  factor: z.number().positive().lt(1).describe('What the rate is multiplied by.').default(0.1),
  patience: monitorFields.patience.describe('Validations without improvement after which the rate falls.').default(10),
  minDelta: z.number().min(0).max(1e6).describe('A smaller improvement is none.').default(1e-4),
  cooldown: z.int().min(0).max(LIMITS.rounds).describe('Validations after a reduction that do not count.').default(0),
  minLearningRate: z
    .number()
    .min(0)
    .max(1e3)
    .describe('The rate of the optimizer, before its schedule, does not fall below it.')
    .default(0),
});

/** Validations need a mode in which all replicas are at the same weights. */
export function validationConflicts(
  spec: { readonly strategy: { readonly mode: string }; readonly optimizer: { readonly emaMomentum?: number | undefined } } & {
    readonly [field in (typeof VALIDATION_FIELDS)[number]]?: object | undefined;
  },
): [field: string, message: string][] {
  const { mode } = spec.strategy;
  const averaged: [field: string, message: string][] =
    spec.earlyStopping && spec.optimizer.emaMomentum !== undefined
      ? [
          [
            'optimizer.emaMomentum',
            'does not go with earlyStopping: the last round of the length makes the averages the weights, and a run that stops early does not come to it',
          ],
        ]
      : [];
  if (mode === 'sync') return averaged;
  const asked = VALIDATION_FIELDS.filter((field) => spec[field] !== undefined);
  return asked.map((field) => [field, `needs mode sync, where all replicas are at the same weights; the mode is ${mode}`]);
}
