/** What is used of the objects of tf.js, as shapes: the SDK imports no tf.js, so models may come from any copy of it. */

export interface TensorLike {
  readonly shape: readonly number[];
  readonly dtype: string;
  data(): Promise<ArrayLike<number>>;
}

interface TensorBufferLike {
  readonly constructor: unknown;
}

/** The variable of a tf.js layer. */
export interface WeightLike {
  readonly originalName: string;
  readonly shape: readonly (number | null)[];
  read(): TensorLike & { buffer(): Promise<TensorBufferLike> };
  write(tensor: unknown): unknown;
}

export interface LayerLike {
  readonly name: string;
  readonly trainableWeights: readonly unknown[];
  readonly nonTrainableWeights: readonly unknown[];
}

/** `tf.LayersModel`, and what it keeps of `compile`. */
export interface ModelLike {
  readonly name: string;
  readonly layers: readonly LayerLike[];
  toJSON(unused?: unknown, returnString?: boolean): unknown;
}

/** What a model keeps beside its public types; a Sequential one of the model inside. */
export interface CompiledModel {
  readonly inputs: readonly { readonly shape: readonly (number | null)[] }[];
  readonly outputs: readonly { readonly shape: readonly (number | null)[] }[];
  readonly loss?: unknown;
  readonly metrics?: unknown;
  readonly optimizer?: unknown;
  readonly optimizer_?: unknown;
}

export interface NamedWeight {
  /** As the run calls it: `layer/weight`, with the names of the models that the layer stands in. */
  readonly path: string;
  readonly weight: WeightLike;
}

export function namedWeights(layers: readonly LayerLike[], prefix = ''): NamedWeight[] {
  return layers.flatMap((layer) => {
    const inner = (layer as { layers?: readonly LayerLike[] }).layers;
    if (Array.isArray(inner)) return namedWeights(inner as LayerLike[], `${prefix}${layer.name}/`);
    const counts = new Map<string, number>();
    return ([...layer.trainableWeights, ...layer.nonTrainableWeights] as WeightLike[]).map((weight) => {
      const name = weight.originalName.split('/').at(-1)!;
      const count = counts.get(name) ?? 0;
      counts.set(name, count + 1);
      return { path: `${prefix}${layer.name}/${name}${count === 0 ? '' : `_${count}`}`, weight };
    });
  });
}

export const compiledOf = (model: ModelLike): CompiledModel =>
  ((model as { model?: CompiledModel }).model ?? model) as unknown as CompiledModel;

/** Gives a variable other values: the tensor is made by the tf.js that made the variable. */
export async function writeValues({ weight }: NamedWeight, values: Float32Array): Promise<void> {
  const before = weight.read();
  const { constructor: Buffer } = (await before.buffer()) as unknown as {
    constructor: new (shape: readonly number[], dtype: string, values: Float32Array) => { toTensor(): { dispose(): void } };
  };
  const tensor = new Buffer(before.shape, 'float32', values).toTensor();
  weight.write(tensor);
  tensor.dispose();
}
