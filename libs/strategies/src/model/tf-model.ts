/** What tf.js 4.22 keeps in a compiled model beside its public interface (tfjs-layers/src/engine/training.ts). */
import type * as tfc from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';

export type LossOrMetric = (target: tfc.Tensor, output: tfc.Tensor) => tfc.Tensor;
export type TrainFunction = (data: (tfc.Tensor | null | undefined)[]) => tfc.Scalar[];

/** tf.js does not export its type. */
export type PredictArgs = Parameters<tfl.LayersModel['predict']>[1];

/** A model that tf.js trains: of a Sequential one that is the model inside. */
export interface TfModel {
  readonly inputs: readonly tfl.SymbolicTensor[];
  /** Of the layers, by which data are named. */
  readonly inputNames: readonly string[];
  readonly outputs: readonly tfl.SymbolicTensor[];
  readonly outputNames: readonly string[];
  readonly loss: unknown;
  readonly lossFunctions: readonly LossOrMetric[];
  readonly metrics: unknown;
  readonly metricsTensors: readonly (readonly [LossOrMetric, number])[];
  readonly optimizer_: tfc.Optimizer | undefined;
  readonly collectedTrainableWeights: readonly tfl.LayerVariable[] | undefined;
  makeTrainFunction(): TrainFunction;
  /** Sets `testFunction`, which gives the losses and metrics of a batch. */
  makeTestFunction(): void;
  testFunction: TrainFunction | undefined;
  /** Losses and metrics over all rows of `data`, in batches: evaluate, and the validation in fit. */
  testLoop(test: TrainFunction, data: tfc.Tensor[], batchSize?: number, verbose?: number, steps?: number): tfc.Scalar[];
  predictLoop(inputs: tfc.Tensor | tfc.Tensor[], batchSize?: number, verbose?: boolean): tfc.Tensor | tfc.Tensor[];
  /** The epochs of fit. `data` are inputs, targets and perhaps weights of all examples; tf.js hands `train` the rows of a batch of each. */
  fitLoop(train: TrainFunction, data: (tfc.Tensor | null)[], ...more: unknown[]): Promise<tfl.History>;
  compile(args: tfl.ModelCompileArgs): void;
  fitDataset(dataset: unknown, args: FitDatasetArgs): Promise<tfl.History>;
  fit(x: unknown, y: unknown, args?: tfl.ModelFitArgs): Promise<tfl.History>;
  evaluate(x: unknown, y: unknown, args?: tfl.ModelEvaluateArgs): tfc.Scalar | tfc.Scalar[];
  predict(x: unknown, args?: PredictArgs): tfc.Tensor | tfc.Tensor[];
  predictOnBatch(x: unknown): tfc.Tensor | tfc.Tensor[];
  trainOnBatch(x: unknown, y: unknown): Promise<number | number[]>;
  /** Inputs, targets, and null or the weights of the rows for each output, which fit disposes. */
  standardizeUserData(x: unknown, y: unknown, sampleWeight?: unknown, classWeight?: unknown, ...more: unknown[]): Promise<Standardized>;
}

/** What `fitDataset` takes, of which processes must have the same. */
export interface FitDatasetArgs {
  readonly batchesPerEpoch?: number;
  readonly epochs?: number;
  readonly initialEpoch?: number;
}

export type Standardized = [tfc.Tensor[], tfc.Tensor[], (tfc.Tensor | null)[] | null];

/** The model that a person holds. */
export type UserModel = tfl.LayersModel & { readonly model?: TfModel | undefined };

export const trainedModel = (model: UserModel): TfModel | undefined =>
  model.getClassName() === 'Sequential' ? model.model : (model as unknown as TfModel);

export function isModel(value: unknown): value is UserModel {
  const { makeTrainFunction, compile, layers } = (value ?? {}) as Record<string, unknown>;
  return typeof makeTrainFunction === 'function' && typeof compile === 'function' && Array.isArray(layers);
}

interface NestedLayers {
  readonly layers?: readonly tfl.layers.Layer[];
}

/** A weight under the path that the engine gives it: `layer/weight`, with the names of the models that the layer stands in. */
export interface NamedWeight {
  readonly path: string;
  readonly weight: tfl.LayerVariable;
}

/** Layers of layers, and what they keep in private: tfjs-layers/src/engine/topology.ts, layers/wrappers.ts, layers/recurrent.ts. */
interface Wrapping {
  readonly _nonTrainableWeights?: readonly tfl.LayerVariable[];
  readonly layer?: Wrapping;
  readonly forwardLayer?: Wrapping;
  readonly backwardLayer?: Wrapping;
  readonly cell?: Wrapping;
  readonly cells?: readonly Wrapping[];
  readonly layers?: readonly Wrapping[];
}

/** Weights that no optimizer changes, whatever is frozen: moving averages. */
export function stateWeights(layers: readonly unknown[]): Set<tfl.LayerVariable> {
  const found = new Set<tfl.LayerVariable>();
  const visit = (layer: Wrapping | undefined): void => {
    if (!layer) return;
    for (const weight of layer._nonTrainableWeights ?? []) found.add(weight);
    for (const inner of [layer.layer, layer.forwardLayer, layer.backwardLayer, layer.cell, ...(layer.cells ?? []), ...(layer.layers ?? [])])
      visit(inner);
  };
  for (const layer of layers) visit(layer as Wrapping);
  return found;
}

export function namedWeights(layers: readonly tfl.layers.Layer[], prefix = ''): NamedWeight[] {
  return layers.flatMap((layer) => {
    const inner = (layer as NestedLayers).layers;
    if (Array.isArray(inner)) return namedWeights(inner as tfl.layers.Layer[], `${prefix}${layer.name}/`);
    const counts = new Map<string, number>();
    return [...layer.trainableWeights, ...layer.nonTrainableWeights].map((weight) => {
      const name = weight.originalName.split('/').at(-1)!;
      const count = counts.get(name) ?? 0;
      counts.set(name, count + 1);
      return { path: `${prefix}${layer.name}/${name}${count === 0 ? '' : `_${count}`}`, weight };
    });
  });
}
