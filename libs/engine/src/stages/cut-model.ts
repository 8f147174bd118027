/**
 * Cuts a model into stages: groups of layers, so that one tensor alone goes from each stage to the next. Where it can be cut, and where it is, follows
 * from the planned model alone.
 *
 * The output of a layer is a boundary between stages, with the layers that it comes from in front and all others behind it, where
 *
 * | condition | because |
 * |---|---|
 * | no other tensor goes from the layers in front to those behind | a stage gives the next one a single tensor |
 * | no output of the model lies in front | the last stage computes the loss |
 * | it has no mask | tf.js passes masks on inside of a model alone |
 * | max pooling does not follow a convolution there | the engine computes the two as one: apart they may have other bits |
 * | there are weights in front, and behind | a stage without weights has nothing to train. Frozen weights count here |
 *
 * The boundaries that are taken make the largest stage as small as possible. Sizes are estimates, in multiplications: a layer counts its weights times the positions
 * of its output, and a few per element of its output.
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
  /** The layer whose output it gives to the next one. */
  readonly end: string | undefined;
}

/** Where the model may be cut. */
interface Boundary {
  readonly layer: string;
  /** Names of the layers in front of it. */
  readonly front: ReadonlySet<string>;
  /** Weights in front of it. */
  readonly weights: number;
  readonly tensor: Edge;
  readonly shape: readonly number[];
}

/** A layer whose output is no boundary. */
interface NoBoundary {
  readonly layer: string;
  readonly reason: string;
}

/** Multiplications per element of an output, for activations, pooling and everything else that has no weights. */
const PER_ELEMENT = 4;

const layerOf = (path: string): string => path.slice(0, path.lastIndexOf('/'));

/**
 * @param built of the whole model; weights need no tensors
 * @throws ModelError where it has too few boundaries, or none behind a layer that is named
 */
export function cutModel(built: BuiltModel, { stages, cutAfter }: StageCuts): Stage[] {
  const order = layersInOrder(built);
  const byName = new Map(order.map((layer) => [layer.name, layer]));
  const places = order.map((_, i) => placeAfter(built, order, i, byName));
  const boundaries = places.filter((place): place is Boundary => 'tensor' in place);
  const chosen = cutAfter
    ? cutAfter.map((name, i) => namedBoundary(name, cutAfter[i - 1], places))
    : balanced(built, order, boundaries, stages);
  for (const [i, boundary] of chosen.entries()) refuseBetween(chosen[i - 1], boundary);
  const ends = [undefined, ...chosen, undefined];
  return ends.slice(1).map((end, i) => stageOf(built, order, ends[i], end));
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

/** Whether the model may be cut after a layer. @param at its place in the order */
function placeAfter(
  built: BuiltModel,
  order: readonly PlannedLayer[],
  at: number,
  byName: ReadonlyMap<string, PlannedLayer>,
): Boundary | NoBoundary {
  const { plan, model, weights } = built;
  const [layer, next] = [order[at]!, order[at + 1]];
  const front = plan.sequential ? new Set(order.slice(0, at + 1).map(({ name }) => name)) : sourcesOf(layer, byName);
  const no = (reason: string): NoBoundary => ({ layer: layer.name, reason });
  const output = plan.outputs.find(([name]) => front.has(name));
  if (output) return no(output[0] === layer.name ? 'it is an output of the model' : `the output ${output[0]} of the model lies in front`);
  const inFront = weights.filter(({ path, trainable }) => trainable && front.has(layerOf(path))).length;
  if (inFront === 0) return no('no weights lie in front');
  if (inFront === weights.filter(({ trainable }) => trainable).length) return no('no weights lie behind');
  if (plan.sequential && layer.className === 'Conv2D' && next?.className === 'MaxPooling2D')
    return no(`the engine computes it together with the pooling behind it: cut after "${next.name}"`);
  const crossing = plan.sequential ? [[layer.name, 0, 0] as const] : tensorsFrom(front, order);
  const [tensor] = crossing;
  if (crossing.length !== 1 || !tensor) {
    const others = [...new Set(crossing.map(([name]) => name))].filter((name) => name !== layer.name);
    return no(
      others.length > 0 ? `what follows also reads the output of ${others.join(', ')}` : 'what follows reads several of its outputs',
    );
  }
  // A layer in front is called again, on what this one gives.
  if (tensor[0] !== layer.name) return no(`only the output of ${tensor[0]}, which is called on it, goes on: cut after "${tensor[0]}"`);
  const source = model.getLayer(tensor[0]);
  if (givesMask(source)) return no('its output has a mask');
  return { layer: layer.name, front, weights: inFront, tensor, shape: exampleShape(source.getOutputAt(tensor[1]) as tfl.SymbolicTensor) };
}

/** The layer, and all that something comes to it from. */
function sourcesOf(layer: PlannedLayer, byName: ReadonlyMap<string, PlannedLayer>): Set<string> {
  const found = new Set<string>();
  const waiting = [layer];
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    if (found.has(next.name)) continue;
    found.add(next.name);
    for (const [name] of next.calls.flat()) if (byName.has(name)) waiting.push(byName.get(name)!);
  }
  return found;
}

/** What the layers behind read of those in front. */
function tensorsFrom(front: ReadonlySet<string>, order: readonly PlannedLayer[]): Edge[] {
  const read = order.filter(({ name }) => !front.has(name)).flatMap(({ calls }) => calls.flat());
  return [...new Map(read.filter(([name]) => front.has(name)).map((edge) => [edge.join(' '), edge])).values()];
}

/** @param before the name of the cut before */
function namedBoundary(name: string, before: string | undefined, places: readonly (Boundary | NoBoundary)[]): Boundary {
  const place = places.find(({ layer }) => layer === name) ?? places.findLast(({ layer }) => layer.startsWith(`${name}/`)); // of a nested model
  const list = listed(places.filter((each): each is Boundary => 'tensor' in each));
  if (!place) throw new ModelError(CUT_AFTER, `the model has no layer "${name}". It can be cut after ${list}`);
  if (!('tensor' in place))
    throw new ModelError(CUT_AFTER, `the model cannot be cut after "${name}": ${place.reason}. It can be cut after ${list}`);
  if (name === before) throw new ModelError(CUT_AFTER, `"${name}" is named twice`);
  return place;
}

function refuseBetween(before: Boundary | undefined, boundary: Boundary): void {
  if (!before) return;
  const names = `"${before.layer}" and "${boundary.layer}"`;
  if (!boundary.front.has(before.layer))
    throw new ModelError(CUT_AFTER, `${names} are not in the order of the model, or lie on branches beside each other`);
  if (before.weights === boundary.weights) throw new ModelError(CUT_AFTER, `the stage between ${names} would have no weights to train`);
}

const [STAGES, CUT_AFTER] = ['stages', 'cutAfter'];

const LISTED_MOST = 20;
function listed(boundaries: readonly Boundary[]): string {
  const names = boundaries.slice(0, LISTED_MOST).map(({ layer }) => layer);
  const more = boundaries.length - names.length;
  return names.length === 0 ? 'none of its layers' : `${names.join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}

/** The cuts with which the stage that has the most to compute has the least. */
function balanced(built: BuiltModel, order: readonly PlannedLayer[], boundaries: readonly Boundary[], stages: number): readonly Boundary[] {
  const costs = new Map(order.map(({ name }) => [name, multiplications(built, name)]));
  const costOf = (front: Iterable<string>): number => [...front].reduce((sum, name) => sum + costs.get(name)!, 0);
  const whole = costOf(costs.keys());
  const until = new Map(boundaries.map((boundary) => [boundary, costOf(boundary.front)]));
  const extended = ({ largest, cuts }: Cutting, end: Boundary | undefined): Cutting => {
    const last = cuts.at(-1);
    const cost = (end ? until.get(end)! : whole) - (last ? until.get(last)! : 0);
    return { largest: Math.max(largest, cost), cuts: end ? [...cuts, end] : cuts };
  };
  const follows = (last: Boundary | undefined, next: Boundary): boolean =>
    !last || (last.weights < next.weights && next.front.has(last.layer));
  /** The best of those that end at each boundary. */
  let cuttings: Cutting[] = [{ largest: 0, cuts: [] }];
  for (let cut = 1; cut < stages; cut++) {
    const longer = boundaries.flatMap((boundary) => {
      const before = cuttings.filter(({ cuts }) => follows(cuts.at(-1), boundary));
      return before.length === 0 ? [] : [best(before.map((cutting) => extended(cutting, boundary)))];
    });
    if (longer.length === 0)
      throw new ModelError(
        STAGES,
        cut === 1
          ? 'the model cannot be cut: between no two of its layers is there a single tensor without a mask, with weights on both sides and all outputs behind it'
          : `the model can be cut into at most ${cut} stages, and not into ${stages}: set stages to ${cut} or less. It can be cut after ${listed(boundaries)}, and each stage needs weights to train`,
      );
    cuttings = longer;
  }
  return best(cuttings.map((cutting) => extended(cutting, undefined))).cuts;
}

interface Cutting {
  /** What its largest stage has to compute. */
  readonly largest: number;
  readonly cuts: readonly Boundary[];
}

const best = (cuttings: readonly Cutting[]): Cutting => cuttings.reduce((least, next) => (next.largest < least.largest ? next : least));

/** An estimate, of one example. */
function multiplications({ model, weights }: BuiltModel, name: string): number {
  const layer = model.getLayer(name);
  const elements = weights
    .filter(({ path }) => layerOf(path) === name)
    .reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
  return layer.inboundNodes.reduce((sum, { inputShapes, outputShapes }) => {
    const output = (outputShapes[0] as readonly number[]).slice(1);
    const size = output.reduce((a, b) => a * b, 1);
    const steps = 'cell' in layer || 'forwardLayer' in layer ? Number((inputShapes[0] as readonly number[])[1]) : 1;
    const positions = Math.max(steps, size / (output.at(-1) ?? 1));
    return sum + size * PER_ELEMENT + (layer.getClassName() === 'Embedding' ? 0 : elements * positions);
  }, 0);
}

/** @param start the boundary in front of it, and `end` behind it; undefined at the ends of the model */
function stageOf(built: BuiltModel, order: readonly PlannedLayer[], start: Boundary | undefined, end: Boundary | undefined): Stage {
  const { plan } = built;
  const own = order.filter(({ name }) => !start?.front.has(name) && (!end || end.front.has(name)));
  const names = new Set(own.map(({ name }) => name));
  const variables = built.weights.map(({ path }) => path).filter((path) => names.has(layerOf(path)));
  const stage = { layers: [...names], variables, received: start?.shape, passed: end?.shape, end: end?.layer };
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
    ...(start ? [inputLayer(boundaryName, start.shape, own[0]!.path)] : []),
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
