/**
 * Builds a tf.js model from a planned topology, layer by layer, so that every failure is attributed to the field that
 * caused it, and an edge that leads nowhere or a cycle is refused where tf.js would loop for ever.
 *
 * tf.js makes weights inside `Layer.addWeight`, with random values at once. While a model is built that method is ours:
 * sizes are checked before anything is allocated, nothing random runs, and the initializer is remembered, because the
 * servers compute the initial values. Building is synchronous, so the replacements are never seen by anybody else.
 */
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { LIMITS, type VariableSpec } from '@paceline/spec';
import { checkActivations } from './check-activations.js';
import { checkParts } from './check-built-layers.js';
import { endMasks, keepMasksApart } from './own-masks.js';
import { leaveToTfjs } from '../layers/axes.js';
import { registerLayers } from '../layers/register.js';
import { messageOf, ModelError } from '../errors/model-error.js';
import type { Edge, PlannedLayer, PlannedModel } from '../topology/planned-model.js';

type Layer = tfl.layers.Layer;
type Initializer = tf.serialization.Serializable;

/** A weight as tf.js layers see it; without a tensor when only described. */
export interface BuiltWeight {
  /** Unique in the model: `layer/weight`. */
  readonly path: string;
  readonly shape: readonly number[];
  readonly trainable: boolean;
  readonly initializer: VariableSpec['initializer'];
  /** The tensor's holder; absent when the model was built to be described. */
  readonly variable: tfl.LayerVariable | undefined;
  /** What its regularizer adds to the loss; without a regularizer, or a tensor, there is none. */
  readonly penalty?: () => tf.Scalar;
}

export interface BuiltModel {
  readonly model: tfl.LayersModel;
  readonly plan: PlannedModel;
  /** Trainable weights first, then state, each in model order. */
  readonly weights: readonly BuiltWeight[];
  /** The planned layer with this name: the field of the spec for messages. */
  readonly pathOf: (layerName: string) => string;
}

interface AddedWeight {
  readonly name: string;
  readonly shape: readonly number[];
  readonly trainable: boolean;
  readonly initializer: VariableSpec['initializer'];
  readonly variable: tfl.LayerVariable | undefined;
  readonly penalty?: () => tf.Scalar;
}

interface LayerInternals {
  readonly biasInitializer?: Initializer;
  _trainableWeights: unknown[];
  _nonTrainableWeights: unknown[];
}

/**
 * @param allocate whether weights get tensors (zeros, on the present backend) or only shapes
 * @param asTfjs layers and masks do what they do in tf.js
 * @throws ModelError
 */
export function buildModel(plan: PlannedModel, root: string, allocate: boolean, asTfjs = false): BuiltModel {
  registerLayers();
  const paths = new Map(plan.layers.map((layer) => [layer.name, layer.path]));
  const pathOf = (name: string): string => paths.get(name) ?? root;
  const added = new Map<unknown, AddedWeight>();
  const budget = { elements: 0 };
  const methods = { addWeight: weightMaker(added, budget, allocate), warnOnIncompatibleInputShape: refuseOtherInput };
  const model = withLayerMethods(methods, () => (plan.sequential ? buildSequential(plan, root) : buildGraph(plan, root)));
  const operations = new Set(plan.layers.filter(({ isOperation }) => isOperation).map(({ name }) => name));
  endMasks(model.layers.filter(({ name }) => operations.has(name)));
  checkActivations(model, pathOf);
  if (asTfjs) leaveToTfjs(model.layers);
  else keepMasksApart(model.layers);
  return { model, plan, weights: collectWeights(model, added, root), pathOf };
}

/** The replacement of `Layer.addWeight`, with the signature of tf.js 4.22. */
function weightMaker(added: Map<unknown, AddedWeight>, budget: { elements: number }, allocate: boolean) {
  return function addWeight(
    this: Layer,
    name: string,
    shape: number[],
    dtype: tf.DataType | null | undefined,
    initializer: Initializer,
    regularizer?: { apply(value: tf.Tensor): tf.Scalar } | null,
    trainable = true,
  ): unknown {
    if (dtype != null && dtype !== 'float32') throw new Error(`weight ${name} has dtype ${dtype}; only float32 is trained`);
    let elements = 1;
    for (const dimension of shape) {
      if (!Number.isSafeInteger(dimension) || dimension < 1) throw new Error(`weight ${name} would have the shape [${shape.join(', ')}]`);
      elements *= dimension;
      if (budget.elements + elements > LIMITS.modelParameters) {
        throw new Error(
          `with weight ${name} of shape [${shape.join(', ')}] the model would have more than ${LIMITS.modelParameters} parameters`,
        );
      }
    }
    budget.elements += elements;
    const variable = allocate ? zeroVariable(shape, name, trainable) : undefined;
    const weight = variable ?? { name, originalName: name, shape, dtype: 'float32', trainable };
    const layer = this as unknown as LayerInternals;
    const made = { name, shape: [...shape], trainable, initializer: initializerSpec(initializer, layer), variable };
    added.set(weight, regularizer && variable ? Object.assign(made, { penalty: () => regularizer.apply(variable.read()) }) : made);
    (trainable ? layer._trainableWeights : layer._nonTrainableWeights).push(weight);
    return weight;
  };
}

/** The LSTM's unit forget bias is an anonymous class in tf.js: four gates, the second one starts at 1, the others as the layer says. */
function initializerSpec(initializer: Initializer, { biasInitializer }: LayerInternals): VariableSpec['initializer'] {
  const className = initializer.getClassName();
  if (className === 'CustomInit' && biasInitializer)
    return { className: 'UnitForgetBias', config: { initializer: initializerSpec(biasInitializer, {} as LayerInternals) } };
  // Through JSON, as it will travel: what is undefined here would be missing there.
  return { className, config: JSON.parse(JSON.stringify(initializer.getConfig())) as Record<string, unknown> };
}

function zeroVariable(shape: number[], name: string, trainable: boolean): tfl.LayerVariable {
  const zeros = tf.zeros(shape);
  const variable = new tfl.LayerVariable(zeros, 'float32', name, trainable);
  zeros.dispose();
  return variable;
}

/** tf.js only writes a warning to the console, with the person's own words in it. */
function refuseOtherInput(this: Layer, inputShape: readonly (number | null)[]): void {
  const said: unknown = this.batchInputShape;
  if (said === null || said === undefined) return;
  const fits =
    Array.isArray(said) &&
    said.length === inputShape.length &&
    said.every((d, i) => d === null || inputShape[i] === null || d === inputShape[i]);
  if (!fits) throw new Error(`the layer says batch_input_shape ${JSON.stringify(said)}, but gets ${JSON.stringify(inputShape)}`);
}

type LayerMethods = Record<'addWeight' | 'warnOnIncompatibleInputShape', (...args: never[]) => unknown>;

function withLayerMethods<T>(methods: LayerMethods, build: () => T): T {
  const prototype = tfl.layers.Layer.prototype as unknown as LayerMethods;
  const { addWeight, warnOnIncompatibleInputShape } = prototype;
  Object.assign(prototype, methods);
  try {
    return build();
  } finally {
    Object.assign(prototype, { addWeight, warnOnIncompatibleInputShape });
  }
}

/** Runs one step of the building; what tf.js throws becomes an error that names the layer's field. */
function attributed<T>(path: string, step: () => T): T {
  try {
    return step();
  } catch (cause) {
    if (cause instanceof ModelError) throw cause;
    throw new ModelError(path, messageOf(cause), { cause });
  }
}

function instantiate(planned: PlannedLayer): Layer {
  return attributed(planned.path, () => {
    const entry = tf.serialization.SerializationMap.getMap().classNameMap[planned.className];
    if (!entry) throw new Error(`layer ${planned.className} is unknown to this version of tf.js`);
    const [layerClass, fromConfig] = entry;
    const layer = fromConfig(layerClass, structuredClone(planned.config) as tf.serialization.ConfigDict) as Layer;
    checkParts(layer);
    return layer;
  });
}

function buildSequential(plan: PlannedModel, root: string): tfl.LayersModel {
  const model = tfl.sequential();
  for (const [index, planned] of plan.layers.entries()) {
    if (index === 0 && !Array.isArray(planned.config['batchInputShape']) && !Array.isArray(planned.config['inputShape'])) {
      throw new ModelError(`${planned.path}.config`, 'the first layer needs batch_input_shape, e.g. [null, 784]');
    }
    const layer = instantiate(planned);
    attributed(planned.path, () => model.add(layer));
  }
  if (model.outputs === undefined || model.outputs.length === 0)
    throw new ModelError(`${root}.config.layers`, 'the model has no layer that computes anything');
  return model;
}

function buildGraph(plan: PlannedModel, root: string): tfl.LayersModel {
  const built = new Map<string, Layer>();
  for (const planned of plan.layers) built.set(planned.name, instantiate(planned));
  /** Symbolic tensors per layer, one per call; an InputLayer has its one from the constructor. */
  const outputs = new Map<string, tfl.SymbolicTensor[]>();
  for (const planned of plan.layers)
    if (planned.className === 'InputLayer') outputs.set(planned.name, [built.get(planned.name)!.output as tfl.SymbolicTensor]);
  const tensorOf = ([name, node, tensor]: Edge): tfl.SymbolicTensor | undefined => (tensor === 0 ? outputs.get(name)?.[node] : undefined);

  let waiting = plan.layers.flatMap((planned) => planned.calls.map((edges) => ({ planned, edges })));
  while (waiting.length > 0) {
    const blocked: typeof waiting = [];
    for (const call of waiting) {
      const inputs = call.edges.map(tensorOf);
      // Calls of one layer happen in the order they are listed: their index is the node index.
      const isReady = inputs.every((input) => input !== undefined) && !blocked.some((other) => other.planned === call.planned);
      if (!isReady) {
        blocked.push(call);
        continue;
      }
      const result = attributed(call.planned.path, () =>
        built.get(call.planned.name)!.apply(inputs.length === 1 ? inputs[0]! : (inputs as tfl.SymbolicTensor[])),
      );
      outputs.set(call.planned.name, [...(outputs.get(call.planned.name) ?? []), result as tfl.SymbolicTensor]);
    }
    if (blocked.length === waiting.length) {
      throw new ModelError(
        `${blocked[0]!.planned.path}.inbound_nodes`,
        'names a layer, node or tensor that does not exist, or is part of a cycle',
      );
    }
    waiting = blocked;
  }
  for (const { edge, shape, path } of plan.joints ?? []) checkJoint(tensorOf(edge)!, shape, path);
  const ends = (edges: readonly Edge[], field: string): tfl.SymbolicTensor[] =>
    edges.map((edge) => tensorOf(edge) ?? refuse(`${root}.config.${field}`, `names ${JSON.stringify(edge)}, which does not exist`));
  const inputs = ends(plan.inputs, 'input_layers');
  const outs = ends(plan.outputs, 'output_layers');
  return attributed(root, () => tfl.model({ inputs, outputs: outs }));
}

/** A nested model that says the shape of its input is called on nothing else. */
function checkJoint({ shape: given }: tfl.SymbolicTensor, shape: readonly unknown[], path: string): void {
  const fits = shape.length === given.length && shape.every((d, i) => d === null || given[i] === null || d === given[i]);
  if (!fits) refuse(path, `the nested model takes ${JSON.stringify(shape)}, but is called on ${JSON.stringify(given)}`);
}

function refuse(path: string, message: string): never {
  throw new ModelError(path, message);
}

/** Paths do not come from tf.js's names: those depend on what else was built in the process. */
function collectWeights(model: tfl.LayersModel, added: ReadonlyMap<unknown, AddedWeight>, root: string): BuiltWeight[] {
  const trainable: BuiltWeight[] = [];
  const state: BuiltWeight[] = [];
  for (const layer of model.layers) {
    const taken = new Map<string, number>();
    for (const weight of [...layer.trainableWeights, ...layer.nonTrainableWeights]) {
      const record = added.get(weight);
      if (!record) throw new Error(`a weight of layer ${layer.name} was not made by the builder`);
      const count = taken.get(record.name) ?? 0;
      taken.set(record.name, count + 1);
      const path = `${layer.name}/${record.name}${count === 0 ? '' : `_${count}`}`;
      (record.trainable ? trainable : state).push({ ...record, path });
    }
  }
  if (trainable.length + state.length !== added.size)
    refuse(root, 'a layer with weights does not lead to the output; remove it or connect it');
  return [...trainable, ...state];
}
