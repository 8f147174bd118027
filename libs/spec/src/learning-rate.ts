/**
 * The learning rate of a round: the rate of the optimizer, scaled with the batch, warmed up, and decayed. A function of the round alone, so
 * restarts, kills and another number of workers change nothing. Formulas are those of Keras 3 (`keras.optimizers.schedules`) where it has them.
 *
 *   full      the optimizer's rate × k, with k = globalBatch / baseBatch (linear), its square root, or 1
 *   warm-up   rounds 0..W: from full × start to full in equal steps (Goyal et al. 2017, 2.2)
 *   decay     full × factor(r / D), r rounds after the warm-up
 */
import { z } from 'zod';
import { LIMITS } from './limits.js';

export const RATE_SCHEDULES = ['constant', 'step', 'exponential', 'polynomial', 'cosine', 'cosine-restarts', 'one-cycle'] as const;
export const RATE_SCALINGS = ['none', 'linear', 'square-root'] as const;

const rounds = z.int().min(1).max(LIMITS.rounds);
const epochs = z.number().positive().max(LIMITS.epochs);

const BASE_BATCH = 256;
interface UsedBy {
  readonly otherwise: number | undefined;
  readonly schedules: readonly (typeof RATE_SCHEDULES)[number][];
}
const DECAYS = RATE_SCHEDULES.filter((schedule) => schedule !== 'constant');
/** The schedules that a field says something to, and what it is where it is not given: a spec with its defaults written down is taken too. */
const USED_BY = {
  decayRounds: { otherwise: undefined, schedules: DECAYS },
  decayEpochs: { otherwise: undefined, schedules: DECAYS },
  factor: { otherwise: 0.1, schedules: ['step', 'exponential'] },
  endFactor: { otherwise: 0, schedules: ['polynomial', 'cosine', 'cosine-restarts'] },
  power: { otherwise: 1, schedules: ['polynomial'] },
  periodGrowth: { otherwise: 2, schedules: ['cosine-restarts'] },
  restartFactor: { otherwise: 1, schedules: ['cosine-restarts'] },
  riseShare: { otherwise: 0.3, schedules: ['one-cycle'] },
  startDivisor: { otherwise: 25, schedules: ['one-cycle'] },
  endDivisor: { otherwise: 1e4, schedules: ['one-cycle'] },
} as const satisfies Readonly<Record<string, UsedBy>>;
type UsedField = keyof typeof USED_BY;

export const learningRateSchema = z
  .strictObject({
    scaling: z
      .enum(RATE_SCALINGS)
      .describe(
        'How the rate of the optimizer grows with the global batch: linear (Goyal et al. 2017), square-root (Krizhevsky 2014), or none.',
      )
      .default('none'),
    baseBatch: z
      .int()
      .min(1)
      .max(LIMITS.globalBatchExamples)
      .describe('With scaling: the global batch that the rate of the optimizer is meant for.')
      .default(BASE_BATCH),
    warmupRounds: rounds.describe('Rounds of gradual warm-up.').optional(),
    warmupEpochs: epochs.describe('The same in epochs.').optional(),
    warmupStart: z
      .number()
      .min(0)
      .max(1)
      .describe('The part of the full rate that the warm-up begins with. Left out: the rate before scaling, or 0 without scaling.')
      .optional(),
    schedule: z.enum(RATE_SCHEDULES).describe('How the rate falls after the warm-up.').default('constant'),
    decayRounds: rounds
      .describe(
        'Rounds of the decay: between two steps, per factor, or to the end of the curve. Left out: the rest of the run, as it was created.',
      )
      .optional(),
    decayEpochs: epochs.describe('The same in epochs.').optional(),
    factor: z.number().positive().max(1).describe('With step and exponential: what each decayRounds multiplies the rate by.').default(0.1),
    endFactor: z
      .number()
      .min(0)
      .max(1)
      .describe('With polynomial, cosine and cosine-restarts: the part of the full rate at the end.')
      .default(0),
    power: z.number().positive().max(10).describe('With polynomial: 1 is a straight line.').default(1),
    periodGrowth: z
      .number()
      .min(1)
      .max(100)
      .describe('With cosine-restarts: how much longer each period is than the one before.')
      .default(2),
    restartFactor: z.number().positive().max(1).describe('With cosine-restarts: what each restart multiplies the rate by.').default(1),
    riseShare: z.number().min(0).lt(1).describe('With one-cycle: the share of the rounds in which the rate rises.').default(0.3),
    startDivisor: z.number().min(1).max(1e6).describe('With one-cycle: full rate over the first rate.').default(25),
    endDivisor: z.number().min(1).max(1e9).describe('With one-cycle: first rate over the last rate.').default(1e4),
  })
  .superRefine((given, ctx) => {
    const both = (a: keyof typeof given, b: keyof typeof given): void => {
      if (given[a] !== undefined && given[b] !== undefined)
        ctx.addIssue({ code: 'custom', path: [b], message: `cannot be given together with ${a}: give one of the two` });
    };
    both('warmupRounds', 'warmupEpochs');
    both('decayRounds', 'decayEpochs');
    if (given.warmupStart !== undefined && given.warmupRounds === undefined && given.warmupEpochs === undefined)
      ctx.addIssue({ code: 'custom', path: ['warmupStart'], message: 'needs a warm-up: set warmupRounds or warmupEpochs' });
    for (const [field, { otherwise, schedules }] of Object.entries<UsedBy>(USED_BY))
      if (given[field as UsedField] !== otherwise && !schedules.includes(given.schedule))
        ctx.addIssue({
          code: 'custom',
          path: [field],
          message: `is not used with schedule ${given.schedule}: it goes with ${schedules.join(', ')}`,
        });
    if (given.scaling === 'none' && given.baseBatch !== BASE_BATCH)
      ctx.addIssue({ code: 'custom', path: ['baseBatch'], message: 'is not used without scaling: set scaling to linear or square-root' });
    if (
      (given.schedule === 'step' || given.schedule === 'exponential') &&
      given.decayRounds === undefined &&
      given.decayEpochs === undefined
    )
      ctx.addIssue({ code: 'custom', path: ['decayRounds'], message: `is needed with schedule ${given.schedule}, or decayEpochs` });
  });
export type LearningRateSpec = z.output<typeof learningRateSchema>;
