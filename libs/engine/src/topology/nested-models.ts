/**
 * Models that stand among the layers of a model, as one model without nesting: what the engine fuses, freezes, seeds and names is layers. A layer
 * of a nested model is called `model/layer`; where the nested model is called several times, so are its layers, with the same weights.
 */
import { ModelError } from '../errors/model-error.js';
import type { Edge, Joint, ModelPlan, NestedPlan, PlannedLayer, PlannedModel } from './planned-model.js';

/** Calls of layers after all nested models are written out; a model in a model in a model, each called often, would be without end. */
const MAX_CALLS = 4096;
/** A name stands in patterns of `freeze` and in paths of variables. */
const MAX_NAME = 200;

const isNested = (layer: PlannedLayer | NestedPlan): layer is NestedPlan => 'model' in layer;

export function flattened(plan: ModelPlan, root: string): PlannedModel {
  const { layers } = plan;
  if (!layers.some(isNested)) return Object.assign({}, plan, { layers: layers as readonly PlannedLayer[] });
  if (isChain(plan)) {
    const [first] = layers;
    const input = isNested(first!) || first!.className !== 'InputLayer' ? `${first!.name}_input` : first!.name;
    const endNames = { inputs: [input], outputs: [layers.at(-1)!.name] };
    return { sequential: true, layers: chainOf(plan, '', false), inputs: [], outputs: [], endNames };
  }
  return new Flattening(root).flatten(plan);
}

const isChain = ({ sequential, layers }: ModelPlan): boolean =>
  sequential && layers.every((layer) => !isNested(layer) || isChain(layer.model));

/** Sequential models in a sequential model are one longer one. Only the first input stays. */
function chainOf({ layers }: ModelPlan, prefix: string, isFrozen: boolean): PlannedLayer[] {
  const chain = layers.flatMap((layer) =>
    isNested(layer)
      ? chainOf(layer.model, `${nameUnder(prefix, layer)}/`, isFrozen || layer.isFrozen)
      : [placed(layer, nameUnder(prefix, layer), isFrozen)],
  );
  return chain.flatMap((layer, i): PlannedLayer[] => {
    const before = i > 1 ? chain[i - 1] : undefined;
    if (i > 0 && layer.className === 'InputLayer') return [];
    // The layer behind the input of a nested model takes over its shape.
    return [before?.className === 'InputLayer' ? Object.assign({}, layer, { config: withShape(layer, before) }) : layer];
  });
}

function withShape({ config }: PlannedLayer, { config: input }: PlannedLayer): PlannedLayer['config'] {
  return config['batchInputShape'] === undefined ? Object.assign({}, config, { batchInputShape: input['batchInputShape'] }) : config;
}

function nameUnder(prefix: string, { name, path }: { readonly name: string; readonly path: string }): string {
  const whole = prefix + name;
  if (whole.length > MAX_NAME)
    throw new ModelError(`${path}.config.name`, `with the names of the models around it the name is longer than ${MAX_NAME} characters`);
  return whole;
}

function placed(layer: PlannedLayer, name: string, isInFrozen: boolean): PlannedLayer {
  const { className, config, path, isMasked, isUnmasked, isOperation } = layer;
  const isFrozen = isInFrozen || layer.isFrozen === true;
  const made = { className, name, config: Object.assign({}, config, { name }), calls: [], path };
  return Object.assign(
    made,
    isFrozen && { isFrozen },
    isMasked && { isMasked },
    isUnmasked && { isUnmasked },
    isOperation && { isOperation },
  );
}

interface Building extends PlannedLayer {
  readonly calls: (readonly Edge[])[];
}

class Flattening {
  private readonly layers = new Map<string, Building>();
  private readonly joints: Joint[] = [];
  private calls = 0;

  constructor(private readonly root: string) {}

  flatten(plan: ModelPlan): PlannedModel {
    const own = plan.sequential ? this.chainInput(plan) : plan.inputs;
    for (const layer of plan.layers) if (!isNested(layer) && layer.className === 'InputLayer') this.place(layer, layer.name, false);
    const outputs = this.call(plan, '', own, false, this.root);
    const outputNames = plan.sequential ? [plan.layers.at(-1)!.name] : plan.outputs.map(([name]) => name);
    return {
      sequential: false,
      layers: [...this.layers.values()],
      inputs: own,
      outputs,
      endNames: { inputs: own.map(([name]) => name), outputs: outputNames },
      joints: this.joints,
    };
  }

  /** The input that a sequential model has, or is given as tf.js gives it one. */
  private chainInput(plan: ModelPlan): Edge[] {
    const [first] = plan.layers;
    if (!isNested(first!) && first!.className === 'InputLayer') return [[first!.name, 0, 0]];
    const shape = shapeOfChain(plan);
    if (!Array.isArray(shape)) throw new ModelError(`${first!.path}.config`, 'the first layer needs batch_input_shape, e.g. [null, 784]');
    const name = `${first!.name}_input`;
    if (plan.layers.some((layer) => layer.name === name))
      throw new ModelError(`${first!.path}.config`, `an InputLayer must stand in front of it: the name ${JSON.stringify(name)} is taken`);
    this.place({ className: 'InputLayer', name, config: { name, batchInputShape: shape }, calls: [], path: first!.path }, name, false);
    return [[name, 0, 0]];
  }

  private place(layer: PlannedLayer, name: string, isFrozen: boolean): Building {
    const there = this.layers.get(name);
    if (there) return there;
    const made = Object.assign(placed(layer, name, isFrozen), { calls: [] as (readonly Edge[])[] });
    this.layers.set(name, made);
    return made;
  }

  /** One call of a model. @returns its outputs */
  private call(plan: ModelPlan, prefix: string, given: readonly Edge[], isFrozen: boolean, path: string): Edge[] {
    return plan.sequential ? this.callChain(plan, prefix, given, isFrozen, path) : this.callGraph(plan, prefix, given, isFrozen, path);
  }

  private callChain(plan: ModelPlan, prefix: string, given: readonly Edge[], isFrozen: boolean, path: string): Edge[] {
    if (given.length !== 1) throw new ModelError(path, `a sequential model is called on one tensor, not on ${given.length}`);
    let present: readonly Edge[] = given;
    for (const [i, layer] of plan.layers.entries()) {
      if (!isNested(layer) && layer.className === 'InputLayer') {
        if (i === 0 && prefix !== '') this.join(layer, present[0]!);
        continue;
      }
      present = this.callLayer(layer, prefix, present, isFrozen);
    }
    return [...present];
  }

  private callGraph(plan: ModelPlan, prefix: string, given: readonly Edge[], isFrozen: boolean, path: string): Edge[] {
    const { inputs } = plan;
    if (given.length !== inputs.length)
      throw new ModelError(path, `the model has ${inputs.length} inputs, and is called on ${given.length} tensors`);
    /** The output tensors of each call, by layer. */
    const results = new Map<string, (readonly Edge[])[]>();
    const byName = new Map(plan.layers.map((layer) => [layer.name, layer]));
    const first = firstNodes(plan);
    inputs.forEach(([name], i) => {
      const layer = byName.get(name);
      if (!layer || isNested(layer) || layer.className !== 'InputLayer')
        throw new ModelError(`${path}.config.input_layers`, `names ${JSON.stringify(name)}, which is no InputLayer of the model`);
      if (prefix !== '') this.join(layer, given[i]!);
      results.set(name, [[given[i]!]]);
    });
    const tensorOf = ([name, node, tensor]: Edge): Edge | undefined => results.get(name)?.[node - (first.get(name) ?? 0)]?.[tensor];
    let waiting = plan.layers.flatMap((layer) => layer.calls.map((edges) => ({ layer, edges })));
    while (waiting.length > 0) {
      const blocked: typeof waiting = [];
      for (const call of waiting) {
        const tensors = call.edges.map(tensorOf);
        if (tensors.includes(undefined) || blocked.some((other) => other.layer === call.layer)) {
          blocked.push(call);
          continue;
        }
        const made = this.callLayer(call.layer, prefix, tensors as Edge[], isFrozen);
        results.set(call.layer.name, [...(results.get(call.layer.name) ?? []), made]);
      }
      if (blocked.length === waiting.length)
        throw new ModelError(
          `${blocked[0]!.layer.path}.inbound_nodes`,
          'names a layer, node or tensor that does not exist, or is part of a cycle',
        );
      waiting = blocked;
    }
    return plan.outputs.map((edge) => {
      const found = tensorOf(edge);
      if (!found) throw new ModelError(`${path}.config.output_layers`, `names ${JSON.stringify(edge)}, which does not exist`);
      return found;
    });
  }

  private callLayer(layer: PlannedLayer | NestedPlan, prefix: string, given: readonly Edge[], isFrozen: boolean): readonly Edge[] {
    const name = nameUnder(prefix, layer);
    if (++this.calls > MAX_CALLS)
      throw new ModelError(layer.path, `with its nested models written out the model has more than ${MAX_CALLS} calls of layers`);
    if (isNested(layer)) return this.call(layer.model, `${name}/`, given, isFrozen || layer.isFrozen, layer.path);
    const { calls } = this.place(layer, name, isFrozen);
    calls.push(given);
    return [[name, calls.length - 1, 0]];
  }

  /** The input of a nested model becomes the tensor that it is called on, which must have its shape. */
  private join({ config, path }: PlannedLayer, edge: Edge): void {
    const shape = config['batchInputShape'];
    if (Array.isArray(shape)) this.joints.push({ edge, shape, path });
  }
}

/** The shape given by the first layer, or by the first layer of a nested model in its place. */
function shapeOfChain({ layers: [first], inputs }: ModelPlan): unknown {
  if (!first) return undefined;
  if (!isNested(first)) return first.config['batchInputShape'];
  const { model } = first;
  if (model.sequential) return shapeOfChain(model);
  const [[name] = [''], ...others] = model.inputs;
  const input = model.layers.find((layer) => layer.name === name);
  return others.length > 0 || inputs.length > 0 || !input || isNested(input) ? undefined : input.config['batchInputShape'];
}

/**
 * The number of the first call of each nested model. tf.js and Keras count the making of a model as its node 0 where it has an input;
 * all calls of a model are named somewhere, so the smallest number tells.
 */
function firstNodes({ layers, outputs }: ModelPlan): ReadonlyMap<string, number> {
  const nested = new Set(layers.filter(isNested).map(({ name }) => name));
  const first = new Map<string, number>();
  for (const [name, node] of [...layers.flatMap(({ calls }) => calls.flat()), ...outputs])
    if (nested.has(name)) first.set(name, Math.min(first.get(name) ?? node, node));
  return first;
}
