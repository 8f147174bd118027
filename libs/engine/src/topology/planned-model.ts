/** A topology once it has been read: layers with camelCase configs, unique names, and the tensors that each is called on. */

export type Edge = readonly [layer: string, node: number, tensor: number];

export interface PlannedLayer {
  readonly className: string;
  /** Unique in the model; with the names of the nested models that it stands in, `encoder/dense`. */
  readonly name: string;
  /** camelCase config for the tf.js constructor, with the name in it. */
  readonly config: Record<string, unknown>;
  /** One entry per call of the layer, each with the tensors it is called on. Empty for Sequential and for inputs. */
  readonly calls: readonly (readonly Edge[])[];
  /** The field of the run spec. */
  readonly path: string;
  /** It, or a model that it stands in, is not `trainable`. */
  readonly isFrozen?: boolean;
  /** Keras passes a mask at its calls. */
  readonly isMasked?: boolean;
  /** Keras names no mask at its calls, although it takes one. */
  readonly isUnmasked?: boolean;
  /** An operation of Keras, behind which nothing has a mask. */
  readonly isOperation?: boolean;
}

/** The shape that a nested model wants of a tensor that it is called on. */
export interface Joint {
  readonly edge: Edge;
  /** With the batch. */
  readonly shape: readonly unknown[];
  /** The field of the run spec. */
  readonly path: string;
}

export interface PlannedModel {
  readonly sequential: boolean;
  readonly layers: readonly PlannedLayer[];
  readonly inputs: readonly Edge[];
  readonly outputs: readonly Edge[];
  /** Names of the ends, where they are not those of the layers: an output of a nested model bears the name of that model. */
  readonly endNames?: { readonly inputs: readonly string[]; readonly outputs: readonly string[] };
  readonly joints?: readonly Joint[];
}

/** A model as it stands in its topology: some of its layers may be models. */
export interface ModelPlan extends Omit<PlannedModel, 'layers' | 'endNames' | 'joints'> {
  readonly layers: readonly (PlannedLayer | NestedPlan)[];
}

export interface NestedPlan {
  readonly model: ModelPlan;
  readonly name: string;
  readonly calls: PlannedLayer['calls'];
  readonly path: string;
  readonly isFrozen: boolean;
}
