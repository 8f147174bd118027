/**
 * The layers of a functional model in the order in which Keras counts them. It does not keep the order of the config: on loading it follows the
 * calls from the outputs back to the inputs, and orders layers by their depth, then by when it met them first (`map_graph` in
 * keras/src/ops/function.py). The masks of Keras 3 are computed by operations of their own in that graph, which make what is masked deeper.
 */
import type { Edge } from '@paceline/engine';
import { MERGING, keepsMask, makesMask, takesMask, type GraphLayer } from './keras-masks.js';

type Call = readonly [layer: string, node: number];
const keyOf = ([layer, node]: Call): string => `${layer}/${node}`;

/** How many calls lie between who takes a mask and the calls that the mask is computed of. */
type Distances = ReadonlyMap<string, number>;

/** @returns names; layers from which nothing comes to an output are no layers of the model */
export function kerasOrder(layers: readonly GraphLayer[], outputs: readonly Edge[], hasMaskOperations = false): string[] {
  const graph = new Graph(layers, !hasMaskOperations);
  for (const [layer, node] of outputs) graph.visit([layer, node]);
  return graph.order();
}

class Graph {
  private readonly byName: ReadonlyMap<string, GraphLayer>;
  /** When each layer was met first. */
  private readonly met = new Map<string, number>();
  /** Calls, each behind those that it is made on. */
  private readonly calls = new Map<string, Call>();
  private readonly started = new Set<string>();
  private readonly masks = new Map<string, Distances | undefined>();

  constructor(
    layers: readonly GraphLayer[],
    private readonly addsMasks: boolean,
  ) {
    this.byName = new Map(layers.map((layer) => [layer.name, layer]));
  }

  visit(call: Call): void {
    const key = keyOf(call);
    if (this.started.has(key) || !this.byName.has(call[0])) return;
    this.started.add(key);
    if (!this.met.has(call[0])) this.met.set(call[0], this.met.size);
    for (const parent of this.parentsOf(call)) this.visit(parent);
    this.calls.set(key, call);
  }

  order(): string[] {
    const ofCalls = new Map<string, number>();
    const ofLayers = new Map<string, number>();
    const atLeast = (key: string, depth: number): void => void ofCalls.set(key, Math.max(depth, ofCalls.get(key) ?? 0));
    for (const [key, call] of [...this.calls].reverse()) {
      const depth = Math.max(ofCalls.get(key) ?? 0, ofLayers.get(call[0]) ?? 0);
      ofCalls.set(key, depth);
      ofLayers.set(call[0], depth);
      for (const parent of this.parentsOf(call)) atLeast(keyOf(parent), depth + 1);
      if (this.addsMasks && takesMask(this.byName.get(call[0])))
        for (const parent of this.parentsOf(call))
          for (const [source, distance] of this.maskOf(parent) ?? []) atLeast(source, depth + distance);
    }
    return [...ofLayers.keys()].sort((a, b) => ofLayers.get(b)! - ofLayers.get(a)! || this.met.get(a)! - this.met.get(b)!);
  }

  private parentsOf([name, node]: Call): Call[] {
    return (this.byName.get(name)?.calls[node] ?? []).map(([layer, at]) => [layer, at]);
  }

  /** The mask of what a call gives: NotEqual behind the input of an Embedding, Any behind NotEqual for Masking. */
  private maskOf(call: Call): Distances | undefined {
    const key = keyOf(call);
    if (this.masks.has(key)) return this.masks.get(key);
    this.masks.set(key, undefined);
    const mask = this.madeBy(call);
    this.masks.set(key, mask);
    return mask;
  }

  private madeBy(call: Call): Distances | undefined {
    const layer = this.byName.get(call[0]);
    const parents = this.parentsOf(call);
    if (!layer || parents.length === 0) return undefined;
    if (makesMask(layer)) return new Map([[keyOf(parents[0]!), layer.className === 'Masking' ? 3 : 2]]);
    if (!keepsMask(layer)) return undefined;
    const masks = parents.map((parent) => this.maskOf(parent));
    if (layer.className === 'Concatenate') return concatenated(parents, masks);
    if (!MERGING.has(layer.className)) return masks[0];
    // LogicalOr of the first two, then of that and the third.
    const known = masks.filter((mask) => mask !== undefined);
    return known.length < masks.length ? undefined : longest(known.map((mask, i) => farther(mask, known.length - Math.max(i, 1))));
  }
}

/** Any of a Concatenate of LogicalOr, of the mask with one more dimension and of zeros like the input; or of ones like the input. */
function concatenated(parents: readonly Call[], masks: readonly (Distances | undefined)[]): Distances | undefined {
  if (masks.every((mask) => mask === undefined)) return undefined;
  return longest(
    parents.flatMap((parent, i) => [new Map([[keyOf(parent), masks[i] ? 5 : 4]]), ...(masks[i] ? [farther(masks[i], 4)] : [])]),
  );
}

const farther = (mask: Distances, by: number): Distances => new Map([...mask].map(([key, distance]) => [key, distance + by]));

function longest(masks: readonly Distances[]): Distances {
  const result = new Map<string, number>();
  for (const [key, distance] of masks.flatMap((mask) => [...mask])) result.set(key, Math.max(distance, result.get(key) ?? 0));
  return result;
}
