/** The tape of tf.js 4.22: what operations have left for their gradients, and its tensors, which are freed when a gradient was taken. */
import * as tf from '@tensorflow/tfjs-core';
import { noteFailedLayer, presentLayer } from '../errors/failed-layer.js';

export interface TapeNode {
  readonly saved?: readonly tf.Tensor[];
  gradient?: (dys: tf.Tensor[]) => unknown;
}

/** What tf.js calls private. */
interface Tapes {
  readonly state: { activeTape: TapeNode[] | null };
  startTape(): void;
  endTape(): void;
  addTapeNode(...given: unknown[]): void;
}

export const tapes = (): Tapes => tf.engine() as unknown as Tapes;

export function disposeTape(tape: readonly TapeNode[] | null): void {
  for (const { saved = [] } of tape ?? []) for (const tensor of saved) tensor.dispose();
}

/** The layer whose operation the way back has come to; undefined on the way there, and outside of all layers. */
let wayBack: string | undefined;
let isNoting = false;

/** From now on each operation on the tape says of which layer it is when the way back comes to it. Once per thread: tf.js has no hook for it. */
function noteLayers(): void {
  if (isNoting) return;
  isNoting = true;
  const prototype = Object.getPrototypeOf(tf.engine()) as Tapes;
  const { addTapeNode } = prototype;
  prototype.addTapeNode = function (...given) {
    addTapeNode.apply(this, given);
    const node = this.state.activeTape?.at(-1);
    const { gradient } = node ?? {};
    const layer = presentLayer();
    if (!node || !gradient) return;
    node.gradient = (dys) => {
      wayBack = layer;
      return gradient(dys);
    };
  };
}

/** Takes gradients. tf.js leaves its tape behind where that fails: here nothing stays. */
export function withTape<T>(gradients: () => T): T {
  noteLayers();
  wayBack = undefined;
  try {
    return gradients();
  } catch (error) {
    if (wayBack !== undefined) noteFailedLayer(error, wayBack);
    const { state } = tapes();
    disposeTape(state.activeTape);
    state.activeTape = null;
    throw error;
  }
}
