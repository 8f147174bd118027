/** What the models of the zoo are made of. */
import { fieldLength, type InputField, type LayerTopology, type ModelTopology, type RowFormat, type TargetField } from '@paceline/spec';
import { ModelError } from '../errors/model-error.js';

export const layer = (class_name: string, name: string, config: Record<string, unknown> = {}): LayerTopology => ({
  class_name,
  config: Object.assign({ name }, config),
});
export const input = (name: string, shape: readonly number[]): LayerTopology =>
  layer('InputLayer', name, { batch_input_shape: [null, ...shape] });
export const dense = (name: string, units: number, activation = 'linear'): LayerTopology =>
  layer('Dense', name, { units, activation, kernel_initializer: 'glorot_uniform', bias_initializer: 'zeros' });

/** Logits of every class at every position, or the values. */
export function lastLayers(target: TargetField, denseName: string, reshapeName: string): LayerTopology[] {
  const length = fieldLength(target);
  if (target.kind === 'values') return [dense(denseName, length)];
  const logits = dense(denseName, length * target.classes);
  if (target.shape.length === 0) return [logits];
  return [logits, layer('Reshape', reshapeName, { target_shape: [...target.shape, target.classes] })];
}

/** A graph that is written down layer by layer. Names are counted by class, as Keras does, from 1. */
export class Graph {
  private readonly listed: LayerTopology[] = [];
  private readonly counts = new Map<string, number>();

  /** @returns the name of the layer, which is that of its output */
  add(className: string, config: Readonly<Record<string, unknown>>, ...from: readonly string[]): string {
    const base = SHORT_NAMES[className] ?? className.toLowerCase();
    const count = (this.counts.get(base) ?? 0) + 1;
    this.counts.set(base, count);
    return this.place(layer(className, `${base}_${count}`, config), ...from);
  }

  place(one: LayerTopology, ...from: readonly string[]): string {
    const name = one.config['name'] as string;
    this.listed.push(Object.assign({ inbound_nodes: from.length === 0 ? [] : [from.map((source) => [source, 0, 0, {}])], name }, one));
    return name;
  }

  model(name: string, inputs: readonly string[], outputs: readonly string[]): ModelTopology {
    const edges = (names: readonly string[]): unknown => names.map((one) => [one, 0, 0]);
    return { class_name: 'Model', config: { name, layers: this.listed, input_layers: edges(inputs), output_layers: edges(outputs) } };
  }
}

const SHORT_NAMES: Readonly<Record<string, string>> = {
  BatchNormalization: 'norm',
  LayerNormalization: 'norm',
  MultiHeadAttention: 'attention',
  TokenAndPositionEmbedding: 'embedding',
  DepthwiseConv2D: 'depthwise',
  GlobalAveragePooling1D: 'mean',
  GlobalAveragePooling2D: 'mean',
  GlobalMaxPooling1D: 'largest',
};

/** The one input of a model that takes one. */
export function onlyInput(model: string, what: string, { inputs }: RowFormat): InputField {
  const [first, ...others] = inputs;
  if (others.length === 0) return first!;
  throw new ModelError('model', `${model} needs one input, ${what}; the data has ${inputs.map(shown).join(' and ')}`);
}

export const shown = ({ shape }: { readonly shape: readonly number[] }): string => `[${shape.join(', ')}]`;
