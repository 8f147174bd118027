/**
 * Cuts a model into stages: consecutive groups of layers, so that one tensor alone goes from each stage to the next. Where it is cut follows from
 * the planned model alone, so every thread that holds a stage cuts in the same places.
 *
 * A place between two layers is a boundary, where
 *
 * | condition | because |
 * |---|---|
 * | one tensor goes over it, and no output of the model lies in front of it | a stage gives one tensor, and the last one computes the loss |
 * | no layer is called on both sides | its weights have one stage |
 * | no mask goes over it | tf.js passes masks on inside of a model alone |
 * | it is not between a convolution and the pooling that the engine computes with it | the bits would be others than those of the whole model |
 * | a weight that is trained lies in each stage | a stage without one would have nothing to train |
 *
 * Of the boundaries those are taken with which the slowest stage has the least to compute. What a stage has to compute is estimated as multiplications: of
 * each layer its weights times the positions of its output, and a few per element of its output.
 */
import type * as tfl from '@tensorflow/tfjs-layers';
import { ModelError } from '../errors/model-error.js';
import type { BuiltModel } from '../model/build-model.js';
import { givesMask } from '../model/check-layer-positions.js';
import { exampleShape } from '../model/ends.js';
import type { Edge, PlannedLayer, PlannedModel } from '../topology/planned-model.js';

export interface StageCuts {
  readonly stages: number;
  /** Names of the layers that end a stage, in their order: one fewer than stages. Left out: the engine balances the stages. */
  readonly cutAfter?: readonly string[] | undefined;
}

export interface Stage {
  readonly plan: PlannedModel;
  /** Names of its layers, without inputs. */
  readonly layers: readonly string[];
  /** Paths of its variables, in the order that they have in the whole model. */
  readonly variables: readonly string[];
  /** Shape of an example of the tensor that comes from the stage before; undefined for the first one. */
  readonly received: readonly number[] | undefined;
  /** The same of what it gives to the next one; undefined for the last one. */
  readonly passed: readonly number[] | undefined;
  /** Numbers of the inputs of the model that it reads itself; its plan has them behind the tensor that it receives. */
  readonly inputs: readonly number[];
}

/** A place where the model may be cut. */
interface Boundary {
  /** Layers in front of it. */
  readonly at: number;
  /** Weights in front of it that are trained. */
  readonly trained: number;
  readonly tensor: Edge;
  readonly shape: readonly number[];
}

/** Multiplications per element of an output, for activations, pooling and everything else that has no weights. */
const PER_ELEMENT = 4;

/**
 * @param built of the whole model; weights need no tensors
 * @throws ModelError where it has too few boundaries, or none behind a layer that is named
 */
export function cutModel(built: BuiltModel, root: string, { stages, cutAfter }: StageCuts): Stage[] {
  const order = layersInOrder(built);
  const boundaries = boundariesOf(built, order);
  const chosen = cutAfter ? named(cutAfter, boundaries, order, root) : balanced(built, order, boundaries, stages, root);
  const bounds = [undefined, ...chosen, undefined];
  return bounds.slice(1).map((end, i) => stageOf(built, order, bounds[i], end, root));
}

/** Without inputs, each behind all that it is called on. */
function layersInOrder({ plan, model }: BuiltModel): PlannedLayer[] {
  if (plan.sequential) return plan.layers.filter(({ className }) => className !== 'InputLayer');
  const byName = new Map(plan.layers.map((layer) => [layer.name, layer]));
  return model.layers.flatMap(({ name }) => {
    const layer = byName.get(name);
    return layer && layer.className !== 'InputLayer' ? [layer] : [];
  });
}

function boundariesOf({ plan, model, weights }: BuiltModel, order: readonly PlannedLayer[]): Boundary[] {
  const inputs = new Set(plan.layers.filter(({ className }) => className === 'InputLayer').map(({ name }) => name));
  const trainedOf = (layers: readonly PlannedLayer[]): number => {
    const names = new Set(layers.map(({ name }) => name));
    return weights.filter(({ path, trainable }) => trainable && names.has(layerOf(path))).length;
  };
  return order.flatMap((layer, i): Boundary[] => {
    const [front, back] = [order.slice(0, i + 1), order.slice(i + 1)];
    const trained = trainedOf(front);
    if (trained === 0 || trainedOf(back) === 0) return [];
    const tensors = plan.sequential ? [[layer.name, 0, 0] as const] : crossing(front, back, plan.outputs, inputs);
    const [tensor] = tensors;
    if (tensors.length !== 1 || !tensor) return [];
    const source = model.getLayer(tensor[0]);
    if (givesMask(source) || (plan.sequential && isComputedTogether(layer, back[0]!))) return [];
    return [{ at: i + 1, trained, tensor, shape: exampleShape(source.getOutputAt(tensor[1]) as tfl.SymbolicTensor) }];
  });
}

/** What goes from the layers in front to those behind; nothing where these cannot be told apart. */
function crossing(
  front: readonly PlannedLayer[],
  back: readonly PlannedLayer[],
  outputs: readonly Edge[],
  inputs: ReadonlySet<string>,
): Edge[] {
  const inFront = new Set(front.map(({ name }) => name));
  const isClosed = front.every(({ calls }) => calls.flat().every(([name]) => inFront.has(name) || inputs.has(name)));
  if (!isClosed || outputs.some(([name]) => inFront.has(name))) return [];
  const taken = back.flatMap(({ calls }) => calls.flat()).filter(([name]) => inFront.has(name));
  return [...new Map(taken.map((edge) => [edge.join(' '), edge])).values()];
}

/** Layers that the engine may compute as one (layers/pooling/fuse-conv-pool.ts). */
const isComputedTogether = (first: PlannedLayer, second: PlannedLayer): boolean =>
  first.className === 'Conv2D' && second.className === 'MaxPooling2D';

const layerOf = (path: string): string => path.slice(0, path.lastIndexOf('/'));

function named(cutAfter: readonly string[], boundaries: readonly Boundary[], order: readonly PlannedLayer[], root: string): Boundary[] {
  const chosen = cutAfter.map((name) => {
    const boundary = boundaries.find(({ tensor }) => tensor[0] === name);
    if (boundary) return boundary;
    const why = order.some((layer) => layer.name === name)
      ? 'other tensors go past it, its output has a mask or belongs to what follows, or one side has no weights to train'
      : 'it has no such layer';
    throw new ModelError(root, `the model cannot be cut after "${name}": ${why}. It can be cut after ${listed(boundaries)}`);
  });
  for (const [i, boundary] of chosen.entries()) {
    const before = chosen[i - 1];
    if (!before || before.trained < boundary.trained) continue;
    const names = `"${before.tensor[0]}" and "${boundary.tensor[0]}"`;
    throw new ModelError(
      root,
      before.at < boundary.at
        ? `a stage between ${names} would have no weights to train`
        : `cutAfter names layers in the order of the model, each once: ${names} are not`,
    );
  }
  return chosen;
}

const listed = (boundaries: readonly Boundary[]): string =>
  boundaries.length === 0 ? 'none of its layers' : boundaries.map(({ tensor }) => tensor[0]).join(', ');

/** The cuts with which the stage that has the most to compute has the least. */
function balanced(
  built: BuiltModel,
  order: readonly PlannedLayer[],
  boundaries: readonly Boundary[],
  stages: number,
  root: string,
): Boundary[] {
  const most = 1 + new Set(boundaries.map(({ trained }) => trained)).size;
  if (most < stages)
    throw new ModelError(
      root,
      `the model can be cut into at most ${counted(most)}, and ${counted(stages)} are wanted: it can be cut after ${listed(boundaries)}, and each stage needs weights to train`,
    );
  const until = [0];
  for (const layer of order) until.push(until.at(-1)! + multiplications(built, layer.name));
  const costOf = (from: Boundary | undefined, to: Boundary | undefined): number => until[to?.at ?? order.length]! - until[from?.at ?? 0]!;
  const extended = ({ largest, cuts }: Cutting, end: Boundary | undefined): Cutting => ({
    largest: Math.max(largest, costOf(cuts.at(-1), end)),
    cuts: end ? [...cuts, end] : cuts,
  });
  /** The best of those that end at each boundary. */
  let cuttings: Cutting[] = [{ largest: 0, cuts: [] }];
  for (let cut = 1; cut < stages; cut++)
    cuttings = boundaries.flatMap((boundary) => {
      const before = cuttings.filter(({ cuts }) => (cuts.at(-1)?.trained ?? 0) < boundary.trained);
      return before.length === 0 ? [] : [best(before.map((cutting) => extended(cutting, boundary)))];
    });
  return [...best(cuttings.map((cutting) => extended(cutting, undefined))).cuts];
}

interface Cutting {
  /** What its largest stage has to compute. */
  readonly largest: number;
  readonly cuts: readonly Boundary[];
}

const best = (cuttings: readonly Cutting[]): Cutting => cuttings.reduce((least, next) => (next.largest < least.largest ? next : least));

const counted = (stages: number): string => `${stages} ${stages === 1 ? 'stage' : 'stages'}`;

/** An estimate, of one example. */
function multiplications({ model, weights }: BuiltModel, name: string): number {
  const layer = model.getLayer(name);
  const elements = weights
    .filter(({ path }) => layerOf(path) === name)
    .reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
  return layer.inboundNodes.reduce((sum, { inputShapes, outputShapes }) => {
    const output = (outputShapes[0] as readonly number[]).slice(1);
    const size = output.reduce((a, b) => a * b, 1);
    const steps = 'cell' in layer ? Number((inputShapes[0] as readonly number[])[1]) : 1;
    const positions = Math.max(steps, size / (output.at(-1) ?? 1));
    return sum + size * PER_ELEMENT + (layer.getClassName() === 'Embedding' ? 0 : elements * positions);
  }, 0);
}

/** @param start the boundary in front of it, and `end` behind it; undefined at the ends of the model */
function stageOf(
  built: BuiltModel,
  order: readonly PlannedLayer[],
  start: Boundary | undefined,
  end: Boundary | undefined,
  root: string,
): Stage {
  const { plan } = built;
  const own = order.slice(start?.at ?? 0, end?.at);
  const names = new Set(own.map(({ name }) => name));
  const variables = built.weights.map(({ path }) => path).filter((path) => names.has(layerOf(path)));
  const stage = { layers: [...names], variables, received: start?.shape, passed: end?.shape };
  if (plan.sequential) {
    const front = start ? [] : plan.layers.filter(({ className }) => className === 'InputLayer');
    const [first, ...rest] = own;
    const layers = start ? [withInputShape(first!, start.shape), ...rest] : [...front, ...own];
    return { ...stage, plan: { sequential: true, layers, inputs: [], outputs: [] }, inputs: start ? [] : [0] };
  }
  const used = new Set(own.flatMap(({ calls }) => calls.flat().map(([name]) => name)));
  const inputs = plan.inputs.flatMap(([name], i) => (used.has(name) ? [i] : []));
  const boundaryName = `${start?.tensor[0]}/received`;
  const received: Edge = [boundaryName, 0, 0];
  const isReceived = (edge: Edge): boolean => start !== undefined && edge.join(' ') === start.tensor.join(' ');
  const layers: PlannedLayer[] = [
    ...(start ? [inputLayer(boundaryName, start.shape, root)] : []),
    ...plan.layers.filter(({ className, name }) => className === 'InputLayer' && used.has(name)),
    ...own.map((layer) =>
      Object.assign({}, layer, { calls: layer.calls.map((edges) => edges.map((edge) => (isReceived(edge) ? received : edge))) }),
    ),
  ];
  const ends = {
    inputs: [...(start ? [received] : []), ...inputs.map((i) => plan.inputs[i]!)],
    outputs: end ? [end.tensor] : plan.outputs,
  };
  return { ...stage, plan: { sequential: false, layers, ...ends }, inputs };
}

function withInputShape(layer: PlannedLayer, shape: readonly number[]): PlannedLayer {
  const { inputShape: _, ...config } = layer.config;
  return Object.assign({}, layer, { config: { ...config, batchInputShape: [null, ...shape] } });
}

const inputLayer = (name: string, shape: readonly number[], path: string): PlannedLayer => ({
  className: 'InputLayer',
  name,
  config: { name, batchInputShape: [null, ...shape], dtype: 'float32' },
  calls: [],
  path,
});
