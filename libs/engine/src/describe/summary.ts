/** The layers of a model as `model.summary()` of Keras lists them, found by building it without weights. */
import '@tensorflow/tfjs-backend-cpu';
import { matchesPatterns, type RowFormat, type RunSpec } from '@paceline/spec';
import type * as tfl from '@tensorflow/tfjs-layers';
import { buildModel } from '../model/build-model.js';
import { planModel } from '../topology/plan-model.js';
import { freezeOf } from '../topology/frozen-layers.js';

type Shape = readonly (number | null)[];

export interface LayerSummary {
  readonly name: string;
  readonly className: string;
  /** With the batch, one for each call of the layer. */
  readonly outputShapes: readonly Shape[];
  /** With those that are not trained. */
  readonly parameters: number;
  readonly frozen: number;
  /** The layers whose outputs it is called on, for all of its calls. */
  readonly connectedTo: readonly string[];
}

export interface ModelSummary {
  readonly layers: readonly LayerSummary[];
  /** Without the state of layers. */
  readonly parameters: number;
  /** The part of them that is frozen. */
  readonly frozen: number;
  /** What layers carry without gradients: moving averages. */
  readonly state: number;
}

/**
 * @param format of the rows, from which a model of the zoo takes its shapes
 * @throws ModelError
 */
export function summarizeModel(
  spec: Pick<RunSpec, 'model'> & Partial<Pick<RunSpec, 'freeze'>>,
  format: RowFormat | undefined,
): ModelSummary {
  const { plan, root } = planModel(spec, format);
  const { model, weights } = buildModel(plan, root, false);
  const freeze = freezeOf(plan, spec.freeze);
  const sum = (of: typeof weights): number => of.reduce((total, { shape }) => total + shape.reduce((a, b) => a * b, 1), 0);
  const trained = weights.filter(({ trainable }) => trainable);
  const isFrozen = ({ path }: { readonly path: string }): boolean => matchesPatterns(freeze, path);
  const layers = model.layers.map((layer) => {
    const own = weights.filter(({ path }) => path.slice(0, path.lastIndexOf('/')) === layer.name);
    return {
      name: layer.name,
      className: layer.getClassName(),
      outputShapes: layer.inboundNodes.flatMap((node) => node.outputShapes as Shape[]),
      parameters: sum(own),
      frozen: sum(own.filter((weight) => weight.trainable && isFrozen(weight))),
      connectedTo: sourcesOf(layer),
    };
  });
  return {
    layers,
    parameters: sum(trained),
    frozen: sum(trained.filter(isFrozen)),
    state: sum(weights.filter(({ trainable }) => !trainable)),
  };
}

const sourcesOf = (layer: tfl.layers.Layer): string[] => [
  ...new Set(layer.inboundNodes.flatMap((node) => node.inboundLayers.map(({ name }) => name))),
];
