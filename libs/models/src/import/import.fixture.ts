/** HDF5 files as Keras writes them, made in tests, and what a file came to. */
import h5wasm, { type Group } from 'h5wasm/node';
import { parseSafetensorsHeader } from '@paceline/storage';
import type { ImportedModel } from './read-model.js';

/** By their paths. */
export type Numbers = Readonly<Record<string, readonly [shape: number[], values: number[], isFloat?: true]>>;
/** Attributes of groups. */
export type Attributes = Readonly<Record<string, Readonly<Record<string, string | readonly string[]>>>>;

/** The config of a layer as Keras writes it. */
export const config = (class_name: string, name: string, rest: object = {}) => ({
  class_name,
  config: { name, trainable: true, dtype: 'float32', ...rest },
});
/** A model of Keras 2 with a model in it, and its weights by their paths. */
export const KERAS_2 = {
  class_name: 'Sequential',
  config: {
    name: 'sequential',
    layers: [
      config('InputLayer', 'dense_input', { batch_input_shape: [null, 2] }),
      config('Dense', 'dense', { units: 1, activation: 'relu' }),
      {
        class_name: 'Functional',
        config: {
          name: 'head',
          layers: [
            { ...config('InputLayer', 'in', { batch_input_shape: [null, 1] }), name: 'in', inbound_nodes: [] },
            { ...config('Dense', 'logits', { units: 2 }), name: 'logits', inbound_nodes: [[['in', 0, 0, {}]]] },
          ],
          input_layers: [['in', 0, 0]],
          output_layers: [['logits', 0, 0]],
        },
      },
    ],
  },
};
export const LEGACY: Numbers = {
  'model_weights/dense/dense/kernel:0': [
    [2, 1],
    [1, 2],
  ],
  'model_weights/dense/dense/bias:0': [[1], [3]],
  'model_weights/head/logits/kernel:0': [
    [1, 2],
    [4, 5],
  ],
  'model_weights/head/logits/bias:0': [[2], [6, 7]],
};

/** A number without a shape is a whole one where it is not said to be a float. The library must be ready. */
export function writeHdf5(file: string, numbers: Numbers, attributes: Attributes = {}): void {
  const opened = new h5wasm.File(file, 'w');
  const groupAt = (path: string): Group =>
    path
      .split('/')
      .filter(Boolean)
      .reduce<Group>((group, part) => (group.keys().includes(part) ? (group.get(part) as Group) : group.create_group(part)), opened);
  for (const [path, own] of Object.entries(attributes))
    for (const [key, value] of Object.entries(own))
      // h5py writes an empty list as one of no numbers.
      if (value.length === 0) groupAt(path).create_attribute(key, new Float64Array(0), [0]);
      else groupAt(path).create_attribute(key, value as string | string[]);
  for (const [path, [shape, values, isFloat]] of Object.entries(numbers)) {
    const at = path.lastIndexOf('/');
    groupAt(path.slice(0, at)).create_dataset({
      name: path.slice(at + 1),
      data: shape.length === 0 && !isFloat ? Int32Array.from(values) : Float32Array.from(values),
      shape,
    });
  }
  opened.close();
}

/** Values by variable, out of the safetensors bytes. */
export function valuesOf(model: ImportedModel): Map<string, number[]> {
  const bytes = Buffer.from(model.safetensors());
  const header = bytes.subarray(8, 8 + Number(bytes.readBigUInt64LE(0)));
  const ranges = [...parseSafetensorsHeader(header, bytes.length).values()];
  return new Map(
    ranges.map(({ name, from, to }) => [name, Array.from({ length: (to - from) / 4 }, (_, i) => bytes.readFloatLE(from + i * 4))]),
  );
}
