/** What the layers of Keras 3 do with masks: who makes, keeps and takes them (keras/src/layers). */
import type { Edge, PlannedLayer, PlannedModel } from '@paceline/engine';
import { ExportError } from '../export-error.js';

/** Planned, or of a topology that is not planned yet, with keys in camel case. */
export type GraphLayer = Pick<PlannedLayer, 'className' | 'name' | 'config' | 'calls'>;

/** Layers in which tensors meet step by step. */
export const MERGING: ReadonlySet<string> = new Set(['Add', 'Average', 'Maximum', 'Minimum', 'Multiply', 'Subtract']);
const RECURRENT: ReadonlySet<string> = new Set(['Bidirectional', 'ConvLSTM2D', 'GRU', 'LSTM', 'RNN', 'SimpleRNN']);
const KEEPING: ReadonlySet<string> = new Set([
  ...['Activation', 'BatchNormalization', 'Dense', 'ELU', 'LayerNormalization', 'LeakyReLU', 'Normalization', 'PReLU', 'ReLU'],
  ...['Rescaling', 'Softmax', 'TimeDistributed'],
  ...['AlphaDropout', 'Dropout', 'GaussianDropout', 'GaussianNoise', 'SpatialDropout1D', 'SpatialDropout2D'],
  ...['Concatenate', ...MERGING],
]);
const TAKING: ReadonlySet<string> = new Set(['BatchNormalization', 'GlobalAveragePooling1D', 'Softmax', 'TimeDistributed', ...RECURRENT]);

export const makesMask = ({ className, config }: GraphLayer): boolean =>
  className === 'Masking' || (className === 'Embedding' && config['maskZero'] === true);

export const takesMask = (layer: GraphLayer | undefined): boolean => layer !== undefined && TAKING.has(layer.className);

/** Whether a mask leaves a layer with its output. */
export function keepsMask({ className, config }: GraphLayer): boolean {
  if (!RECURRENT.has(className)) return KEEPING.has(className);
  const inner = (className === 'Bidirectional' ? (config['layer'] as { readonly config: GraphLayer['config'] }).config : config) ?? {};
  return (inner['returnSequences'] ?? inner['return_sequences']) === true;
}

/** They take a masked step for the value that changes nothing, such as 1. */
const MASKED_OTHERWISE: ReadonlySet<string> = new Set(['Multiply', 'Maximum', 'Minimum']);

/** Which steps count, and the layer, if there is one, from which on Keras has another mask. */
interface Mask {
  readonly steps: string;
  readonly other?: PlannedLayer | undefined;
}

/**
 * Where different masks meet, or some with none, Keras 3 goes on with another mask than tf.js and Keras 2.
 * @throws ExportError LAYER_NOT_EXPORTABLE where it matters
 */
export function refuseOtherMasks({ sequential, layers }: PlannedModel): void {
  if (sequential) return;
  const byName = new Map(layers.map((layer) => [layer.name, layer]));
  const known = new Map<string, Mask | undefined>();
  const maskOf = ([name, node]: Edge): Mask | undefined => {
    const key = `${name}/${node}`;
    const layer = byName.get(name);
    if (!known.has(key)) known.set(key, layer && maskBehind(layer, layer.calls[node] ?? [], maskOf));
    return known.get(key);
  };
  for (const layer of layers.filter(takesMask)) {
    const other = layer.calls.flat().map((edge) => maskOf(edge)?.other)[0];
    if (other) refuse(other, `layer ${layer.name} uses it`);
  }
  for (const layer of layers.filter(({ className }) => MASKED_OTHERWISE.has(className)))
    for (const edges of layer.calls)
      if (!areSame(edges.map(maskOf)) || (layer.isOperation && maskOf(edges[0]!))) refuse(layer, 'it computes otherwise with them');
}

function refuse({ className, path, isOperation }: PlannedLayer, why: string): never {
  const what = isOperation
    ? `${className} stands for an operation, behind which there is no mask, and as a layer of Keras 3 it has one`
    : `where different masks meet, or a mask and none, ${className} of Keras 3 makes another mask of them`;
  throw new ExportError(
    'LAYER_NOT_EXPORTABLE',
    `${what}, and ${why}: use mask_zero: false, and no Masking; the formats safetensors and npz take every model.`,
    path,
  );
}

const areSame = (masks: readonly (Mask | undefined)[]): boolean => masks.every((mask) => mask?.steps === masks[0]?.steps);

function maskBehind(layer: PlannedLayer, edges: readonly Edge[], maskOf: (edge: Edge) => Mask | undefined): Mask | undefined {
  const { className, config } = layer;
  if (makesMask(layer)) return { steps: `${className} ${String(config['maskValue'] ?? 0)} ${edges.join()}` };
  if (!keepsMask(layer)) return undefined;
  const masks = edges.map(maskOf);
  if (masks.length === 1 || !(MERGING.has(className) || className === 'Concatenate')) return masks[0];
  const steps = [...new Set(masks.map((mask) => mask?.steps))].sort().join('|');
  if (layer.isOperation && masks.some((mask) => mask !== undefined)) return { steps, other: layer };
  const before = masks.find((mask) => mask?.other)?.other;
  if (areSame(masks)) return masks[0] && { steps: masks[0].steps, other: before };
  if (config['unitesMasks'] === true) return masks.includes(undefined) ? undefined : { steps, other: before };
  return { steps, other: before ?? layer };
}
