/** The layers inside a layer: those that it wraps, and the cells of recurrent ones. */
import type * as tfl from '@tensorflow/tfjs-layers';

type Layer = tfl.layers.Layer;

interface Composite {
  readonly layer?: Layer;
  readonly forwardLayer?: Layer;
  readonly backwardLayer?: Layer;
  readonly cell?: Layer;
  readonly cells?: readonly Layer[];
}

/** A layer and the layers that it wraps, outermost first. */
export function withInner(layer: Layer): Layer[] {
  const { layer: inner, forwardLayer, backwardLayer } = layer as unknown as Composite;
  return [layer, ...[inner, forwardLayer, backwardLayer].filter((part) => part !== undefined).flatMap(withInner)];
}

/** The cells of a recurrent layer, stacks with what they hold; none of another layer. */
export function cellsOf(layer: Layer): Layer[] {
  const { cell, cells = [] } = layer as unknown as Composite;
  return [...(cell ? [cell] : []), ...cells].flatMap((one) => [one, ...cellsOf(one)]);
}
