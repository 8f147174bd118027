/**
 * Inputs and outputs of a model against the row format of a run: which field goes into which input, which target belongs to which output, and what
 * loss is minimised there. Fields and ends that bear the same name belong together; the others follow the order. All that does not go
 * together is refused here, before a byte moves.
 */
import {
  CROSSENTROPIES,
  defaultLoss,
  fieldLength,
  fieldsOfEnds,
  lossOfOutput,
  type LossName,
  type LossOptions,
  type ModelEnd,
  type OutputLoss,
  type RowFormat,
  type RunSpec,
  type TargetField,
} from '@paceline/spec';
import type * as tfl from '@tensorflow/tfjs-layers';
import { createMetricPlan, MetricUnfitError, type MetricPlan } from '@paceline/learning';
import { ModelError } from '../errors/model-error.js';
import type { Edge, PlannedModel } from '../topology/planned-model.js';

/** The part of a run spec that decides what is minimised and measured. */
export type LossPart = Partial<Pick<RunSpec, 'lossOptions'>> &
  Pick<RunSpec, 'loss' | 'losses' | 'lossWeights' | 'lossFromLogits' | 'metrics'> &
  Partial<Pick<RunSpec, 'metricOptions'>>;

export interface BoundInput extends ModelEnd {
  /** Number of the field in the row format. */
  readonly field: number;
  /** Floats of one example. */
  readonly length: number;
}

export interface BoundOutput extends ModelEnd {
  /** Among the outputs of the model. */
  readonly index: number;
  /** Target of the format, and its number there. */
  readonly target: TargetField;
  readonly field: number;
  readonly loss: LossName;
  readonly lossOptions: LossOptions;
  /** Crossentropies: the output holds logits, not probabilities. */
  readonly fromLogits: boolean;
  /** Factor of the loss among those of the other outputs. */
  readonly weight: number;
  /** Size of the last axis. The loss is the mean over all that lies in front of it. */
  readonly width: number;
  readonly positions: number;
}

export interface ModelEnds {
  readonly inputs: readonly BoundInput[];
  readonly outputs: readonly BoundOutput[];
  readonly metrics: MetricPlan;
}

const size = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);
const shown = (shape: readonly number[]): string => `[${shape.join(', ')}]`;
const counted = (n: number, what: string): string => `${n} ${what}${n === 1 ? '' : 's'}`;

export const exampleShape = (tensor: tfl.SymbolicTensor): number[] => tensor.shape.slice(1) as number[];

/** Names are those of the layers, or nested models, that the ends belong to. */
export function endsOfModel(
  { inputs, outputs }: tfl.LayersModel,
  { endNames }: Pick<PlannedModel, 'endNames'>,
): { inputs: ModelEnd[]; outputs: ModelEnd[] } {
  const endOf = (names: readonly string[] | undefined) => (tensor: tfl.SymbolicTensor, i: number) => ({
    name: names?.[i] ?? tensor.sourceLayer.name,
    shape: exampleShape(tensor),
  });
  return { inputs: inputs.map(endOf(endNames?.inputs)), outputs: outputs.map(endOf(endNames?.outputs)) };
}

/**
 * @param root the field of the spec where the model stands
 * @throws ModelError
 */
export function bindEnds(model: tfl.LayersModel, plan: PlannedModel, root: string, spec: LossPart, format: RowFormat): ModelEnds {
  const ends = endsOfModel(model, plan);
  refuseOtherNames(spec, ends.outputs);
  const inputFields = matched(ends.inputs, format.inputs, 'input', root);
  const inputs = ends.inputs.map((end, i) => boundInput(end, inputFields[i]!, model.inputs[i]!.dtype, root, format));
  const targetFields = matched(ends.outputs, format.targets, 'output', root);
  const activations = outputActivations(plan);
  const outputs = ends.outputs.map((end, i) => boundOutput(end, i, targetFields[i]!, activations[i], root, spec, format));
  return { inputs, outputs, metrics: planned(spec, format, ends.outputs) };
}

function planned(spec: LossPart, format: RowFormat, outputs: readonly ModelEnd[]): MetricPlan {
  try {
    return createMetricPlan(spec, format, outputs);
  } catch (error) {
    if (!(error instanceof MetricUnfitError)) throw error;
    throw new ModelError('metrics', error.message, { cause: error });
  }
}

/** @throws ModelError when there are more of the one than of the other */
function matched(
  ends: readonly ModelEnd[],
  fields: readonly { readonly name: string }[],
  kind: 'input' | 'output',
  root: string,
): number[] {
  const what = kind === 'input' ? 'input' : 'target';
  if (ends.length !== fields.length)
    throw new ModelError(
      root,
      `the model has ${counted(ends.length, kind)} (${ends.map(({ name }) => name).join(', ')}), but the data has ${counted(fields.length, what)} (${fields.map(({ name }) => name).join(', ')})`,
    );
  const bound = fieldsOfEnds(ends, fields);
  const twice = bound.findIndex((field, i) => bound.indexOf(field) !== i);
  if (twice >= 0)
    throw new ModelError(
      root,
      `two ${kind}s of the model are called ${ends[twice]!.name} and would both take the ${what} of that name: put a layer of its own behind each`,
    );
  return bound;
}

function boundInput(end: ModelEnd, field: number, dtype: string, root: string, { inputs }: RowFormat): BoundInput {
  if (dtype !== 'float32') throw new ModelError(root, `the input ${end.name} has dtype ${dtype}; the data comes as float32`);
  const { name, shape } = inputs[field]!;
  if (size(end.shape) !== size(shape))
    throw new ModelError(root, `the model's input ${end.name} is ${shown(end.shape)}, but ${name} of the data is ${shown(shape)}`);
  return { name: end.name, shape: end.shape, field, length: size(shape) };
}

function boundOutput(
  end: ModelEnd,
  index: number,
  field: number,
  activation: string | undefined,
  root: string,
  spec: LossPart,
  { targets }: RowFormat,
): BoundOutput {
  const target = targets[field]!;
  const width = end.shape.at(-1) ?? 1;
  const isOwn = spec.losses !== undefined && Object.hasOwn(spec.losses, end.name);
  const given = lossOfOutput(spec, end.name) ?? defaultLoss(target, width);
  const { name: loss, fromLogits, ...lossOptions } = namedLoss(given, isOwn ? undefined : spec.lossOptions);
  const output = {
    name: end.name,
    shape: end.shape,
    index,
    target,
    field,
    loss,
    lossOptions,
    fromLogits: fromLogits ?? spec.lossFromLogits ?? (activation !== 'softmax' && activation !== 'sigmoid'),
    weight: spec.lossWeights?.[end.name] ?? 1,
    width,
    positions: size(end.shape) / width,
  };
  checkFit(output, root, isOwn ? `losses.${end.name}` : 'loss');
  checkOptions(output, isOwn ? `losses.${end.name}` : 'lossOptions');
  return output;
}

type NamedLoss = Exclude<OutputLoss, string>;
const namedLoss = (given: OutputLoss, options: LossOptions | undefined): NamedLoss =>
  typeof given === 'string' ? Object.assign({ name: given }, options) : given;

/** An option that its loss does not have. */
function checkOptions({ loss, lossOptions: { labelSmoothing, delta } }: Pick<BoundOutput, 'loss' | 'lossOptions'>, field: string): void {
  if (labelSmoothing !== undefined && !CROSSENTROPIES.includes(loss))
    throw new ModelError(`${field}.labelSmoothing`, `belongs to ${CROSSENTROPIES.join(', ')}, and the loss is ${loss}: leave it out`);
  if (delta !== undefined && loss !== 'huber')
    throw new ModelError(`${field}.delta`, `belongs to huber, and the loss is ${loss}: leave it out`);
}

/** Losses over the classes of a row: they say nothing of a single output. */
const CATEGORICAL: readonly LossName[] = ['sparseCategoricalCrossentropy', 'categoricalCrossentropy', 'categoricalHinge'];
function checkFit({ name, shape, target, loss, width, positions }: BoundOutput, root: string, field: string): void {
  const isCategorical = CATEGORICAL.includes(loss);
  const refuse = (message: string): never => {
    throw new ModelError(root, message);
  };
  if (target.kind === 'values') {
    if (loss === 'sparseCategoricalCrossentropy')
      throw new ModelError(
        field,
        `${loss} takes classes, but the target ${target.name} holds values: use meanSquaredError, meanAbsoluteError, or binaryCrossentropy or categoricalCrossentropy for probabilities`,
      );
    if (size(shape) !== fieldLength(target))
      refuse(`the model's output ${name} is ${shown(shape)}, but the target ${target.name} is ${shown(target.shape)}`);
  } else {
    const { classes } = target;
    const isBinary = width === 1 && classes === 2 && !isCategorical;
    const wanted = [...target.shape, isBinary ? 1 : classes];
    if ((width !== classes && !isBinary) || positions !== fieldLength(target))
      refuse(
        `the model's output ${name} is ${shown(shape)}, but ${target.name} has ${classes} classes${target.shape.length > 0 ? ` at each of ${shown(target.shape)}` : ''}: the last layer must deliver ${shown(wanted)}${classes === 2 && isCategorical ? ', or [1] with the loss binaryCrossentropy' : ''}`,
      );
  }
  if (isCategorical && width < 2) throw new ModelError(field, `${loss} needs two outputs or more: use binaryCrossentropy for one`);
  if (loss === 'cosineSimilarity' && width < 2)
    throw new ModelError(field, `${loss} compares directions, and one output has none: use meanSquaredError or meanAbsoluteError`);
}

function refuseOtherNames({ losses, lossWeights }: LossPart, outputs: readonly ModelEnd[]): void {
  for (const [field, byName] of Object.entries({ losses, lossWeights })) {
    const unknown = Object.keys(byName ?? {}).find((name) => !outputs.some((output) => output.name === name));
    if (unknown !== undefined)
      throw new ModelError(`${field}.${unknown}`, `the model has no such output; it has ${outputs.map(({ name }) => name).join(', ')}`);
  }
}

/** Layers that only move values about. */
const MOVING = new Set(['Reshape', 'Flatten', 'Permute']);

/** For each output of the model the activation that it has gone through last, in lower case; undefined for none that is known. */
export function outputActivations({ sequential, layers, outputs }: PlannedModel): (string | undefined)[] {
  if (sequential) return [activationOf(layers.findLast(({ className }) => !MOVING.has(className)))];
  const byName = new Map(layers.map((layer) => [layer.name, layer]));
  return outputs.map(([name, node]) => {
    let [layer, call] = [byName.get(name), node];
    while (layer && MOVING.has(layer.className)) {
      const [before]: readonly Edge[] = layer.calls[call] ?? [];
      [layer, call] = before ? [byName.get(before[0]), before[1]] : [undefined, 0];
    }
    return activationOf(layer);
  });
}

/** The activation of a layer, or of the layer that it wraps. */
function activationOf(
  layer: { readonly className?: string; readonly config?: Readonly<Record<string, unknown>> } | undefined,
): string | undefined {
  if (layer?.className === 'Softmax') return 'softmax';
  const { activation, layer: inner } = layer?.config ?? {};
  return typeof activation === 'string' ? activation.toLowerCase() : inner ? activationOf(inner) : undefined;
}
