/** Options that nothing in the run uses. They are refused: who gives one expects it to do something. A default that is written down is taken. */
import { CROSSENTROPIES, type LossName, type LossOptions, type OutputLoss } from './losses.js';
import type { MeasuredName, MetricOptionsSpec } from './metric-names.js';

interface Given {
  readonly strategy: { readonly kind: string; readonly mode: string; readonly stalenessBound?: number };
  readonly loss?: LossName | undefined;
  readonly losses?: Readonly<Record<string, OutputLoss>> | undefined;
  readonly lossFromLogits?: boolean | undefined;
  readonly metrics?: readonly MeasuredName[] | undefined;
  readonly metricOptions?: MetricOptionsSpec | undefined;
  readonly optimizer: {
    readonly name: string;
    readonly learningRate: number;
    readonly weightDecay?: number | undefined;
    readonly weightDecayExclude?: readonly string[] | undefined;
  };
  readonly reduceLROnPlateau?: { readonly minLearningRate: number } | undefined;
}

/** Which metrics read an option. `weighted` is of all of them. */
const METRICS_OF_OPTION: Readonly<Record<Exclude<keyof MetricOptionsSpec, 'weighted'>, readonly MeasuredName[]>> = {
  topK: ['topKCategoricalAccuracy'],
  threshold: ['binaryAccuracy', 'precision', 'recall', 'f1Score'],
  average: ['precision', 'recall', 'f1Score'],
  aucThresholds: ['auc'],
  aucCurve: ['auc'],
};
export const DEFAULT_STALENESS_BOUND = 4;

/** Options of losses that no output reads: known only with the outputs of the model, and asked of new runs alone. */
export function unusedAtOutputs(
  { losses, lossOptions }: Pick<Given, 'losses'> & { readonly lossOptions?: LossOptions | undefined },
  outputs: readonly { readonly name: string }[],
): [field: string, message: string][] {
  const given = Object.entries(lossOptions ?? {}).find(([, value]) => value !== undefined);
  if (!given || !losses || !outputs.every(({ name }) => Object.hasOwn(losses, name))) return [];
  const [option, value] = given;
  const nameOf = (of: OutputLoss): LossName => (typeof of === 'string' ? of : of.name);
  const readers: readonly LossName[] = option === 'delta' ? ['huber'] : CROSSENTROPIES;
  const reader = outputs.find(({ name }) => readers.includes(nameOf(losses[name]!)))?.name;
  const advice =
    reader === undefined ? 'leave it out' : `give it there, as ${reader}: {name: ${nameOf(losses[reader]!)}, ${option}: ${value}}`;
  return [[`lossOptions.${option}`, `is of loss, and each output has its own in losses: ${advice}`]];
}

/** Options of the spec without what they belong to. */
export function unusedOptions(spec: Given): [field: string, message: string][] {
  return [...unusedOfMetrics(spec), ...unusedOfLoss(spec), ...unusedOfDecay(spec), ...unusedOfPlateau(spec), ...unusedOfMode(spec)];
}

/** Metrics that a run measures where it names none have no options but `weighted`. */
function unusedOfMetrics({ metrics = [], metricOptions }: Given): [string, string][] {
  return Object.entries(METRICS_OF_OPTION).flatMap(([option, users]): [string, string][] =>
    metricOptions?.[option as keyof MetricOptionsSpec] === undefined || users.some((name) => metrics.includes(name))
      ? []
      : [[`metricOptions.${option}`, `is not used: add ${listed(users)} to metrics, or leave it out`]],
  );
}

function unusedOfLoss({ loss, losses, lossFromLogits }: Given): [string, string][] {
  // Without `loss` the losses of outputs follow from the data, and may be crossentropies.
  if (lossFromLogits === undefined || loss === undefined) return [];
  const all = [loss, ...Object.values(losses ?? {}).map((of) => (typeof of === 'string' ? of : of.name))];
  if (all.some((name) => CROSSENTROPIES.includes(name))) return [];
  return [['lossFromLogits', `belongs to ${CROSSENTROPIES.join(', ')}, and the loss is ${loss}: leave it out`]];
}

/** Variables that are left out of lars have no trust ratio either. */
function unusedOfDecay({ optimizer: { name, weightDecay = 0, weightDecayExclude = [] } }: Given): [string, string][] {
  if (weightDecayExclude.length === 0 || weightDecay > 0 || name === 'lars') return [];
  return [['optimizer.weightDecayExclude', 'is not used: no weight decays; set weightDecay above 0, or leave it out']];
}

function unusedOfPlateau({ optimizer: { learningRate }, reduceLROnPlateau: plateau }: Given): [string, string][] {
  if (!plateau || plateau.minLearningRate < learningRate) return [];
  return [
    [
      'reduceLROnPlateau.minLearningRate',
      `must be below the learning rate of the optimizer (${learningRate}), which could never fall: lower it`,
    ],
  ];
}

function unusedOfMode({ strategy: { mode, stalenessBound = DEFAULT_STALENESS_BOUND } }: Given): [string, string][] {
  if (mode === 'ssp' || stalenessBound === DEFAULT_STALENESS_BOUND) return [];
  return [['strategy.stalenessBound', `needs mode ssp; the mode is ${mode}: set the mode to ssp, or leave it out`]];
}

/** With "or" before the last. */
const listed = (names: readonly string[]): string =>
  names.length === 1 ? names[0]! : `${names.slice(0, -1).join(', ')} or ${names.at(-1)!}`;
