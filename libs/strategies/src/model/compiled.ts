/**
 * From a compiled model of tf.js to a training plan: its topology, the loss of each output, what is frozen, and the form of its examples. What is
 * not trained here is refused with the name that the user gave it.
 */
import { planModel, ModelError } from '@paceline/engine/planning';
import { LOSSES, lossName, modelSchema, plainIssues, type LossName, type RowFormat, type TargetField } from '@paceline/spec';
import * as tfc from '@tensorflow/tfjs-core';
import { UnsupportedError } from '../errors.js';
import type { PlanSpec } from '../exchange.js';
import { namedWeights, stateWeights, type TfModel, type UserModel } from './tf-model.js';

export interface OutputLoss {
  readonly name: LossName;
  readonly fromLogits: boolean;
}

export interface Compiled {
  readonly spec: PlanSpec;
  readonly format: RowFormat;
  readonly losses: readonly OutputLoss[];
  /** Losses that are functions of tf.losses give one number for a batch: tf.js cannot weight their examples. */
  readonly hasLossOfBatch: boolean;
  /** Variables that keep their values, by path. */
  readonly frozen: readonly string[];
}

/** Functions of tf.losses that are means over the batch of a loss that the engine has. */
const LOSS_FUNCTIONS: ReadonlyMap<unknown, OutputLoss> = new Map<unknown, OutputLoss>([
  [tfc.losses.meanSquaredError, { name: 'meanSquaredError', fromLogits: false }],
  [tfc.losses.absoluteDifference, { name: 'meanAbsoluteError', fromLogits: false }],
  [tfc.losses.huberLoss, { name: 'huber', fromLogits: false }],
  [tfc.losses.softmaxCrossEntropy, { name: 'categoricalCrossentropy', fromLogits: true }],
  [tfc.losses.sigmoidCrossEntropy, { name: 'binaryCrossentropy', fromLogits: true }],
]);

/** What tf.js trains in the next step: what it has collected when the model was compiled, less what has been frozen since. */
export const trainedNow = (model: TfModel): readonly boolean[] => (model.collectedTrainableWeights ?? []).map(({ trainable }) => trainable);

/** Paths of the variables that an optimizer could change, and does not. */
export function frozenIn(user: UserModel, model: TfModel): string[] {
  const trained = new Set((model.collectedTrainableWeights ?? []).filter(({ trainable }) => trainable));
  const state = stateWeights(user.layers);
  return namedWeights(user.layers)
    .filter(({ weight }) => !state.has(weight) && !trained.has(weight))
    .map(({ path }) => path);
}

/**
 * @param mayThaw what is frozen may be trained later, so its gradient is computed
 * @throws UnsupportedError
 */
export function readCompiled(user: UserModel, model: TfModel, seed: number, mayThaw = false): Compiled {
  const losses = model.outputNames.map((name, i) => lossOf(model, name, i));
  const topology = topologyOf(user);
  const frozen = frozenIn(user, model);
  const spec: PlanSpec = {
    model: { topology },
    losses: Object.fromEntries(losses.map((loss, i) => [model.outputNames[i]!, loss])),
    freeze: mayThaw ? [] : skippable(user, frozen),
    seed,
  };
  return {
    spec,
    format: formatOf(model, losses),
    losses,
    hasLossOfBatch: model.lossFunctions.some((loss) => LOSS_FUNCTIONS.has(loss)),
    frozen,
  };
}

function lossOf({ loss, lossFunctions }: TfModel, output: string, index: number): OutputLoss {
  const given: unknown = Array.isArray(loss)
    ? loss[index]
    : typeof loss === 'object' && loss !== null
      ? (loss as Record<string, unknown>)[output]
      : loss;
  const known = LOSS_FUNCTIONS.get(lossFunctions[index]);
  if (known) return known;
  if (given === undefined || given === null)
    throw new UnsupportedError(`output ${output}`, 'has no loss: compile the model with a loss for every output');
  if (typeof given === 'function')
    throw new UnsupportedError(
      `loss ${given.name === '' ? 'function' : given.name}`,
      'a loss of your own cannot run in a compute thread: name a loss of tf.js, such as "meanSquaredError", or use tf.losses.softmaxCrossEntropy, sigmoidCrossEntropy, meanSquaredError, absoluteDifference or huberLoss',
    );
  const name = lossName(given) as LossName;
  if (!LOSSES.includes(name)) throw new UnsupportedError(`loss ${String(given)}`, 'the engine does not have it');
  return { name, fromLogits: false };
}

/** Whether the targets of an output are numbers of classes. */
export const hasClassTargets = (model: TfModel, output: number): boolean =>
  model.lossFunctions !== undefined && lossOf(model, model.outputNames[output]!, output).name === 'sparseCategoricalCrossentropy';

/** Without what says whether layers are trained: that follows from the weights that tf.js has collected. */
function topologyOf(user: UserModel): object {
  let json: string;
  try {
    json = JSON.stringify(user.toJSON(null, false), (key, value: unknown) => (key === 'trainable' ? undefined : value));
  } catch (cause) {
    throw new UnsupportedError('model', `its topology cannot be written as JSON: ${(cause as Error).message}`, { cause });
  }
  const topology = JSON.parse(json) as object;
  const parsed = modelSchema.safeParse({ topology });
  if (!parsed.success) {
    const [issue] = plainIssues(modelSchema, { topology }, parsed.error.issues);
    throw unsupportedPart(topology, issue?.path ?? 'model', issue?.message ?? 'is not supported');
  }
  try {
    planModel({ model: parsed.data }, undefined);
  } catch (error) {
    if (error instanceof ModelError) throw unsupportedPart(topology, error.path, error.message);
    throw error;
  }
  return topology;
}

interface Part {
  readonly class_name?: string;
  readonly config?: { readonly name?: string; readonly layers?: readonly Part[] };
}

/** An error at a path of the topology, by the name of the layer: `model.topology.config.layers.2.config.units`. */
export function unsupportedPart(topology: object, path: string, message: string): UnsupportedError {
  const words = path.split('.');
  let [part, at] = [topology as Part | undefined, words.indexOf('layers')];
  let last = -1;
  while (part && at >= 0) {
    part = part.config?.layers?.[Number(words[at + 1])];
    last = at + 1;
    at = words.indexOf('layers', last);
  }
  if (last < 0 || !part) return new UnsupportedError(path.replace(/^model\.topology\./, 'model.'), message);
  const rest = words.slice(last + 1).filter((word) => word !== 'config');
  const name = part.config?.name ?? words[last]!;
  return new UnsupportedError(`layer ${name} (${part.class_name ?? 'unknown'})${rest.length > 0 ? `, ${rest.join('.')}` : ''}`, message);
}

/**
 * Frozen variables of which the engine needs no gradient. Of batch normalisation it computes one anyway: as in tf.js, a frozen one normalises by its
 * batch. So it does of regularised layers, whose penalty stays part of the loss.
 */
function skippable(user: UserModel, frozen: readonly string[]): string[] {
  const kept = new Set<string>();
  const visit = (layers: UserModel['layers'], prefix: string): void => {
    for (const layer of layers) {
      const inner = (layer as { layers?: UserModel['layers'] }).layers;
      if (Array.isArray(inner)) visit(inner, `${prefix}${layer.name}/`);
      const config = JSON.stringify(layer.getConfig());
      if (/BatchNormalization/.test(layer.getClassName() + config) || /[rR]egularizer":\{/.test(config))
        kept.add(`${prefix}${layer.name}/`);
    }
  };
  visit(user.layers, '');
  return frozen.filter((path) => !kept.has(path.slice(0, path.lastIndexOf('/') + 1)));
}

function formatOf(model: TfModel, losses: readonly OutputLoss[]): RowFormat {
  return {
    inputs: model.inputs.map((tensor, i) => ({ name: `#${i}`, shape: exampleShape(tensor.shape, `input ${model.inputNames[i]!}`) })),
    targets: model.outputs.map((tensor, i): TargetField => {
      const shape = exampleShape(tensor.shape, `output ${model.outputNames[i]!}`);
      if (losses[i]!.name !== 'sparseCategoricalCrossentropy') return { name: `#${i}`, kind: 'values', shape };
      return { name: `#${i}`, kind: 'classes', shape: shape.slice(0, -1), classes: shape.at(-1)! };
    }),
    isWeighted: true,
  };
}

function exampleShape(shape: readonly (number | null)[], what: string): number[] {
  return shape.slice(1).map((size) => {
    if (size === null)
      throw new UnsupportedError(
        what,
        `its shape is [${shape.map(String).join(', ')}]: every dimension but that of the batch must be known`,
      );
    return size;
  });
}
