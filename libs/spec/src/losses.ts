/** Names of losses and metrics, with the other names that Keras and tf.js have for them, and which metrics a run measures. */
import { z } from 'zod';
import type { RowFormat, TargetField } from './datasets/row-format.js';
import { measuredName, type MeasuredName } from './metric-names.js';

export const LOSSES = [
  'sparseCategoricalCrossentropy',
  'categoricalCrossentropy',
  'binaryCrossentropy',
  'meanSquaredError',
  'meanAbsoluteError',
  'meanAbsolutePercentageError',
  'meanSquaredLogarithmicError',
  'huber',
  'logCosh',
  'hinge',
  'squaredHinge',
  'categoricalHinge',
  'poisson',
  'cosineSimilarity',
  'kullbackLeiblerDivergence',
] as const;
export type LossName = (typeof LOSSES)[number];

/** Losses of classes, from logits or from probabilities. */
export const CROSSENTROPIES: readonly LossName[] = ['sparseCategoricalCrossentropy', 'categoricalCrossentropy', 'binaryCrossentropy'];
export const HINGES: readonly LossName[] = ['hinge', 'squaredHinge', 'categoricalHinge'];
/** Losses whose targets are classes or shares of them, also where they come as values. */
export const CLASSIFYING: readonly LossName[] = [...CROSSENTROPIES, ...HINGES, 'kullbackLeiblerDivergence'];

const lossOptions = {
  labelSmoothing: z
    .number()
    .min(0)
    .lt(1)
    .describe('Crossentropies: the share of a target that is spread evenly over its classes, or over yes and no.')
    .optional(),
  delta: z.number().positive().max(1e6).describe('huber: the error from which on it counts linearly; 1 where left out.').optional(),
};
export const lossOptionsSchema = z.strictObject(lossOptions);
export type LossOptions = z.output<typeof lossOptionsSchema>;

/** The loss of one output: a name, or an object with its options. */
export const outputLossSchema = z.union([
  z.enum(LOSSES),
  z.strictObject({
    name: z.enum(LOSSES),
    ...lossOptions,
    fromLogits: z.boolean().describe('As lossFromLogits, of this output.').optional(),
  }),
]);
export type OutputLoss = z.output<typeof outputLossSchema>;

/** A name as it is compared: `mean_squared_error`, `MeanSquaredError` and `meanSquaredError` are one. */
const plain = (name: string): string => name.replace(/[_-]/g, '').toLowerCase();
const named = <T extends string>(names: readonly T[], short: Readonly<Record<string, T>>): ReadonlyMap<string, T> =>
  new Map([...names.map((name): [string, T] => [plain(name), name]), ...Object.entries(short)]);

const LOSSES_BY_NAME = named(LOSSES, {
  bce: 'binaryCrossentropy',
  mse: 'meanSquaredError',
  mae: 'meanAbsoluteError',
  mape: 'meanAbsolutePercentageError',
  msle: 'meanSquaredLogarithmicError',
  huberloss: 'huber',
  cosine: 'cosineSimilarity',
  cosineproximity: 'cosineSimilarity',
  kld: 'kullbackLeiblerDivergence',
  kldivergence: 'kullbackLeiblerDivergence',
});
/** Our name of a loss, by any name that Keras or tf.js has for it; what is unknown stays as it is, for the schema to refuse. */
export const lossName = <T>(name: T): T | LossName => (typeof name === 'string' ? (LOSSES_BY_NAME.get(plain(name)) ?? name) : name);
/** The canonical name of a metric; unknown names stay as they are. */
export const metricName = <T>(name: T): T | MeasuredName => (typeof name === 'string' ? (measuredName(name) ?? name) : name);

type Given = Readonly<Record<string, unknown>>;
const isGiven = (value: unknown): value is Given => value !== null && typeof value === 'object' && !Array.isArray(value);
const OPTION_NAMES: Readonly<Record<string, string>> = { label_smoothing: 'labelSmoothing', from_logits: 'fromLogits' };

/** A name, or an object with a name, in our words. */
function outputLoss(given: unknown): unknown {
  if (!isGiven(given)) return lossName(given);
  return Object.fromEntries(
    Object.entries(given).map(([field, value]) => [OPTION_NAMES[field] ?? field, field === 'name' ? lossName(value) : value]),
  );
}

/** `loss: {name: huber, delta: 2}` is `loss: huber` with `lossOptions: {delta: 2}`; an object without a name says the losses of outputs. */
function ownLosses({ loss, losses, lossOptions, lossFromLogits }: Given): Record<string, unknown> {
  const own: Record<string, unknown> = {};
  if (isGiven(losses)) own['losses'] = byOutput(losses);
  if (!isGiven(loss)) return loss === undefined ? own : Object.assign(own, { loss: lossName(loss) });
  const given = outputLoss(loss) as Given;
  const { name, fromLogits, ...options } = given;
  if (name === undefined) {
    // Beside `losses` it stays as it is, for the schema to refuse.
    if (losses === undefined) Object.assign(own, { losses: byOutput(loss), loss: undefined });
    return own;
  }
  own['loss'] = name;
  if (fromLogits !== undefined && lossFromLogits === undefined) own['lossFromLogits'] = fromLogits;
  if (Object.keys(options).length > 0) own['lossOptions'] = Object.assign({}, options, isGiven(lossOptions) && lossOptions);
  return own;
}

const byOutput = (losses: Given): Given => Object.fromEntries(Object.entries(losses).map(([output, of]) => [output, outputLoss(of)]));

/** A spec with our names of its losses and metrics. */
export function inputWithOwnNames(input: unknown): unknown {
  if (!isGiven(input)) return input;
  const own = ownLosses(input);
  const { metrics } = input;
  if (Array.isArray(metrics)) own['metrics'] = [...new Set(metrics.map((name: unknown) => metricName(name)))];
  const output = Object.assign({}, input, own) as Record<string, unknown>;
  if (output['loss'] === undefined) delete output['loss'];
  return output;
}

const MLP_IMAGE_MAX = 1024;
const CNN_SIDE_MIN = 10;

/** The model of the zoo where the spec names none: one image for which dense layers would be large takes convolutions. */
export function defaultModel({ inputs }: Pick<RowFormat, 'inputs'>): 'mlp' | 'cnn' {
  const [height = 0, width = 0, channels = 0, ...others] = inputs.length === 1 ? inputs[0]!.shape : [];
  const isImage = others.length === 0 && (channels === 1 || channels === 3) && Math.min(height, width) >= CNN_SIDE_MIN;
  return isImage && height * width * channels > MLP_IMAGE_MAX ? 'cnn' : 'mlp';
}

/** The loss of an output where the spec names none. @param width size of the last axis of the output */
export function defaultLoss({ kind }: Pick<TargetField, 'kind'>, width: number): LossName {
  if (kind === 'values') return 'meanSquaredError';
  return width === 1 ? 'binaryCrossentropy' : 'sparseCategoricalCrossentropy';
}

/** The loss that the spec names for an output; undefined if it follows from the target. */
export function lossOfOutput(
  { loss, losses }: { readonly loss?: LossName | undefined; readonly losses?: Readonly<Record<string, OutputLoss>> | undefined },
  output: string,
): OutputLoss | undefined {
  return losses && Object.hasOwn(losses, output) ? losses[output] : loss;
}

/** The metrics of a run: those that its spec names, else those that fit its targets. */
export function measuredOf(
  { metrics }: { readonly metrics?: readonly MeasuredName[] | undefined },
  { targets }: RowFormat,
): MeasuredName[] {
  if (metrics) return [...metrics];
  return targets.some(({ kind }) => kind === 'classes') ? ['accuracy'] : ['meanAbsoluteError'];
}
