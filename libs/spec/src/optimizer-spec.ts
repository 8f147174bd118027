/** The optimizers of a run spec: which there are, with their fields. libs/learning has what they compute. */
import { z } from 'zod';
import { LIMITS } from './limits.js';

export const positiveRate = (what: string) => z.number().positive().max(1e3).describe(what);
const decay = (what: string) => z.number().min(0).lt(1).describe(what);

const epsilonOfRoot = z.number().positive().max(1).describe('Added to the root of the second moment (Kingma & Ba 2015).').default(1e-7);
/** The fields that Adam shares with the optimizers derived from it. */
const momentFields = {
  learningRate: positiveRate('Step size.').default(0.001),
  beta1: decay('Decay of the first moment.').default(0.9),
  beta2: decay('Decay of the second moment.').default(0.999),
  epsilon: epsilonOfRoot,
};
const weightDecayFields = {
  weightDecay: z
    .number()
    .min(0)
    .max(1)
    .describe('Before each update, w becomes w − w · weightDecay · rate (Loshchilov & Hutter 2019).')
    .optional(),
  weightDecayExclude: z
    .array(z.string().min(1).max(300))
    .max(100)
    .describe('Variables that do not decay: patterns such as */bias or batch_normalization*.')
    .optional(),
};

const averageFields = {
  emaMomentum: z
    .number()
    .min(0)
    .lt(1)
    .describe(
      'Keeps a moving average of the weights: m · average + (1 − m) · w after each round; the run ends with the averages. Mode sync.',
    )
    .optional(),
  emaOverwriteRounds: z
    .int()
    .min(1)
    .max(LIMITS.rounds)
    .describe('With emaMomentum: each time after so many rounds the weights become their averages.')
    .optional(),
};

export const optimizerSchema = z.discriminatedUnion('name', [
  z.strictObject({
    name: z.literal('sgd'),
    learningRate: positiveRate('Step size.').default(0.1),
    ...weightDecayFields,
    ...averageFields,
  }),
  z.strictObject({
    name: z.literal('momentum'),
    learningRate: positiveRate('Step size.').default(0.05),
    momentum: decay('Velocity kept per round.').default(0.9),
    nesterov: z.boolean().describe('Look ahead along the velocity (Sutskever et al. 2013).').default(false),
    ...weightDecayFields,
    ...averageFields,
  }),
  z.strictObject({
    name: z.literal('adam'),
    ...momentFields,
    ...weightDecayFields,
    ...averageFields,
  }),
  z.strictObject({
    name: z.literal('rmsprop'),
    learningRate: positiveRate('Step size.').default(0.001),
    rho: decay('Decay of the mean of the squared gradients.').default(0.9),
    momentum: decay('Velocity kept per round.').default(0),
    epsilon: z.number().positive().max(1).describe('Added to the mean of the squared gradients, below the root.').default(1e-7),
    centered: z.boolean().describe('Divide by the variance of the gradients instead (Graves 2013).').default(false),
    ...weightDecayFields,
    ...averageFields,
  }),
  z.strictObject({
    name: z.literal('adamw'),
    ...momentFields,
    weightDecay: weightDecayFields.weightDecay.unwrap().default(0.004),
    weightDecayExclude: weightDecayFields.weightDecayExclude,
    ...averageFields,
  }),
  z.strictObject({
    name: z.literal('amsgrad'),
    ...momentFields,
    ...weightDecayFields,
    ...averageFields,
  }),
  z.strictObject({
    name: z.literal('adamax'),
    ...momentFields,
    ...weightDecayFields,
    ...averageFields,
  }),
  z.strictObject({
    name: z.literal('nadam'),
    ...momentFields,
    ...weightDecayFields,
    ...averageFields,
  }),
  z.strictObject({
    name: z.literal('adagrad'),
    learningRate: positiveRate('Step size.').default(0.001),
    initialAccumulator: z.number().min(0).max(1e6).describe('What the sum of the squared gradients begins with.').default(0.1),
    epsilon: z.number().positive().max(1).describe('Added to the sum of the squared gradients, below the root.').default(1e-7),
    ...weightDecayFields,
    ...averageFields,
  }),
  z.strictObject({
    name: z.literal('adadelta'),
    learningRate: positiveRate('Step size; 1 is that of the paper (Zeiler 2012).').default(0.001),
    rho: decay('Decay of the mean of the squared gradients.').default(0.95),
    epsilon: z.number().positive().max(1).describe('Added to both means, below the roots.').default(1e-7),
    ...weightDecayFields,
    ...averageFields,
  }),
  z.strictObject({
    name: z.literal('ftrl'),
    learningRate: positiveRate('Step size.').default(0.001),
    initialAccumulator: z.number().min(0).max(1e6).describe('What the sum of the squared gradients begins with.').default(0.1),
    l1: z.number().min(0).max(1e6).describe('Strength of the L1 regularisation: makes weights exactly zero.').default(0),
    l2: z.number().min(0).max(1e6).describe('Strength of the L2 regularisation.').default(0),
    l2Shrinkage: z.number().min(0).max(1e6).describe('L2 penalty on the gradient alone.').default(0),
    beta: z.number().min(0).max(1e6).describe('Beta of the paper (McMahan et al. 2013).').default(0),
    ...averageFields,
  }),
  z.strictObject({
    name: z.literal('lion'),
    learningRate: positiveRate('Step size.').default(0.001),
    beta1: decay('Share of the mean in the direction of a step.').default(0.9),
    beta2: decay('Decay of the mean of the gradients.').default(0.99),
    ...weightDecayFields,
    ...averageFields,
  }),
  z.strictObject({
    name: z.literal('lamb'),
    ...momentFields,
    ...weightDecayFields,
    ...averageFields,
  }),
  z.strictObject({
    name: z.literal('lars'),
    learningRate: positiveRate('Step size, before the trust ratio of each variable.').default(0.1),
    momentum: decay('Velocity kept per round.').default(0.9),
    trustCoefficient: z.number().positive().max(1e3).describe('Factor of the trust ratio (You et al. 2017).').default(0.001),
    epsilon: z.number().positive().max(1).describe('Added to the norm of the gradient.').default(1e-7),
    weightDecay: z
      .number()
      .min(0)
      .max(1)
      .describe('Part of the weights that is added to their gradient, inside of the trust ratio (You et al. 2017).')
      .default(0.0001),
    weightDecayExclude: weightDecayFields.weightDecayExclude.describe(
      'Variables without weight decay and without trust ratio: patterns such as */bias or batch_normalization*.',
    ),
    ...averageFields,
  }),
]);
export type OptimizerSpec = z.output<typeof optimizerSchema>;
export type OptimizerSpecInput = z.input<typeof optimizerSchema>;

/** Optimizers whose step depends on the norms of whole variables. */
export const isLayerwise = ({ name }: Pick<OptimizerSpec, 'name'>): boolean => name === 'lamb' || name === 'lars';
