/**
 * Models of the examples of TensorFlow.js and of Keras, as these libraries save them: the layers, settings and connections are those of the source,
 * images, vocabularies and widths are smaller. Only what the source says is given to a layer, under the names that the library writes.
 */
import type { ModelTopology } from '@paceline/spec';

export type Config = Readonly<Record<string, unknown>>;
export type Listed = readonly [className: string, config?: Config];

export interface ExampleModel {
  readonly name: string;
  /** Repository and file. */
  readonly source: string;
  readonly topology: ModelTopology;
  /** The name in the run spec; the table says where the example has none. */
  readonly loss: string;
  /** Losses of outputs that have one of their own, by name. */
  readonly losses?: Readonly<Record<string, string>>;
  /** Inputs that hold whole numbers below this. */
  readonly integers?: number;
  /** A part of the refusal. */
  readonly refused?: string;
}

/* ---------- tf.js ---------- */

/** `tf.sequential`: the first layer says the shape. */
export const tfjs = (shape: readonly (number | null)[] | undefined, ...layers: readonly Listed[]): ModelTopology => ({
  class_name: 'Sequential',
  config: {
    layers: layers.map(([class_name, config = {}], i) => ({
      class_name,
      config: Object.assign(
        { name: `${class_name.toLowerCase()}_${i}`, trainable: true },
        i === 0 && shape ? { batch_input_shape: [null, ...shape], dtype: 'float32' } : {},
        config,
      ),
    })),
  },
});

export type Tensor = readonly [layer: string, node: number, tensor: number];

/** A functional model, layer by layer. Keras 3 and tf.js write the same with other words. */
export class Graph {
  private readonly layers: Record<string, unknown>[] = [];
  private readonly calls = new Map<string, number>();

  constructor(private readonly dialect: 'tfjs' | 'keras3') {}

  input(name: string, shape: readonly (number | null)[]): Tensor {
    const key = this.dialect === 'keras3' ? 'batch_shape' : 'batch_input_shape';
    this.layers.push(this.entry('InputLayer', name, { [key]: [null, ...shape], dtype: 'float32', sparse: false }));
    return [name, 0, 0];
  }

  /** Calls a layer; one that is there already is called again. */
  on(
    from: readonly Tensor[] | Tensor,
    className: string,
    config: Config = {},
    name = `${className.toLowerCase()}_${this.layers.length}`,
  ): Tensor {
    const list = typeof from[0] === 'string' ? [from as Tensor] : (from as readonly Tensor[]);
    let layer = this.layers.find((one) => one['name'] === name);
    if (!layer) this.layers.push((layer = this.entry(className, name, Object.assign({ trainable: true }, config))));
    const history = (tensor: Tensor) => ({
      class_name: '__keras_tensor__',
      config: { shape: [null], dtype: 'float32', keras_history: tensor },
    });
    const args = list.length === 1 ? [history(list[0]!)] : [list.map(history)];
    (layer['inbound_nodes'] as unknown[]).push(this.dialect === 'keras3' ? { args, kwargs: {} } : list.map((tensor) => [...tensor, {}]));
    const node = this.calls.get(name) ?? (className === 'Functional' || className === 'Model' ? 1 : 0);
    this.calls.set(name, node + 1);
    return [name, node, 0];
  }

  /** Layers one behind the other. */
  chain(from: Tensor, ...layers: readonly Listed[]): Tensor {
    return layers.reduce<Tensor>((tensor, [className, config]) => this.on(tensor, className, config), from);
  }

  model(inputs: readonly Tensor[], outputs: readonly Tensor[]): ModelTopology {
    const class_name = this.dialect === 'keras3' ? 'Functional' : 'Model';
    return { class_name, config: { name: 'model', layers: this.layers, input_layers: inputs, output_layers: outputs } } as ModelTopology;
  }

  private entry(class_name: string, name: string, config: Config): Record<string, unknown> {
    const marks = this.dialect === 'keras3' ? { module: 'keras.layers', registered_name: null } : {};
    return Object.assign({ class_name, name, config: Object.assign({ name }, config), inbound_nodes: [] as unknown[] }, marks);
  }
}

export const dense = (units: number, activation = 'linear', rest: Config = {}): Listed => [
  'Dense',
  Object.assign({ units, activation }, rest),
];
export const conv = (filters: number, kernel: number, rest: Config = {}): Listed => [
  'Conv2D',
  Object.assign({ filters, kernel_size: [kernel, kernel], activation: 'relu' }, rest),
];
export const pool = (size: number, rest: Config = {}): Listed => ['MaxPooling2D', Object.assign({ pool_size: [size, size] }, rest)];
export const dropout = (rate: number): Listed => ['Dropout', { rate }];
export const flatten: Listed = ['Flatten'];
export const norm: Listed = ['BatchNormalization'];
export const relu: Listed = ['Activation', { activation: 'relu' }];
export const same = { padding: 'same' } as const;

export const MULTI_HOT = 'categoricalCrossentropy';
export const MSE = 'meanSquaredError';
export const BINARY = 'binaryCrossentropy';
export const SPARSE = 'sparseCategoricalCrossentropy';
/** Inside of a wrapper. */
export const lstm = (units: number, rest: Config = {}) => ({
  class_name: 'LSTM',
  config: Object.assign({ units, recurrent_initializer: 'orthogonal' }, rest),
});
