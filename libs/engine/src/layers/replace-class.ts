/** tf.js makes layers from its registry by name, also those inside of wrappers: what is registered later under a name is what it takes. */
import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';

export type Args = Record<string, unknown>;

/** What the classes registered here use of a layer. Shapes count the batch, which is null. */
export interface RegisteredLayer extends tfl.layers.Layer {
  call(inputs: tf.Tensor | tf.Tensor[], kwargs: Record<string, unknown>): tf.Tensor | tf.Tensor[];
  getConfig(): tf.serialization.ConfigDict;
}

export interface LayerClass {
  new (args: Args): RegisteredLayer;
  readonly className: string;
  fromConfig(cls: LayerClass, config: Args): RegisteredLayer;
}

/** The tensor that a layer with one input is called on. */
export const single = (inputs: tf.Tensor | tf.Tensor[]): tf.Tensor => (Array.isArray(inputs) ? inputs[0]! : inputs);

/** The class that is registered under a name. */
export function stockClass(name: string): LayerClass {
  const entry = tf.serialization.SerializationMap.getMap().classNameMap[name] as unknown as readonly [LayerClass] | undefined;
  if (!entry) throw new Error(`tf.js has no layer ${name}: it is not the version that this library was written for`);
  return entry[0];
}

/** Registers a class of ours, made from tf.js's own one, under its name. */
export function replaceClass(name: string, make: (stock: LayerClass) => LayerClass): void {
  const made = make(stockClass(name)) as unknown;
  tf.serialization.registerClass(made as tf.serialization.SerializableConstructor<tf.serialization.Serializable>);
}
