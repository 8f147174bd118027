/** What a model keeps in memory for one example, bounded before anything is computed: outputs, and the states of recurrent layers. */
import type * as tfl from '@tensorflow/tfjs-layers';
import { ModelError } from '../errors/model-error.js';

type Layer = tfl.layers.Layer;
type Shape = readonly (number | null)[];

/** Elements one example may have after one layer, and over all layers: 64 MiB and 512 MiB as float32. */
const ACTIVATION_ELEMENTS = 1 << 24;
const ACTIVATION_ELEMENTS_TOTAL = 1 << 27;

/**
 * A layer without weights can still ask for terabytes: every output of every call must be of a definite, bounded size.
 * @throws ModelError
 */
export function checkActivations(model: tfl.LayersModel, pathOf: (name: string) => string): void {
  let total = 0;
  for (const layer of model.layers) {
    const path = pathOf(layer.name);
    for (const node of layer.inboundNodes) {
      const outputs = (node.outputShapes as Shape[]).reduce((sum, shape) => sum + outputElements(shape, path), 0);
      const states = stateElements(layer, node.inputShapes[0] as Shape);
      const kept = Math.max(outputs, states);
      total += kept;
      if (kept > ACTIVATION_ELEMENTS || total > ACTIVATION_ELEMENTS_TOTAL) {
        const isAttention = (layer as unknown as Recurrent).scoreElements !== undefined;
        const inner = isAttention ? 'what each step sees of each' : 'the state of its cells at all steps';
        const what = kept > outputs ? `${inner} (${states} elements)` : 'its output';
        const shapes = (node.outputShapes as Shape[]).map((shape) => `[${shape.slice(1).join(', ')}]`).join(', ');
        throw new ModelError(
          path,
          `what the layer keeps of one example, ${what}, is too large: at most ${ACTIVATION_ELEMENTS} elements per layer and ${ACTIVATION_ELEMENTS_TOTAL} over all layers; the output is ${shapes}`,
        );
      }
    }
  }
}

function outputElements(shape: Shape, path: string): number {
  if (shape[0] !== null) throw new ModelError(path, `the batch size must be left open (null), not ${String(shape[0])}`);
  const elements = elementsOf(shape);
  if (Number.isNaN(elements)) throw new ModelError(path, `the output would have the impossible shape [${shape.slice(1).join(', ')}]`);
  return elements;
}

/** Elements of one example; NaN where a dimension is no positive integer. */
const elementsOf = (shape: Shape): number =>
  shape.slice(1).reduce<number>((product, d) => product * (Number.isSafeInteger(d) && d! >= 1 ? d! : Number.NaN), 1);

interface Recurrent {
  readonly layer?: Layer;
  readonly forwardLayer?: Layer;
  readonly backwardLayer?: Layer;
  /** A stack says the sizes of all its cells. */
  readonly cell?: { readonly stateSize: number | readonly number[] };
  /** MultiHeadAttention: the scores of every step with every step, for every head. */
  readonly scoreElements?: number;
  /** ConvLSTM2D: the state as images, [batch, steps, …]. */
  computeSingleOutputShape?(inputShape: Shape): Shape;
}

/** Elements of the states at all steps of the recurrent layers in a layer, or of the scores of attention: the gradient needs each. Else 0. */
function stateElements(layer: Layer, inputShape: Shape): number {
  const recurrent = layer as unknown as Recurrent;
  const { forwardLayer, backwardLayer, cell } = recurrent;
  if (forwardLayer && backwardLayer) return stateElements(forwardLayer, inputShape) + stateElements(backwardLayer, inputShape);
  const [batch = null, steps, ...rest] = inputShape;
  if (recurrent.layer) return steps! * stateElements(recurrent.layer, [batch, ...rest]);
  if (recurrent.scoreElements !== undefined) return recurrent.scoreElements;
  if (!cell) return 0;
  const sizes = [cell.stateSize].flat();
  if (recurrent.computeSingleOutputShape) return sizes.length * elementsOf(recurrent.computeSingleOutputShape(inputShape));
  return steps! * sizes.reduce((sum, size) => sum + size, 0);
}
